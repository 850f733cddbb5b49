#include "format/numpy_str.h"

#include <array>
#include <charconv>

#include "base/checked.h"

namespace headrace {
namespace {

constexpr std::array<std::string_view, 14> kTimeUnits = {
    "Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic"};

[[noreturn]] void reject(std::string_view text, const char* why) {
  throw Error(ErrorCode::invalid_argument,
              "NumPy type string \"" + std::string(text.substr(0, 80)) + "\": " + why);
}

DType parse_time(std::string_view text, char letter, std::string_view rest) {
  if (rest.substr(0, 1) != "8") reject(text, "times have 8 bytes");
  rest.remove_prefix(1);
  std::string_view unit = "generic";
  std::int32_t scale = 1;
  if (!rest.empty()) {
    if (rest.size() < 3 || rest.front() != '[' || rest.back() != ']') {
      reject(text, "expected a time unit in brackets");
    }
    unit = rest.substr(1, rest.size() - 2);
    if (unit.front() >= '0' && unit.front() <= '9') {
      const auto [end, error] = std::from_chars(unit.data(), unit.data() + unit.size(), scale);
      if (error != std::errc{} || scale < 1) reject(text, "bad scale of the time unit");
      unit.remove_prefix(static_cast<std::size_t>(end - unit.data()));
    }
  }
  if (canonical_time_unit(unit).empty()) reject(text, "no such time unit");
  return letter == 'M' ? DType::datetime(std::string(unit), scale)
                       : DType::timedelta(std::string(unit), scale);
}

DType numeric(std::string_view text, char letter, std::size_t size) {
  static const struct {
    char letter;
    std::size_t size;
    const DType& dtype;
  } kTypes[] = {{'b', 1, DType::boolean},
                {'i', 1, DType::int8},
                {'i', 2, DType::int16},
                {'i', 4, DType::int32},
                {'i', 8, DType::int64},
                {'u', 1, DType::uint8},
                {'u', 2, DType::uint16},
                {'u', 4, DType::uint32},
                {'u', 8, DType::uint64},
                {'f', 2, DType::float16},
                {'f', 4, DType::float32},
                {'f', 8, DType::float64},
                {'c', 8, DType::complex64},
                {'c', 16, DType::complex128}};
  for (const auto& type : kTypes) {
    if (type.letter == letter && type.size == size) return type.dtype;
  }
  const std::size_t unit = letter == 'c' ? size / 2 : size;
  if ((letter == 'f' || letter == 'c') && (unit == 10 || unit == 12 || unit == 16)) {
    throw Error(ErrorCode::unsupported,
                "NumPy type string \"" + std::string(text) + "\": Zarr has no long double");
  }
  reject(text, "no such type");
}

}  // namespace

std::string canonical_time_unit(std::string_view unit) {
  if (unit == "\xce\xbcs" || unit == "\xc2\xb5s") return "us";  // Greek mu, micro sign
  for (std::string_view known : kTimeUnits) {
    if (unit == known) return std::string(unit);
  }
  return "";
}

NumpyType parse_numpy_str(std::string_view text) {
  std::string_view rest = text;
  char mark = '=';
  if (!rest.empty() && std::string_view("<>|=").find(rest.front()) != std::string_view::npos) {
    mark = rest.front();
    rest.remove_prefix(1);
  }
  if (rest.empty()) reject(text, "too short");
  const char letter = rest.front();
  rest.remove_prefix(1);
  if (letter == 'O') {
    throw Error(ErrorCode::unsupported,
                "NumPy type string \"" + std::string(text.substr(0, 80)) +
                    "\": objects have a meaning only with a codec for them");
  }

  NumpyType type;
  if (letter == 'M' || letter == 'm') {
    type.dtype = parse_time(text, letter, rest);
  } else {
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), size);
    if (error != std::errc{} || end != rest.data() + rest.size()) {
      reject(text, "expected a letter and a size");
    }
    if (size == 0 && (letter == 'S' || letter == 'U' || letter == 'V')) {
      throw Error(ErrorCode::unsupported,
                  "NumPy type string \"" + std::string(text) + "\": items of no bytes");
    }
    switch (letter) {
      case 'S':
        type.dtype = DType::fixed_bytes(size);
        break;
      case 'U':
        type.dtype = DType::fixed_utf32(size);
        break;
      case 'V':
        type.dtype = DType::raw(size);
        break;
      case 'b':
      case 'i':
      case 'u':
      case 'f':
      case 'c':
        type.dtype = numeric(text, letter, size);
        break;
      default:
        reject(text, "no such type");
    }
  }
  if (type.dtype.swap_size() == 1) return type;
  if (mark == '|') reject(text, "expected a byte order, '<' or '>'");
  type.order = mark == '<' ? ByteOrder::little : mark == '>' ? ByteOrder::big : native_order();
  return type;
}

std::string to_numpy_str(const DType& dtype, ByteOrder order) {
  const std::string mark = dtype.swap_size() == 1 ? "|" : order == ByteOrder::big ? ">" : "<";
  const std::string size = std::to_string(dtype.itemsize());
  switch (dtype.kind()) {
    case DType::Kind::boolean:
      return "|b1";
    case DType::Kind::signed_integer:
      return mark + "i" + size;
    case DType::Kind::unsigned_integer:
      return mark + "u" + size;
    case DType::Kind::floating:
      return mark + "f" + size;
    case DType::Kind::complex:
      return mark + "c" + size;
    case DType::Kind::datetime:
    case DType::Kind::timedelta: {
      std::string text = mark + (dtype.kind() == DType::Kind::datetime ? "M8" : "m8");
      if (dtype.unit() == "generic") return text;
      const std::string scale = dtype.unit_scale() == 1 ? "" : std::to_string(dtype.unit_scale());
      return text + "[" + scale + dtype.unit() + "]";
    }
    case DType::Kind::fixed_bytes:
      return "|S" + size;
    case DType::Kind::fixed_utf32:
      return mark + "U" + std::to_string(dtype.itemsize() / 4);
    case DType::Kind::raw:
    case DType::Kind::structure:
      return "|V" + size;
    case DType::Kind::ml_floating:
    case DType::Kind::string:
    case DType::Kind::bytes:
    case DType::Kind::object:
    case DType::Kind::array:
      break;
  }
  throw Error(ErrorCode::invalid_argument, "NumPy has no type string for " + dtype.to_string());
}

}  // namespace headrace
