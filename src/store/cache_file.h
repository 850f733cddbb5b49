#pragma once

// One file of a cache folder: bytes and the name that they are kept by.
//
//   "hrcache1"  u32 CRC-32 of what follows  u32 size of the name  name  bytes       (little-endian)

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "base/bytes.h"

namespace headrace {

inline constexpr std::size_t kCacheFileHead = 16;

// What stands before the name.
std::array<std::byte, kCacheFileHead> cache_file_head(std::string_view name, ConstBytes bytes);

struct CacheFile {
  std::string_view name;
  ConstBytes bytes;
};

// Nothing when the file is damaged, or none of ours. Both are parts of `file`.
std::optional<CacheFile> parse_cache_file(ConstBytes file);

}  // namespace headrace
