#include "store/cache_file.h"

#include <libdeflate.h>

#include <cstdint>
#include <cstring>
#include <span>

namespace headrace {
namespace {

constexpr std::string_view kMagic = "hrcache1";
constexpr std::size_t kCrcAt = 8, kNameSizeAt = 12;

std::uint32_t crc_of(std::uint32_t before, ConstBytes bytes) {
  return libdeflate_crc32(before, bytes.data(), bytes.size());
}

}  // namespace

std::array<std::byte, kCacheFileHead> cache_file_head(std::string_view name, ConstBytes bytes) {
  std::array<std::byte, kCacheFileHead> head;
  std::memcpy(head.data(), kMagic.data(), kMagic.size());
  store_le(head.data() + kNameSizeAt, static_cast<std::uint32_t>(name.size()));
  std::uint32_t crc = crc_of(0, std::span(head).subspan(kNameSizeAt));
  crc = crc_of(crc_of(crc, std::as_bytes(std::span(name))), bytes);
  store_le(head.data() + kCrcAt, crc);
  return head;
}

std::optional<CacheFile> parse_cache_file(ConstBytes file) {
  if (file.size() < kCacheFileHead) return std::nullopt;
  if (std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) return std::nullopt;
  const ConstBytes checked = file.subspan(kNameSizeAt);
  if (load_le<std::uint32_t>(file.data() + kCrcAt) != crc_of(0, checked)) return std::nullopt;
  // The checksum is no proof: anybody can make it.
  const std::size_t name_size = load_le<std::uint32_t>(file.data() + kNameSizeAt);
  const ConstBytes rest = file.subspan(kCacheFileHead);
  if (name_size > rest.size()) return std::nullopt;
  return CacheFile{text_of(rest.first(name_size)), rest.subspan(name_size)};
}

}  // namespace headrace
