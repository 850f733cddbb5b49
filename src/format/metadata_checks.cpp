#include "format/metadata_checks.h"

#include <cstddef>
#include <string>

#include "format/codec_specs.h"

namespace headrace {

Shape chunk_shape_from_json(const Json& list, const Shape& shape) {
  Shape chunks = shape_from_json(list, 0);
  if (chunks.size() != shape.size()) {
    list.fail(ErrorCode::corrupt,
              "chunks of " + std::to_string(chunks.size()) + " dimensions for an array of " +
                  std::to_string(shape.size()));
  }
  for (std::size_t d = 0; d < chunks.size(); ++d) {
    if (chunks[d] > 0) continue;
    if (shape[d] > 0) {
      list.fail(ErrorCode::corrupt,
                "a chunk extent of 0 for an extent of " + std::to_string(shape[d]));
    }
    chunks[d] = 1;  // zarr-python 2 could write it where there are no elements
  }
  return chunks;
}

void check_chunk_size(const Shape& chunk_shape, const DType& dtype, const char* document) {
  constexpr std::size_t kMaxChunk = std::size_t{1} << 48;
  std::size_t nbytes = dtype.itemsize();
  for (std::int64_t extent : chunk_shape) {
    if (__builtin_mul_overflow(nbytes, static_cast<std::size_t>(extent), &nbytes) ||
        nbytes > kMaxChunk) {
      throw Error(ErrorCode::unsupported,
                  std::string(document) + ": chunks " + shape_to_json(chunk_shape) + " of " +
                      dtype.to_string() + " exceed " + std::to_string(kMaxChunk) + " bytes");
    }
  }
}

char separator_from_json(const Json& json) {
  const std::string text = json.string();
  if (text != "." && text != "/") json.fail(ErrorCode::corrupt, "expected \".\" or \"/\"");
  return text[0];
}

void check_node_path(std::string_view path, const Json& where) {
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") {
      where.fail(ErrorCode::corrupt, "no path of a node");
    }
    if (slash == std::string_view::npos) return;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace headrace
