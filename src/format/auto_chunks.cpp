#include <algorithm>

#include "format/metadata.h"

namespace headrace {
namespace {

// Large enough that a codec call, a request and a task cost little beside the bytes; small enough
// that a chunk stays in a core's share of the cache and a box read decodes little too much.
constexpr std::size_t kMaxChunkBytes = std::size_t{4} << 20;
constexpr std::size_t kGuessedItemBytes = 16;  // of variable-length types

}  // namespace

Shape auto_chunks(const Shape& shape, std::size_t itemsize) {
  Shape chunks(shape.size(), 1);
  const std::size_t item = itemsize == 0 ? kGuessedItemBytes : itemsize;
  std::int64_t room = static_cast<std::int64_t>(std::max(kMaxChunkBytes / item, std::size_t{1}));
  for (std::size_t d = shape.size(); d-- > 0;) {
    const std::int64_t extent = std::max<std::int64_t>(shape[d], 1);
    if (extent <= room) {
      chunks[d] = extent;
      room /= extent;
      continue;
    }
    // Cut evenly, so that the last chunk is not a sliver: each is more than half of the room.
    const std::int64_t pieces = (extent - 1) / room + 1;
    chunks[d] = (extent - 1) / pieces + 1;
    break;
  }
  return chunks;
}

}  // namespace headrace
