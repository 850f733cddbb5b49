// https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html#permitted-fill-values
// https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#fill-value-encoding
#include "format/fill_value.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/base64.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/json_scan.h"
#include "base/utf8.h"
#include "format/metadata.h"
#include "format/small_float.h"

namespace headrace {
namespace {

using Bytes = std::vector<std::byte>;

[[noreturn]] void reject(const DType& dtype, const Json& json) {
  const std::string text(json.text().substr(0, 60));
  json.fail(ErrorCode::corrupt, text + " is no fill value of " + dtype.to_string());
}

void store_bits(std::byte* out, std::uint64_t bits, std::size_t nbytes) {
  for (std::size_t i = 0; i < nbytes; ++i) {
    const std::size_t at = std::endian::native == std::endian::little ? i : nbytes - 1 - i;
    out[at] = static_cast<std::byte>(bits >> (8 * i) & 0xFF);
  }
}

// "0x7fc00000": as many digits as the type has bytes, times two.
std::optional<std::uint64_t> parse_hex(std::string_view text, std::size_t nbytes) {
  if (text.substr(0, 2) != "0x" || text.size() != 2 + 2 * nbytes) return std::nullopt;
  std::uint64_t bits = 0;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return bits;
}

// A string that holds a JSON number, as zarr-python 2 wrote some.
std::optional<std::string> number_in(const std::string& text) {
  try {
    const Json inner = Json::parse(text, "fill_value");
    if (inner.is_number()) return std::string(inner.text());
  } catch (const Error&) {
    return std::nullopt;
  }
  return std::nullopt;
}

// Those of Python's float(): "nan", "-inf".
std::optional<std::string> named_float_in(std::string_view text) {
  std::string lower;
  for (const char c : text) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower == "nan") return "NaN";
  const bool is_signed = lower.starts_with('-') || lower.starts_with('+');
  const std::string_view name = std::string_view(lower).substr(is_signed ? 1 : 0);
  if (name != "inf" && name != "infinity") return std::nullopt;
  return lower.starts_with('-') ? "-Infinity" : "Infinity";
}

int integer_bits(const DType& dtype) {
  const std::string name = dtype.name();
  if (name == "int2" || name == "uint2") return 2;
  if (name == "int4" || name == "uint4") return 4;
  return static_cast<int>(dtype.itemsize() * 8);
}

void put_integer(const DType& dtype, const Json& json, std::byte* out) {
  const bool is_signed = dtype.kind() != DType::Kind::unsigned_integer;
  std::string text(json.text());
  if (json.is_string()) {
    const std::optional<std::string> number = number_in(json.string());
    if (!number) reject(dtype, json);
    text = *number;
  } else if (json.kind() == Json::Kind::boolean) {  // zarr-python takes it for a number
    text = json.boolean() ? "1" : "0";
  } else if (!json.is_number()) {
    reject(dtype, json);
  }
  if (text == "-0") text = "0";
  const char* end = text.data() + text.size();
  const int bits = integer_bits(dtype);

  // Plain digits are exact; 1.0 and 1e3 are integers too.
  std::int64_t value = 0;
  std::uint64_t magnitude = 0;
  const auto as_signed = std::from_chars(text.data(), end, value);
  const auto as_unsigned = std::from_chars(text.data(), end, magnitude);
  const bool fits_signed = as_signed.ec == std::errc{} && as_signed.ptr == end;
  const bool fits_unsigned = as_unsigned.ec == std::errc{} && as_unsigned.ptr == end;
  if (text.find_first_of(".eEIN") != std::string::npos) {
    const double number = json_number(text);
    if (!(std::trunc(number) == number)) reject(dtype, json);
    if (number >= -0x1p63 && number < 0x1p63) {
      value = static_cast<std::int64_t>(number);
      magnitude = static_cast<std::uint64_t>(value);
    } else if (!is_signed && number >= 0 && number < 0x1p64) {
      magnitude = static_cast<std::uint64_t>(number);
      value = -1;
    } else {
      reject(dtype, json);
    }
    if (!is_signed && number < 0) reject(dtype, json);
  } else if (is_signed ? !fits_signed : !fits_unsigned) {
    reject(dtype, json);
  }
  if (is_signed && bits < 64) {
    const std::int64_t limit = std::int64_t{1} << (bits - 1);
    if (value < -limit || value >= limit) reject(dtype, json);
  }
  if (!is_signed && bits < 64 && magnitude >> bits != 0) reject(dtype, json);
  store_bits(out, is_signed ? static_cast<std::uint64_t>(value) : magnitude, dtype.itemsize());
}

void put_float(const DType& dtype, const DType& shown, const Json& json, std::byte* out) {
  const FloatLayout layout = float_layout(dtype);
  std::optional<std::uint64_t> bits;
  if (json.is_number()) {
    bits = float_to_bits(layout, json.number());
  } else if (json.kind() == Json::Kind::boolean) {
    bits = float_to_bits(layout, json.boolean() ? 1 : 0);
  } else if (json.is_string()) {
    const std::string text = json.string();
    if (text.rfind("0x", 0) == 0) {
      bits = parse_hex(text, dtype.itemsize());
      if (bits && layout.bits < 64 && *bits >> layout.bits != 0) bits.reset();
    } else if (const std::optional<std::string> number = number_in(text)) {
      bits = float_to_bits(layout, json_number(*number));
    } else if (const std::optional<std::string> named = named_float_in(text)) {
      bits = float_to_bits(layout, json_number(*named));
    }
  }
  if (!bits) reject(shown, json);
  store_bits(out, *bits, dtype.itemsize());
}

void put_complex(const DType& dtype, const Json& json, std::byte* out) {
  const DType& part = dtype.itemsize() == 8 ? DType::float32 : DType::float64;
  if (!json.is_array()) return put_float(part, dtype, json, out);  // a real number
  const std::vector<Json> parts = json.items();
  if (parts.size() != 2) reject(dtype, json);
  put_float(part, dtype, parts[0], out);
  put_float(part, dtype, parts[1], out + part.itemsize());
}

void put_boolean(const DType& dtype, const Json& json, std::byte* out) {
  if (json.kind() == Json::Kind::boolean) {
    *out = json.boolean() ? std::byte{1} : std::byte{0};
    return;
  }
  const double number = json.is_number() ? json.number() : 2;
  if (number != 0 && number != 1) reject(dtype, json);
  *out = number == 1 ? std::byte{1} : std::byte{0};
}

void put_time(const DType& dtype, const Json& json, std::byte* out) {
  if (json.is_string() && json.string() == "NaT") {
    return store_bits(out, std::uint64_t{1} << 63, 8);
  }
  if (json.is_string()) reject(dtype, json);
  put_integer(dtype, json, out);
}

bool is_zero(const Json& json) { return json.is_number() && json.number() == 0; }

// Base64, the list of bytes that the specification asks for r<N>, or the 0 and "" of old writers.
void put_bytes(const DType& dtype, const Json& json, std::byte* out) {
  if (is_zero(json)) return;
  if (json.is_array()) {
    const std::vector<Json> items = json.items();
    if (items.size() != dtype.itemsize()) reject(dtype, json);
    for (const Json& item : items) put_integer(DType::uint8, item, out++);
    return;
  }
  if (!json.is_string()) reject(dtype, json);
  const std::optional<Bytes> bytes = base64_decode(json.string());
  if (!bytes || bytes->size() > dtype.itemsize()) reject(dtype, json);
  const bool padded = dtype.kind() == DType::Kind::fixed_bytes || bytes->empty();
  if (!padded && bytes->size() != dtype.itemsize()) reject(dtype, json);
  if (!bytes->empty()) std::memcpy(out, bytes->data(), bytes->size());
}

void put_utf32(const DType& dtype, const Json& json, std::byte* out) {
  if (is_zero(json)) return;
  if (!json.is_string()) reject(dtype, json);
  const std::string text = json.string();  // well-formed UTF-8
  std::size_t at = 0;
  for (std::size_t i = 0; i < text.size(); at += 4) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    std::uint32_t c = length == 1 ? lead : lead & (0x7FU >> length);
    for (std::size_t k = 1; k < length; ++k)
      c = c << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3FU);
    if (at == dtype.itemsize()) reject(dtype, json);
    store_bits(out + at, c, 4);
    i += length;
  }
}

