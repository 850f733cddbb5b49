#pragma once

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#pragma GCC visibility push(default)
namespace headrace {

struct StructField;

// The type of one element in memory, always in native byte order (the byte order of stored data
// is a matter of the codecs). A small value: copy it freely.
//
// The identity of a type is its Zarr v3 name ("float32", "bfloat16", "numpy.datetime64", ...) and,
// for types with parameters, the unit, length or fields.
class DType {
 public:
  enum class Kind : std::uint8_t {
    boolean,
    signed_integer,    // int2 and int4 take one byte an element in memory
    unsigned_integer,  // uint2 and uint4 likewise
    floating,          // IEEE float16, float32, float64
    ml_floating,       // bfloat16, float8_*, float6_*, float4_*: one or two bytes an element
    complex,
    datetime,
    timedelta,
    fixed_bytes,  // null-terminated byte strings, NumPy "S"
    fixed_utf32,  // NumPy "U", four bytes a character
    raw,          // opaque bytes: r8, r16, ..., NumPy "V"
    structure,    // fields at fixed offsets
    // Variable length. An element in memory is a VlenElement, which points at its bytes.
    string,  // UTF-8
    bytes,   // opaque
    object,  // any JSON value, as its text: v2's "json2" and "msgpack2"
    array,   // items of a fixed-size type, one after another: v2's "vlen-array"
  };

  constexpr DType() = default;

  static const DType boolean;
  static const DType int8, int16, int32, int64;
  static const DType uint8, uint16, uint32, uint64;
  static const DType float16, float32, float64, bfloat16;
  static const DType complex64, complex128;

  // A type without parameters by its Zarr v3 name; `invalid_argument` when there is none.
  static DType from_name(std::string_view name);

  // NumPy unit names: "ns", "D", "generic", ...; `scale` counts units a tick, as in "25s".
  static DType datetime(std::string unit, std::int32_t scale = 1);
  static DType timedelta(std::string unit, std::int32_t scale = 1);
  static DType fixed_bytes(std::size_t nbytes);
  static DType fixed_utf32(std::size_t length);
  static DType raw(std::size_t nbytes);
  static DType structure(std::vector<StructField> fields, std::size_t itemsize);
  static DType string();
  static DType bytes();
  static DType object();
  static DType array(const DType& item);  // native byte order

  Kind kind() const { return kind_; }
  // Bytes an element takes in memory: of a VlenElement for variable length.
  std::size_t itemsize() const { return itemsize_; }
  bool variable_length() const { return kind_ >= Kind::string; }

  // The unit that byte swapping works on: a complex64 is two units of 4 bytes. 1 when nothing is
  // to be swapped (structures are delivered as stored, with the byte order in their fields).
  std::size_t swap_size() const;

  // The Zarr v3 name without parameters.
  std::string name() const { return name_; }
  // For messages and equality: the name with its parameters, "numpy.datetime64[25s]".
  std::string to_string() const;
  // NumPy's array-interface type string, "<f4", "<M8[ns]", "|V8"; empty for variable length. The
  // ml_floating types and 2- and 4-bit integers give "|V1" or "|V2": ml_dtypes knows their names.
  std::string numpy_str() const;
  // DType of a NumPy type string in native order ("<f4" on a little-endian machine, "|b1", "=i2").
  static DType from_numpy_str(std::string_view str);

  const std::string& unit() const;                 // datetime, timedelta
  std::int32_t unit_scale() const;                 // datetime, timedelta
  const std::vector<StructField>& fields() const;  // structure
  const DType& item() const;                       // array

  friend bool operator==(const DType& a, const DType& b);
  friend bool operator!=(const DType& a, const DType& b) { return !(a == b); }

 private:
  struct [[gnu::visibility("hidden")]] Parameters;
  constexpr DType(Kind kind, std::uint32_t itemsize, const char* name)
      : kind_(kind), itemsize_(itemsize), name_(name) {}

  Kind kind_ = Kind::raw;
  std::uint32_t itemsize_ = 0;
  const char* name_ = "raw";  // points at a literal
  std::shared_ptr<const Parameters> parameters_;
};

// The types of C++ that hold an element as it lies in memory: bool, integers by their size and
// sign, float and double, and std::complex of these two. Characters are none.
template <typename T>
concept NativeElement =
    std::same_as<T, bool> || std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, std::complex<float>> || std::same_as<T, std::complex<double>> ||
    std::same_as<T, signed char> || std::same_as<T, unsigned char> || std::same_as<T, short> ||
    std::same_as<T, unsigned short> || std::same_as<T, int> || std::same_as<T, unsigned int> ||
    std::same_as<T, long> || std::same_as<T, unsigned long> || std::same_as<T, long long> ||
    std::same_as<T, unsigned long long>;

// The type of these elements: dtype_of<float>() is DType::float32.
template <NativeElement T>
const DType& dtype_of() {
  if constexpr (std::same_as<T, bool>) {
    return DType::boolean;
  } else if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? DType::float32 : DType::float64;
  } else if constexpr (!std::is_integral_v<T>) {
    return sizeof(T) == 8 ? DType::complex64 : DType::complex128;
  } else if constexpr (sizeof(T) == 1) {
    return std::is_signed_v<T> ? DType::int8 : DType::uint8;
  } else if constexpr (sizeof(T) == 2) {
    return std::is_signed_v<T> ? DType::int16 : DType::uint16;
  } else if constexpr (sizeof(T) == 4) {
    return std::is_signed_v<T> ? DType::int32 : DType::uint32;
  } else {
    static_assert(sizeof(T) == 8);
    return std::is_signed_v<T> ? DType::int64 : DType::uint64;
  }
}

// An element of a variable-length type in memory. A tensor that was read owns what its elements
// point at; the caller keeps the bytes of elements that it writes until the write is done.
struct VlenElement {
  const std::byte* data = nullptr;
  std::size_t nbytes = 0;

  std::string_view text() const { return {reinterpret_cast<const char*>(data), nbytes}; }
};

struct StructField {
  std::string name;
  DType dtype;
  std::size_t offset_bytes = 0;
  bool big_endian = false;          // as stored: structures are not swapped
  std::vector<std::int64_t> shape;  // of a sub-array field; empty for a scalar
};

}  // namespace headrace
#pragma GCC visibility pop
