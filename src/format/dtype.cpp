#include "headrace/dtype.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/limits.h"
#include "format/numpy_str.h"

namespace headrace {

struct DType::Parameters {
  std::string unit;
  std::int32_t unit_scale = 1;
  std::vector<StructField> fields;
  DType item{};
};

constinit const DType DType::boolean{Kind::boolean, 1, "bool"};
constinit const DType DType::int8{Kind::signed_integer, 1, "int8"};
constinit const DType DType::int16{Kind::signed_integer, 2, "int16"};
constinit const DType DType::int32{Kind::signed_integer, 4, "int32"};
constinit const DType DType::int64{Kind::signed_integer, 8, "int64"};
constinit const DType DType::uint8{Kind::unsigned_integer, 1, "uint8"};
constinit const DType DType::uint16{Kind::unsigned_integer, 2, "uint16"};
constinit const DType DType::uint32{Kind::unsigned_integer, 4, "uint32"};
constinit const DType DType::uint64{Kind::unsigned_integer, 8, "uint64"};
constinit const DType DType::float16{Kind::floating, 2, "float16"};
constinit const DType DType::float32{Kind::floating, 4, "float32"};
constinit const DType DType::float64{Kind::floating, 8, "float64"};
constinit const DType DType::bfloat16{Kind::ml_floating, 2, "bfloat16"};
constinit const DType DType::complex64{Kind::complex, 8, "complex64"};
constinit const DType DType::complex128{Kind::complex, 16, "complex128"};

namespace {

// Bounds what hostile metadata can ask for; a thousand times more than any type in use.

std::uint32_t checked_itemsize(std::size_t nbytes, const char* what) {
  if (nbytes == 0 || nbytes > kMaxItemNbytes) {
    throw Error(nbytes == 0 ? ErrorCode::invalid_argument : ErrorCode::unsupported,
                std::string(what) + ": item size of " + std::to_string(nbytes) +
                    " bytes, expected 1 to " + std::to_string(kMaxItemNbytes));
  }
  return static_cast<std::uint32_t>(nbytes);
}

// "r16" -> 2, 0 for anything else. https://zarr-specs.readthedocs.io/en/latest/v3/data-types
std::size_t raw_name_nbytes(std::string_view name) {
  if (name.size() < 2 || name.size() > 11 || name[0] != 'r' || name[1] == '0') return 0;
  std::size_t bits = 0;
  for (char c : name.substr(1)) {
    if (c < '0' || c > '9') return 0;
    bits = bits * 10 + static_cast<std::size_t>(c - '0');
  }
  return bits % 8 == 0 ? bits / 8 : 0;
}

bool is_subbyte_integer(const DType& dtype) {
  const std::string name = dtype.name();
  return name == "int2" || name == "int4" || name == "uint2" || name == "uint4";
}

}  // namespace

DType DType::from_name(std::string_view name) {
  static const std::array named = {
      boolean,
      int8,
      int16,
      int32,
      int64,
      uint8,
      uint16,
      uint32,
      uint64,
      float16,
      float32,
      float64,
      bfloat16,
      complex64,
      complex128,
      DType::string(),
      DType::bytes(),
      DType{Kind::signed_integer, 1, "int2"},
      DType{Kind::signed_integer, 1, "int4"},
      DType{Kind::unsigned_integer, 1, "uint2"},
      DType{Kind::unsigned_integer, 1, "uint4"},
      DType{Kind::ml_floating, 1, "float8_e3m4"},
      DType{Kind::ml_floating, 1, "float8_e4m3"},
      DType{Kind::ml_floating, 1, "float8_e4m3fn"},
      DType{Kind::ml_floating, 1, "float8_e4m3fnuz"},
      DType{Kind::ml_floating, 1, "float8_e4m3b11fnuz"},
      DType{Kind::ml_floating, 1, "float8_e5m2"},
      DType{Kind::ml_floating, 1, "float8_e5m2fnuz"},
      DType{Kind::ml_floating, 1, "float8_e8m0fnu"},
      DType{Kind::ml_floating, 1, "float6_e2m3fn"},
      DType{Kind::ml_floating, 1, "float6_e3m2fn"},
      DType{Kind::ml_floating, 1, "float4_e2m1fn"},
  };
  // The registry's second names, and zarr-python's name for "bytes".
  static constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
      {"complex_float32", "complex64"},
      {"complex_float64", "complex128"},
      {"variable_length_bytes", "bytes"},
  };
  std::string_view wanted = name;
  for (const auto& [alias, target] : kAliases) {
    if (name == alias) wanted = target;
  }
  for (const DType& dtype : named) {
    if (wanted == dtype.name_) return dtype;
  }
  if (const std::size_t nbytes = raw_name_nbytes(name)) return raw(nbytes);
  throw Error(ErrorCode::invalid_argument, "no data type named \"" + std::string(name) + "\"");
}