void put(const DType& dtype, const Json& json, std::byte* out);

void reverse_units(const DType& dtype, std::byte* out) {
  const std::size_t unit = dtype.swap_size();
  for (std::size_t at = 0; at < dtype.itemsize(); at += unit)
    std::reverse(out + at, out + at + unit);
}

void put_field(const StructField& field, const Json& json, std::byte* out) {
  if (!field.shape.empty()) {
    const std::size_t nbytes = checked_nbytes(field.shape, field.dtype.itemsize(), "field");
    if (nbytes == 0) return;
    return put_bytes(DType::raw(nbytes), json, out);
  }
  put(field.dtype, json, out);
  const bool native_big = std::endian::native == std::endian::big;
  if (field.dtype.swap_size() > 1 && field.big_endian != native_big)
    reverse_units(field.dtype, out);
}

// {"x": 1.5, ...}, [1.5, ...], or base64 of the whole as stored.
void put_structure(const DType& dtype, const Json& json, std::byte* out) {
  if (json.is_object()) {
    if (json.members().size() != dtype.fields().size()) reject(dtype, json);
    for (const StructField& field : dtype.fields()) {
      put_field(field, json.at(field.name), out + field.offset_bytes);
    }
  } else if (json.is_array()) {
    const std::vector<Json> items = json.items();
    if (items.size() != dtype.fields().size()) reject(dtype, json);
    for (std::size_t i = 0; i < items.size(); ++i) {
      put_field(dtype.fields()[i], items[i], out + dtype.fields()[i].offset_bytes);
    }
  } else {
    put_bytes(dtype, json, out);
  }
}

