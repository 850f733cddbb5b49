#include "codec/elements.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "headrace/error.h"

namespace headrace {
namespace {

bool valid_size(ElementType::Kind kind, std::size_t size) {
  using Kind = ElementType::Kind;
  if (kind == Kind::boolean) return size == 1;
  if (kind == Kind::floating) return size == 2 || size == 4 || size == 8;
  return size == 1 || size == 2 || size == 4 || size == 8;
}

// C++ leaves the conversion of a float out of range undefined; this gives what x86 gives NumPy.
template <typename To>
To float_to_integer(double v) {
  if constexpr (std::is_same_v<To, std::uint64_t>) {
    if (v >= 0x1p63 && v < 0x1p64) return static_cast<To>(v);
  }
  using Wide = std::conditional_t<(sizeof(To) < 4 || std::is_same_v<To, std::int32_t>),
                                  std::int32_t,
                                  std::int64_t>;
  constexpr double kLimit = sizeof(Wide) == 4 ? 0x1p31 : 0x1p63;
  const bool fits = v > -kLimit - (sizeof(Wide) == 4 ? 1 : 0) && v < kLimit;
  return static_cast<To>(fits ? static_cast<Wide>(v) : std::numeric_limits<Wide>::min());
}

template <typename To, typename From>
To cast(From v) {
  if constexpr (std::is_same_v<To, From>) {
    return v;
  } else if constexpr (std::is_same_v<From, Bool>) {
    return cast<To>(static_cast<std::uint8_t>(v.byte != 0));
  } else if constexpr (std::is_same_v<From, Half>) {
    return cast<To>(static_cast<float>(v));
  } else if constexpr (std::is_same_v<To, Bool>) {
    return Bool{static_cast<std::uint8_t>(v != 0)};
  } else if constexpr (std::is_same_v<To, Half>) {
    return Half(static_cast<double>(v));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return float_to_integer<To>(v);
  } else {
    return static_cast<To>(v);
  }
}

}  // namespace

std::optional<ElementType> ElementType::parse(std::string_view numpy) {
  if (numpy.empty()) return std::nullopt;
  ElementType type;
  const char order = numpy.front();
  const bool has_order = order == '<' || order == '>' || order == '|' || order == '=';
  std::string_view rest = numpy.substr(has_order ? 1 : 0);
  if (rest.size() < 2) return std::nullopt;
  const char kind = rest.front();
  rest.remove_prefix(1);
  const auto unit = rest.find('[');
  const bool time = kind == 'M' || kind == 'm';
  const std::string_view digits = time ? rest.substr(0, unit) : rest;
  if (digits.size() != 1 || digits[0] < '1' || digits[0] > '8') {
    // "float32", "bool": a name of v3 that is one of NumPy too.
    if (has_order) return std::nullopt;
    try {
      return of(DType::from_name(numpy));
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  type.size = static_cast<std::size_t>(digits[0] - '0');
  switch (kind) {
    case 'b':
      type.kind = Kind::boolean;
      break;
    case 'i':
      type.kind = Kind::integer;
      break;
    case 'u':
      type.kind = Kind::natural;
      break;
    case 'f':
      type.kind = Kind::floating;
      break;
    case 'M':
    case 'm':
      type.kind = Kind::integer;
      if (type.size != 8) return std::nullopt;
      break;
    default:
      return std::nullopt;
  }
  if (!valid_size(type.kind, type.size)) return std::nullopt;
  const bool little = std::endian::native == std::endian::little;
  type.swapped = type.size > 1 && ((order == '<' && !little) || (order == '>' && little));
  return type;
}

std::optional<ElementType> ElementType::of(const DType& dtype) {
  ElementType type;
  type.size = dtype.itemsize();
  switch (dtype.kind()) {
    case DType::Kind::boolean:
      type.kind = Kind::boolean;
      break;
    case DType::Kind::signed_integer:
    case DType::Kind::datetime:
    case DType::Kind::timedelta:
      type.kind = Kind::integer;
      break;
    case DType::Kind::unsigned_integer:
      type.kind = Kind::natural;
      break;
    case DType::Kind::floating:
      type.kind = Kind::floating;
      break;
    default:
      return std::nullopt;
  }
  if (!valid_size(type.kind, type.size)) return std::nullopt;
  return type;
}

DType ElementType::dtype() const {
  if (kind == Kind::boolean) return DType::boolean;
  const char* prefix = kind == Kind::integer ? "int" : kind == Kind::natural ? "uint" : "float";
  return DType::from_name(prefix + std::to_string(8 * size));
}

Half::Half(double v) {
  const auto bits = std::bit_cast<std::uint64_t>(v);
  const auto sign = static_cast<std::uint16_t>(bits >> 48 & 0x8000);
  std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  constexpr std::uint64_t kInfinity = std::uint64_t{0x7FF} << 52;
  std::uint64_t half = 0;
  if (magnitude >= kInfinity) {
    half = 0x7C00 | (magnitude > kInfinity ? 0x0200 | (magnitude >> 42 & 0x03FF) : 0);
  } else if (magnitude >= std::bit_cast<std::uint64_t>(65520.0)) {
    half = 0x7C00;
  } else if (magnitude < std::bit_cast<std::uint64_t>(0x1p-14)) {
    half = static_cast<std::uint64_t>(std::nearbyint(std::bit_cast<double>(magnitude) * 0x1p24));
  } else {
    magnitude += (std::uint64_t{1} << 41) - 1 + (magnitude >> 42 & 1);
    half = (magnitude >> 42) - (std::uint64_t{1023 - 15} << 10);
  }
  bits_ = static_cast<std::uint16_t>(sign | half);
}

Half::operator float() const {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits_ & 0x8000) << 16;
  const std::uint32_t exponent = bits_ >> 10 & 0x1F;
  const std::uint32_t mantissa = bits_ & 0x03FF;
  if (exponent == 0) {
    const float v = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -v : v;
  }
  const std::uint32_t biased = exponent == 31 ? 0xFF : exponent + (127 - 15);
  return std::bit_cast<float>(sign | biased << 23 | mantissa << 13);
}

void cast_elements(const ElementType& from,
                   const std::byte* src,
                   const ElementType& to,
                   std::byte* dst,
                   std::size_t n) {
  if (from.kind == to.kind && from.size == to.size) {
    if (n > 0 && dst != src) std::memmove(dst, src, n * from.size);
    return;
  }
  visit_element(from, [&](auto from_type) {
    using From = decltype(from_type);
    visit_element(to, [&](auto to_type) {
      using To = decltype(to_type);
      for (std::size_t i = 0; i < n; ++i) {
        store_element(dst + i * sizeof(To), cast<To>(load_element<From>(src + i * sizeof(From))));
      }
    });
  });
}

}  // namespace headrace
