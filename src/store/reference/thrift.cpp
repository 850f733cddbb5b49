#include "store/reference/thrift.h"

#include <string>

#include "headrace/error.h"

namespace headrace {
namespace {

constexpr int kMaxDepth = 32;

[[noreturn]] void fail(const char* why) {
  throw Error(ErrorCode::corrupt, std::string("a header of Parquet ") + why);
}

}  // namespace

void ThriftReader::enter() {
  if (++depth_ > kMaxDepth) fail("is nested too deep");
}

std::uint8_t ThriftReader::byte() {
  if (at_ >= bytes_.size()) fail("ends too early");
  return std::to_integer<std::uint8_t>(bytes_[at_++]);
}

std::uint64_t ThriftReader::varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const std::uint8_t next = byte();
    value |= std::uint64_t{next & 0x7FU} << shift;
    if (next < 0x80) return value;
  }
  fail("has a number of more than 64 bits");
}

std::int64_t ThriftReader::number() {
  const std::uint64_t value = varint();
  return static_cast<std::int64_t>(value >> 1 ^ (~(value & 1) + 1));
}

ThriftType ThriftReader::field(std::int32_t& number_of_field) {
  const std::uint8_t head = byte();
  const auto type = static_cast<ThriftType>(head & 15);
  if (type == ThriftType::stop) return type;
  if (type > ThriftType::structure) fail("has a field of no known type");
  if (head >> 4 != 0) {
    number_of_field += head >> 4;
  } else {
    const std::int64_t next = number();
    if (next < 0 || next > INT16_MAX) fail("has a field of no good number");
    number_of_field = static_cast<std::int32_t>(next);
  }
  return type;
}

std::uint32_t ThriftReader::list(ThriftType wanted) {
  const std::uint8_t head = byte();
  std::uint64_t size = head >> 4;
  if (size == 15) size = varint();
  // Each element has a byte at least.
  if (size > bytes_.size() - at_) fail("has a list that is too long");
  if (size > 0 && static_cast<ThriftType>(head & 15) != wanted) fail("has a list of another type");
  return static_cast<std::uint32_t>(size);
}

std::string_view ThriftReader::binary() {
  const std::uint64_t size = varint();
  if (size > bytes_.size() - at_) fail("ends too early");
  const ConstBytes found = bytes_.subspan(at_, static_cast<std::size_t>(size));
  at_ += found.size();
  return text_of(found);
}

void ThriftReader::skip(ThriftType type) {
  switch (type) {
    case ThriftType::stop:
    case ThriftType::yes:
    case ThriftType::no:
      return;
    case ThriftType::byte:
      byte();
      return;
    case ThriftType::i16:
    case ThriftType::i32:
    case ThriftType::i64:
      varint();
      return;
    case ThriftType::real:
      for (int i = 0; i < 8; ++i) byte();
      return;
    case ThriftType::binary:
      binary();
      return;
    case ThriftType::list:
    case ThriftType::set: {
      enter();
      const std::uint8_t head = byte();
      const auto element = static_cast<ThriftType>(head & 15);
      std::uint64_t size = head >> 4;
      if (size == 15) size = varint();
      if (size > bytes_.size() - at_) fail("has a list that is too long");
      if (element == ThriftType::stop && size > 0) fail("has a list of nothing");
      for (std::uint64_t i = 0; i < size; ++i) {
        // Elements, unlike fields, have a byte for what is true or false.
        skip(element == ThriftType::yes || element == ThriftType::no ? ThriftType::byte : element);
      }
      --depth_;
      return;
    }
    case ThriftType::map:
      break;
    case ThriftType::structure:
      structure([](std::int32_t, ThriftType) { return false; });
      return;
  }
  fail("has a map, or what is of no known type");
}

}  // namespace headrace