void put(const DType& dtype, const Json& json, std::byte* out) {
  switch (dtype.kind()) {
    case DType::Kind::boolean:
      return put_boolean(dtype, json, out);
    case DType::Kind::signed_integer:
    case DType::Kind::unsigned_integer:
      return put_integer(dtype, json, out);
    case DType::Kind::floating:
    case DType::Kind::ml_floating:
      return put_float(dtype, dtype, json, out);
    case DType::Kind::complex:
      return put_complex(dtype, json, out);
    case DType::Kind::datetime:
    case DType::Kind::timedelta:
      return put_time(dtype, json, out);
    case DType::Kind::fixed_bytes:
    case DType::Kind::raw:
      return put_bytes(dtype, json, out);
    case DType::Kind::fixed_utf32:
      return put_utf32(dtype, json, out);
    case DType::Kind::structure:
      return put_structure(dtype, json, out);
    case DType::Kind::string:
    case DType::Kind::bytes:
    case DType::Kind::object:
    case DType::Kind::array:
      return;  // variable_value() knows them
  }
}

// Zarr 2 writes 0 for whatever has no better one; zarr-python reads it as a string, too.
Bytes variable_value(const DType& dtype, const Json& json) {
  const auto bytes = [](std::string_view text) {
    const ConstBytes view = bytes_of(text);
    return Bytes(view.begin(), view.end());
  };
  switch (dtype.kind()) {
    case DType::Kind::string:
      if (json.is_string()) return bytes(json.string());
      if (json.is_number()) return bytes(json.text());
      break;
    case DType::Kind::bytes: {
      if (is_zero(json)) return {};
      if (json.is_array()) {  // of numbers, as the extension registry has it; [] for none
        const std::vector<Json> items = json.items();
        Bytes list(items.size());
        for (std::size_t i = 0; i < items.size(); ++i)
          put_integer(DType::uint8, items[i], &list[i]);
        return list;
      }
      const auto decoded = json.is_string() ? base64_decode(json.string()) : std::nullopt;
      if (decoded) return *decoded;
      break;
    }
    case DType::Kind::object:
      return bytes(json.compact());
    default:  // array
      if (is_zero(json) || (json.is_string() && json.string().empty())) return {};
  }
  reject(dtype, json);
}