namespace {

std::string checked_unit(std::string_view unit, std::int32_t scale) {
  std::string canonical = canonical_time_unit(unit);
  if (canonical.empty()) {
    throw Error(ErrorCode::invalid_argument, "no time unit \"" + std::string(unit) + "\"");
  }
  if (scale < 1) {
    throw Error(ErrorCode::invalid_argument,
                "time unit scale " + std::to_string(scale) + ", expected at least 1");
  }
  return canonical;
}

}  // namespace

DType DType::datetime(std::string unit, std::int32_t scale) {
  DType dtype{Kind::datetime, 8, "numpy.datetime64"};
  dtype.parameters_ =
      std::make_shared<const Parameters>(Parameters{checked_unit(unit, scale), scale, {}, {}});
  return dtype;
}

DType DType::timedelta(std::string unit, std::int32_t scale) {
  DType dtype{Kind::timedelta, 8, "numpy.timedelta64"};
  dtype.parameters_ =
      std::make_shared<const Parameters>(Parameters{checked_unit(unit, scale), scale, {}, {}});
  return dtype;
}

DType DType::fixed_bytes(std::size_t nbytes) {
  return {Kind::fixed_bytes,
          checked_itemsize(nbytes, "null_terminated_bytes"),
          "null_terminated_bytes"};
}

DType DType::fixed_utf32(std::size_t length) {
  const std::size_t nbytes = checked_mul(length, std::size_t{4}, "fixed_length_utf32");
  return {Kind::fixed_utf32, checked_itemsize(nbytes, "fixed_length_utf32"), "fixed_length_utf32"};
}

DType DType::raw(std::size_t nbytes) { return {Kind::raw, checked_itemsize(nbytes, "raw"), "raw"}; }

DType DType::structure(std::vector<StructField> fields, std::size_t itemsize) {
  const std::uint32_t size = checked_itemsize(itemsize, "struct");
  if (fields.empty()) throw Error(ErrorCode::invalid_argument, "struct: no fields");
  for (const StructField& field : fields) {
    const std::string what = "struct field \"" + field.name + "\"";
    if (field.dtype.variable_length()) {
      throw Error(ErrorCode::invalid_argument, what + ": has no fixed size");
    }
    const std::size_t nbytes = checked_nbytes(field.shape, field.dtype.itemsize(), what.c_str());
    if (field.offset_bytes > size || nbytes > size - field.offset_bytes) {
      throw Error(ErrorCode::invalid_argument,
                  what + ": " + std::to_string(nbytes) + " bytes at " +
                      std::to_string(field.offset_bytes) + " do not fit in " +
                      std::to_string(size));
    }
    const auto same = [&](const StructField& other) { return other.name == field.name; };
    if (std::count_if(fields.begin(), fields.end(), same) > 1) {
      throw Error(ErrorCode::invalid_argument, what + ": occurs twice");
    }
  }
  DType dtype{Kind::structure, size, "struct"};
  dtype.parameters_ = std::make_shared<const Parameters>(Parameters{{}, 1, std::move(fields), {}});
  return dtype;
}

DType DType::string() { return {Kind::string, sizeof(VlenElement), "string"}; }
DType DType::bytes() { return {Kind::bytes, sizeof(VlenElement), "bytes"}; }
DType DType::object() { return {Kind::object, sizeof(VlenElement), "object"}; }

