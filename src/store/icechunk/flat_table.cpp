#include "store/icechunk/flat_table.h"

#include <string>

#include "headrace/error.h"

namespace headrace {
namespace {

[[noreturn]] void throw_outside() {
  throw Error(ErrorCode::corrupt, "a flatbuffer leads out of its bytes");
}

template <typename T>
T load(ConstBytes all, std::size_t at) {
  if (at > all.size() || sizeof(T) > all.size() - at) throw_outside();
  return load_le<T>(all.data() + at);
}

// Where the offset that stands there leads to.
std::size_t follow(ConstBytes all, std::size_t at) {
  return at + load<std::uint32_t>(all, at);  // at most 2^32 behind the end
}

}  // namespace

FlatVector::FlatVector(ConstBytes all, std::size_t at, std::size_t element_nbytes)
    : all_(all), first_(at + 4), nbytes_(element_nbytes), size_(load<std::uint32_t>(all, at)) {
  if (size_ > (all.size() - first_) / nbytes_) throw_outside();
  elements_ = all.subspan(first_, size_ * nbytes_);
}

FlatTable FlatVector::table(std::size_t i) const {
  return FlatTable(all_, follow(all_, first_ + 4 * i));
}

FlatTable FlatTable::root(ConstBytes all) { return FlatTable(all, follow(all, 0)); }

FlatTable::FlatTable(ConstBytes all, std::size_t at) : all_(all), at_(at) {
  const auto back = static_cast<std::int32_t>(load<std::uint32_t>(all, at));
  const auto table_at = static_cast<std::int64_t>(at) - back;
  if (table_at < 0) throw_outside();
  table_at_ = static_cast<std::size_t>(table_at);
  table_nbytes_ = load<std::uint16_t>(all, table_at_);
  if (table_nbytes_ < 4 || table_nbytes_ > all.size() - table_at_) throw_outside();
}

std::size_t FlatTable::position(unsigned field) const {
  const std::size_t slot = 4 + 2 * std::size_t{field};
  if (slot + 2 > table_nbytes_) return 0;
  const auto offset = load<std::uint16_t>(all_, table_at_ + slot);
  return offset == 0 ? 0 : at_ + offset;
}

std::uint8_t FlatTable::u8(unsigned field, std::uint8_t otherwise) const {
  const std::size_t at = position(field);
  return at == 0 ? otherwise : load<std::uint8_t>(all_, at);
}

std::uint32_t FlatTable::u32(unsigned field, std::uint32_t otherwise) const {
  const std::size_t at = position(field);
  return at == 0 ? otherwise : load<std::uint32_t>(all_, at);
}

std::uint64_t FlatTable::u64(unsigned field, std::uint64_t otherwise) const {
  const std::size_t at = position(field);
  return at == 0 ? otherwise : load<std::uint64_t>(all_, at);
}

ConstBytes FlatTable::structure(unsigned field, std::size_t nbytes) const {
  const std::size_t at = position(field);
  if (at == 0) {
    throw Error(ErrorCode::corrupt, "a flatbuffer lacks field " + std::to_string(field));
  }
  if (at > all_.size() || nbytes > all_.size() - at) throw_outside();
  return all_.subspan(at, nbytes);
}

FlatTable FlatTable::table(unsigned field) const {
  const std::size_t at = position(field);
  if (at == 0) {
    throw Error(ErrorCode::corrupt, "a flatbuffer lacks table " + std::to_string(field));
  }
  return FlatTable(all_, follow(all_, at));
}

FlatVector FlatTable::vector(unsigned field, std::size_t element_nbytes) const {
  const std::size_t at = position(field);
  return at == 0 ? FlatVector() : FlatVector(all_, follow(all_, at), element_nbytes);
}

}  // namespace headrace