std::string float_json(const DType& dtype, const std::byte* in, int zarr_format) {
  const FloatLayout layout = float_layout(dtype);
  const std::uint64_t bits = load_bits(in, dtype.itemsize());
  const double value = float_from_bits(layout, bits);
  if (std::isnan(value)) {
    // Other NaN than the one that "NaN" means keep their bits, where the format can say them.
    if (zarr_format == 2 || float_to_bits(layout, value) == bits) return "\"NaN\"";
    char digits[17];
    const auto result = std::to_chars(digits, digits + sizeof digits, bits, 16);
    const std::string hex(digits, result.ptr);
    return "\"0x" + std::string(2 * dtype.itemsize() - hex.size(), '0') + hex + "\"";
  }
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  char digits[40];
  const auto result = std::to_chars(digits, digits + sizeof digits, value);
  std::string text(digits, result.ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string integer_json(const DType& dtype, const std::byte* in) {
  const std::uint64_t bits = load_bits(in, dtype.itemsize());
  const int unused = 64 - integer_bits(dtype);  // what stands above the 4 bits of an int4 too
  if (dtype.kind() == DType::Kind::unsigned_integer)
    return std::to_string(bits << unused >> unused);
  return std::to_string(static_cast<std::int64_t>(bits << unused) >> unused);
}

std::string utf32_json(const DType& dtype, const std::byte* in) {
  std::string text;
  std::size_t length = dtype.itemsize();
  while (length > 0 && load_bits(in + length - 4, 4) == 0) length -= 4;
  for (std::size_t at = 0; at < length; at += 4) {
    const std::uint64_t c = load_bits(in + at, 4);
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) {
      throw Error(ErrorCode::invalid_argument,
                  "fill value: " + std::to_string(c) + " is no character");
    }
    append_utf8(text, static_cast<char32_t>(c));
  }
  return json_quote(text);
}

std::string variable_json(const DType& dtype, const Bytes& bytes) {
  const std::string_view text = text_of(bytes);
  if (dtype.kind() == DType::Kind::bytes) return json_quote(base64_encode(bytes));
  if (dtype.kind() == DType::Kind::object) {
    return text.empty() ? "null" : Json::parse(text, "fill_value").compact();
  }
  if (dtype.kind() == DType::Kind::string && is_utf8(text)) return json_quote(text);
  if (bytes.empty()) return "0";
  throw Error(ErrorCode::invalid_argument,
              "fill value: these " + std::to_string(bytes.size()) + " bytes are none of " +
                  dtype.to_string());
}

}  // namespace

std::optional<Bytes> fill_value_from_json(const DType& dtype, const Json& json) {
  if (json.is_null()) return std::nullopt;
  if (dtype.variable_length()) return variable_value(dtype, json);
  Bytes bytes(dtype.itemsize());
  put(dtype, json, bytes.data());
  return bytes;
}

Bytes element_without_fill(const DType& dtype) {
  if (dtype.kind() == DType::Kind::datetime || dtype.kind() == DType::Kind::timedelta)
    return *fill_value_from_json(dtype, Json::parse("\"NaT\"", "fill_value"));
  return Bytes(dtype.itemsize());
}

std::optional<Bytes> fill_value_from_json(const DType& dtype, std::string_view json, int) {
  return fill_value_from_json(dtype, Json::parse(json, "fill_value"));
}

std::string fill_value_to_json(const DType& dtype, const Bytes& bytes, int zarr_format) {
  if (dtype.variable_length()) return variable_json(dtype, bytes);
  if (bytes.size() != dtype.itemsize()) {
    throw Error(ErrorCode::invalid_argument,
                "fill value of " + std::to_string(bytes.size()) + " bytes, " + dtype.to_string() +
                    " has " + std::to_string(dtype.itemsize()));
  }
  const std::byte* in = bytes.data();
  switch (dtype.kind()) {
    case DType::Kind::boolean:
      return *in != std::byte{0} ? "true" : "false";
    case DType::Kind::signed_integer:
    case DType::Kind::unsigned_integer:
    case DType::Kind::datetime:
    case DType::Kind::timedelta:
      return integer_json(dtype, in);
    case DType::Kind::floating:
    case DType::Kind::ml_floating:
      return float_json(dtype, in, zarr_format);
    case DType::Kind::complex: {
      const DType& part = dtype.itemsize() == 8 ? DType::float32 : DType::float64;
      return "[" + float_json(part, in, zarr_format) + "," +
             float_json(part, in + part.itemsize(), zarr_format) + "]";
    }
    case DType::Kind::fixed_bytes: {
      std::size_t length = bytes.size();
      while (length > 0 && in[length - 1] == std::byte{0}) --length;
      return json_quote(base64_encode({in, length}));
    }
    case DType::Kind::fixed_utf32:
      return utf32_json(dtype, in);
    default:
      return json_quote(base64_encode({in, bytes.size()}));
  }
}

}  // namespace headrace
