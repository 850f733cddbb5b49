#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstddef>

namespace headrace {

std::uint32_t crc32c(ConstBytes bytes) { return crc32c_after(0, bytes); }

std::uint32_t crc32c_after(std::uint32_t before, ConstBytes bytes) {
  constexpr std::size_t kMaxStep = std::size_t{1} << 30;  // ISA-L counts with an int
  std::uint32_t crc = ~before;
  while (!bytes.empty()) {
    const ConstBytes step = bytes.first(std::min(bytes.size(), kMaxStep));
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(step.data()));
    crc = crc32_iscsi(data, static_cast<int>(step.size()), crc);
    bytes = bytes.subspan(step.size());
  }
  return ~crc;
}

}  // namespace headrace
