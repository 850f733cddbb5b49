#pragma once

// Headers and trailers of zlib (RFC 1950) and gzip (RFC 1952), by one thread.

#include "kernels/checksum/crc.h"
#include "kernels/deflate/block.h"
#include "kernels/deflate/stream.h"

namespace headrace::SIMT_SPACE::deflate {

// Bytes from a bit position that is a multiple of 8. Zeros follow the last.
class ByteReader {
 public:
  SIMT_DEVICE ByteReader(const BitSource& source, u64 bit) : source_(source), bit_(bit) {}

  SIMT_DEVICE u64 bit() const { return bit_; }
  SIMT_DEVICE bool truncated() const { return bit_ > source_.end; }
  SIMT_DEVICE u32 crc() const { return ~crc_; }

  SIMT_DEVICE u32 next() {
    const u32 byte = bit_ < source_.end ? source_.byte(bit_) : 0;
    bit_ += 8;
    crc_ ^= byte;
    for (int i = 0; i < 8; ++i) crc_ = crc_ >> 1 ^ (kCrc32 & (0 - (crc_ & 1)));
    return byte;
  }
  SIMT_DEVICE u32 next_little(unsigned nbytes) {
    u32 value = 0;
    for (unsigned i = 0; i < nbytes; ++i) value |= next() << 8 * i;
    return value;
  }
  SIMT_DEVICE u32 next_big32() {
    u32 value = 0;
    for (unsigned i = 0; i < 4; ++i) value = value << 8 | next();
    return value;
  }
  SIMT_DEVICE void skip(u32 nbytes) {
    for (u32 i = 0; i < nbytes && !truncated(); ++i) next();
  }
  SIMT_DEVICE void skip_text() {
    while (!truncated() && next() != 0) {
    }
  }

 private:
  const BitSource& source_;
  u64 bit_;
  u32 crc_ = ~u32{0};
};

SIMT_DEVICE Fault read_zlib_header(ByteReader& bytes) {
  const u32 method = bytes.next(), flags = bytes.next();
  if (bytes.truncated()) return Fault::truncated;
  constexpr u32 kDeflate = 8, kMaxWindow = 7, kDictionary = 0x20;
  if ((method & 15) != kDeflate || method >> 4 > kMaxWindow || (method << 8 | flags) % 31 != 0)
    return Fault::malformed;
  return flags & kDictionary ? Fault::unsupported : Fault::none;
}

SIMT_DEVICE Fault read_gzip_header(ByteReader& bytes) {
  constexpr u32 kMagic = 0x8b1f, kDeflate = 8;
  constexpr u32 kHeaderCrc = 2, kExtra = 4, kName = 8, kComment = 16, kReserved = 0xe0;
  const u32 magic = bytes.next_little(2);
  if (magic != kMagic && !bytes.truncated()) return Fault::malformed;
  const u32 method = bytes.next(), flags = bytes.next();
  if (bytes.truncated()) return Fault::truncated;
  if (method != kDeflate || flags & kReserved) return Fault::malformed;
  bytes.skip(6);  // time, level, system
  if (flags & kExtra) bytes.skip(bytes.next_little(2));
  if (flags & kName) bytes.skip_text();
  if (flags & kComment) bytes.skip_text();
  const u32 crc = bytes.crc() & 0xffff;
  if (flags & kHeaderCrc && bytes.next_little(2) != crc) return Fault::checksum;
  return bytes.truncated() ? Fault::truncated : Fault::none;
}

SIMT_DEVICE Fault read_header(Container container, ByteReader& bytes) {
  return container == Container::gzip ? read_gzip_header(bytes) : read_zlib_header(bytes);
}

SIMT_DEVICE Fault read_trailer(Container container,
                               ByteReader& bytes,
                               u32 member_nbytes,
                               u32& checksum) {
  const bool gzip = container == Container::gzip;
  checksum = gzip ? bytes.next_little(4) : bytes.next_big32();
  const bool right_size = !gzip || bytes.next_little(4) == member_nbytes;
  if (bytes.truncated()) return Fault::truncated;
  return right_size ? Fault::none : Fault::wrong_size;
}

}  // namespace headrace::SIMT_SPACE::deflate
