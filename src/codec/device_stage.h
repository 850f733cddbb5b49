#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "codec/elements.h"

namespace headrace {

// What a compressor says beyond how its bytes are decoded, for kernels that encode.
struct DeviceEncoding {
  std::size_t max_nbytes = std::numeric_limits<std::uint32_t>::max();  // of one chunk
  // The level asks for smaller chunks than kernels make: the host encodes unless it is told not to.
  bool thorough = false;
  bool checksum = false;  // of zstd
  // Of blosc; the type's size is the stage's `itemsize`.
  bool zstd_inside = false;  // else lz4
  int clevel = 0;
  int shuffle = 0;  // 0: none, 1: bytes, 2: bits
  std::size_t blocksize = 0;
};

// What decoding a codec means on a device: which kernel, with which parameters. The engine runs
// them (engine/device/stages.h); a kernel that a device lacks sends the chunk to the host.
struct DeviceStage {
  enum class Kind : std::uint8_t {
    zstd,
    lz4,  // numcodecs: the decoded size in 4 bytes, then one block
    gzip,
    zlib,
    blosc,
    unshuffle,
    bit_unshuffle,
    swap,       // the bytes of each unit of `itemsize`
    transpose,  // of the whole chunk
    delta,      // numbers: from `encoded` to `decoded`
    fixed_scale_offset,
    cast,
    packbits,
    ragged,  // what the bytes give are elements of variable length
    crc32c,  // checksums: 4 bytes before or behind
    crc32,
    adler32,
    fletcher32,
    none,  // decoding changes nothing
  };

  Kind kind{};
  std::uint32_t itemsize = 1;
  std::size_t block_elements = 0;            // bit_unshuffle: each so many elements by themselves
  std::vector<std::size_t> order{};          // transpose: as in metadata
  bool at_start = false;                     // a checksum: before what it is of
  ElementType encoded{}, decoded{};          // of numbers
  double scale = 1, offset = 0;              // fixed_scale_offset
  bool utf8 = false;                         // ragged: text; `itemsize`: of the items of arrays
  std::optional<DeviceEncoding> encoding{};  // of compressors that kernels encode
};

// What stands before the block of lz4 and kernels neither take nor give.
inline constexpr std::size_t kLz4SizeNbytes = 4;

// True for what gives bytes whose number the encoded ones do not tell.
constexpr bool is_compressor(DeviceStage::Kind kind) { return kind <= DeviceStage::Kind::blosc; }

constexpr bool is_checksum(DeviceStage::Kind kind) {
  return kind >= DeviceStage::Kind::crc32c && kind <= DeviceStage::Kind::fletcher32;
}

}  // namespace headrace
