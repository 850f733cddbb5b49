#pragma once

// Flatbuffers that anybody may have written: every access is checked, and what leads out of the
// bytes is `corrupt`. Fields go by their number in the schema.
// https://flatbuffers.dev/internals/

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"

namespace headrace {

class FlatTable;

class FlatVector {
 public:
  FlatVector() = default;
  FlatVector(ConstBytes all, std::size_t at, std::size_t element_nbytes);

  std::size_t size() const { return size_; }
  ConstBytes element(std::size_t i) const { return elements_.subspan(i * nbytes_, nbytes_); }
  // Of a vector of tables, whose elements have 4 bytes.
  FlatTable table(std::size_t i) const;
  ConstBytes bytes() const { return elements_; }

 private:
  ConstBytes all_{};
  ConstBytes elements_{};
  std::size_t first_ = 0;
  std::size_t nbytes_ = 1;
  std::size_t size_ = 0;
};

class FlatTable {
 public:
  static FlatTable root(ConstBytes all);
  FlatTable(ConstBytes all, std::size_t at);

  bool has(unsigned field) const { return position(field) != 0; }
  std::uint8_t u8(unsigned field, std::uint8_t otherwise) const;
  std::uint32_t u32(unsigned field, std::uint32_t otherwise) const;
  std::uint64_t u64(unsigned field, std::uint64_t otherwise) const;
  // `corrupt` where there is none.
  ConstBytes structure(unsigned field, std::size_t nbytes) const;
  FlatTable table(unsigned field) const;
  // Empty where there is none.
  FlatVector vector(unsigned field, std::size_t element_nbytes) const;
  ConstBytes bytes(unsigned field) const { return vector(field, 1).bytes(); }
  std::string_view string(unsigned field) const { return text_of(bytes(field)); }

 private:
  // 0: it is not there.
  std::size_t position(unsigned field) const;

  ConstBytes all_;
  std::size_t at_;
  std::size_t table_at_ = 0;  // of the table of positions
  std::size_t table_nbytes_ = 0;
};

}  // namespace headrace
