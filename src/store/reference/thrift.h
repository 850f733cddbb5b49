#pragma once

// Thrift's compact protocol, in which Parquet has its headers.
// https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"

namespace headrace {

enum class ThriftType : std::uint8_t {
  stop = 0,
  yes = 1,
  no = 2,
  byte = 3,
  i16 = 4,
  i32 = 5,
  i64 = 6,
  real = 7,
  binary = 8,
  list = 9,
  set = 10,
  map = 11,
  structure = 12,
};

// Every step is checked; `corrupt` for what ends too early or is nested too deep.
class ThriftReader {
 public:
  explicit ThriftReader(ConstBytes bytes) : bytes_(bytes) {}

  std::size_t position() const { return at_; }

  // For each field of a structure: on_field(number, type), which takes its value and returns true,
  // or leaves it and returns false.
  template <typename F>
  void structure(F&& on_field) {
    enter();
    std::int32_t number = 0;
    for (;;) {
      const ThriftType type = field(number);
      if (type == ThriftType::stop) break;
      if (!on_field(number, type)) skip(type);
    }
    --depth_;
  }
  // The number of elements; takes what stands before them.
  std::uint32_t list(ThriftType wanted);
  std::int64_t number();
  std::string_view binary();
  void skip(ThriftType type);

 private:
  void enter();
  std::uint8_t byte();
  std::uint64_t varint();
  ThriftType field(std::int32_t& number);

  ConstBytes bytes_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace headrace
