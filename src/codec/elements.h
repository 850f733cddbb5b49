#pragma once

// Element types as numcodecs' filters name them, and casts between them as NumPy does them.

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "headrace/dtype.h"

namespace headrace {

struct ElementType {
  enum class Kind : std::uint8_t { boolean, integer, natural, floating };

  Kind kind = Kind::natural;
  std::size_t size = 1;
  bool swapped = false;  // stored in the other byte order

  // NumPy's type strings ("<f4", "|u1", "float32", "<M8[ns]", which counts as "<i8"); nothing for
  // types that are no plain numbers.
  static std::optional<ElementType> parse(std::string_view numpy);
  static std::optional<ElementType> of(const DType& dtype);

  bool is_floating() const { return kind == Kind::floating; }
  ElementType native() const { return {kind, size, false}; }
  DType dtype() const;
  friend bool operator==(const ElementType&, const ElementType&) = default;
};

// IEEE binary16 as NumPy computes with it: in float, rounded after each operation.
class Half {
 public:
  Half() = default;
  explicit Half(double v);
  operator float() const;

 private:
  std::uint16_t bits_ = 0;
};

// One byte, true when not zero.
struct Bool {
  std::uint8_t byte = 0;
};

// Calls f(T()) with the C++ type of a native element.
template <typename F>
decltype(auto) visit_element(const ElementType& type, F&& f) {
  using Kind = ElementType::Kind;
  switch (type.kind) {
    case Kind::boolean:
      return f(Bool());
    case Kind::integer:
      switch (type.size) {
        case 1:
          return f(std::int8_t());
        case 2:
          return f(std::int16_t());
        case 4:
          return f(std::int32_t());
        default:
          return f(std::int64_t());
      }
    case Kind::natural:
      switch (type.size) {
        case 1:
          return f(std::uint8_t());
        case 2:
          return f(std::uint16_t());
        case 4:
          return f(std::uint32_t());
        default:
          return f(std::uint64_t());
      }
    case Kind::floating:
      break;
  }
  switch (type.size) {
    case 2:
      return f(Half());
    case 4:
      return f(float());
    default:
      return f(double());
  }
}

template <typename F>
decltype(auto) visit_floating(const ElementType& type, F&& f) {
  switch (type.size) {
    case 2:
      return f(Half());
    case 4:
      return f(float());
    default:
      return f(double());
  }
}

template <typename T>
T load_element(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <typename T>
void store_element(std::byte* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

// n native elements of one type to native elements of another. dst may be src for equal types.
void cast_elements(const ElementType& from,
                   const std::byte* src,
                   const ElementType& to,
                   std::byte* dst,
                   std::size_t n);

}  // namespace headrace