DType DType::array(const DType& item) {
  if (item.variable_length()) {
    throw Error(ErrorCode::invalid_argument,
                "array: items of " + item.to_string() + " have no fixed size");
  }
  DType dtype{Kind::array, sizeof(VlenElement), "array"};
  dtype.parameters_ = std::make_shared<const Parameters>(Parameters{{}, 1, {}, item});
  return dtype;
}

std::size_t DType::swap_size() const {
  switch (kind_) {
    case Kind::complex:
      return itemsize_ / 2;
    case Kind::fixed_utf32:
      return 4;
    case Kind::fixed_bytes:
    case Kind::raw:
    case Kind::structure:
    case Kind::string:
    case Kind::bytes:
    case Kind::object:
    case Kind::array:
      return 1;
    default:
      return itemsize_;
  }
}

std::string DType::to_string() const {
  switch (kind_) {
    case Kind::datetime:
    case Kind::timedelta:
      return name() + "[" + (unit_scale() == 1 ? "" : std::to_string(unit_scale())) + unit() + "]";
    case Kind::fixed_bytes:
      return name() + "[" + std::to_string(itemsize_) + "]";
    case Kind::fixed_utf32:
      return name() + "[" + std::to_string(itemsize_ / 4) + "]";
    case Kind::raw:
      return "r" + std::to_string(std::uint64_t{itemsize_} * 8);
    case Kind::structure: {
      std::string text = "struct{";
      for (const StructField& field : fields()) {
        if (text.back() != '{') text += ", ";
        text += field.name + ": " + field.dtype.to_string();
        for (std::int64_t extent : field.shape) text += "[" + std::to_string(extent) + "]";
        if (field.big_endian && field.dtype.swap_size() > 1) text += " big-endian";
        text += " @" + std::to_string(field.offset_bytes);
      }
      return text + "}";
    }
    case Kind::array:
      return "array<" + item().to_string() + ">";
    default:
      return name();
  }
}

std::string DType::numpy_str() const {
  if (variable_length()) return "";
  if (kind_ == Kind::ml_floating || is_subbyte_integer(*this)) {
    return "|V" + std::to_string(itemsize_);
  }
  return to_numpy_str(*this, native_order());
}

DType DType::from_numpy_str(std::string_view str) {
  const NumpyType type = parse_numpy_str(str);
  if (type.order != ByteOrder::none && type.order != native_order()) {
    throw Error(ErrorCode::invalid_argument,
                "data type \"" + std::string(str) + "\" is not of native byte order");
  }
  return type.dtype;
}

const std::string& DType::unit() const {
  static const std::string none;
  return parameters_ ? parameters_->unit : none;
}

std::int32_t DType::unit_scale() const { return parameters_ ? parameters_->unit_scale : 1; }

const std::vector<StructField>& DType::fields() const {
  static const std::vector<StructField> none;
  return parameters_ ? parameters_->fields : none;
}

const DType& DType::item() const {
  static const DType none;
  return parameters_ ? parameters_->item : none;
}

// GCC lets a friend that a class alone declares not be visible by the header's pragma.
[[gnu::visibility("default")]] bool operator==(const DType& a, const DType& b) {
  if (a.kind_ != b.kind_ || a.itemsize_ != b.itemsize_ || std::strcmp(a.name_, b.name_) != 0) {
    return false;
  }
  if (a.parameters_ == b.parameters_) return true;
  const auto same_field = [](const StructField& x, const StructField& y) {
    return x.name == y.name && x.dtype == y.dtype && x.offset_bytes == y.offset_bytes &&
           x.shape == y.shape && (x.big_endian == y.big_endian || x.dtype.swap_size() == 1);
  };
  if (a.kind_ == DType::Kind::array) return a.item() == b.item();
  return a.unit() == b.unit() && a.unit_scale() == b.unit_scale() &&
         std::equal(a.fields().begin(),
                    a.fields().end(),
                    b.fields().begin(),
                    b.fields().end(),
                    same_field);
}

}  // namespace headrace
