// Any bytes as a file of a cache folder. The first byte picks whether the checksum is made to fit,
// so that what lies behind it is looked at too.

#include <libdeflate.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "fuzz_check.h"
#include "store/cache_file.h"

using namespace headrace;
using namespace headrace::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // Of just this size, so that a byte read past the end is seen.
  std::vector<std::byte> file(size - 1);
  if (!file.empty()) std::memcpy(file.data(), data + 1, file.size());
  if ((data[0] & 1) != 0 && file.size() >= kCacheFileHead) {
    store_le(file.data() + 8, libdeflate_crc32(0, file.data() + 12, file.size() - 12));
  }
  const auto parsed = parse_cache_file(file);
  if (!parsed) return 0;
  check(kCacheFileHead + parsed->name.size() + parsed->bytes.size() == file.size());
  // What was accepted, made again, is the same.
  const auto head = cache_file_head(parsed->name, parsed->bytes);
  std::vector<std::byte> again(head.begin(), head.end());
  const ConstBytes name = bytes_of(parsed->name);
  again.insert(again.end(), name.begin(), name.end());
  again.insert(again.end(), parsed->bytes.begin(), parsed->bytes.end());
  check(again == file);
  return 0;
}
