#include "format/metadata_checks.h"

#include <cstddef>
#include <string>

#include "base/limits.h"
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

namespace {

void append_edge(const Json& item, ChunkEdges& edges) {
  std::int64_t extent = 0;
  std::int64_t count = 1;
  if (item.kind() == Json::Kind::array) {
    const std::vector<Json> pair = item.items();
    if (pair.size() != 2) item.fail(ErrorCode::corrupt, "expected [extent, count]");
    extent = pair[0].integer();
    count = pair[1].integer();
  } else {
    extent = item.integer();
  }
  try {
    edges.append(extent, count);
  } catch (const Error& error) {
    item.fail(ErrorCode::corrupt, error.what());
  }
}

}  // namespace

std::vector<ChunkEdges> chunk_edges_from_json(const Json& list, const Shape& shape) {
  const std::vector<Json> dimensions = list.items();
  if (dimensions.size() != shape.size()) {
    list.fail(ErrorCode::corrupt,
              "chunks of " + std::to_string(dimensions.size()) + " dimensions for an array of " +
                  std::to_string(shape.size()));
  }
  std::vector<ChunkEdges> edges(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const Json& dimension = dimensions[d];
    if (dimension.kind() != Json::Kind::array) {
      const std::int64_t extent = dimension.integer();
      if (extent < 1) {
        dimension.fail(ErrorCode::corrupt, "expected at least 1, found " + std::to_string(extent));
      }
      edges[d] = ChunkEdges::repeating(extent);
      continue;
    }
    const std::vector<Json> items = dimension.items();
    if (items.empty()) dimension.fail(ErrorCode::corrupt, "no chunks");
    for (const Json& item : items) append_edge(item, edges[d]);
    if (edges[d].end < shape[d]) {
      dimension.fail(ErrorCode::corrupt,
                     "chunks end at " + std::to_string(edges[d].end) + ", the array at " +
                         std::to_string(shape[d]));
    }
  }
  return edges;
}

std::string chunk_edges_to_json(const std::vector<ChunkEdges>& edges) {
  std::string text = "[";
  for (const ChunkEdges& dimension : edges) {
    if (text.size() > 1) text += ",";
    if (dimension.repeats) {
      text += std::to_string(dimension.bands.front().extent);
      continue;
    }
    std::string bands;
    for (const ChunkBand& band : dimension.bands) {
      const std::int64_t count = dimension.count_of(band);
      const std::string extent = std::to_string(band.extent);
      if (!bands.empty()) bands += ",";
      bands += count == 1 ? extent : "[" + extent + "," + std::to_string(count) + "]";
    }
    text += "[" + bands + "]";
  }
  return text + "]";
}

void check_chunk_size(const Shape& chunk_shape, const DType& dtype, const char* document) {
  std::size_t nbytes = dtype.itemsize();
  for (std::int64_t extent : chunk_shape) {
    if (__builtin_mul_overflow(nbytes, static_cast<std::size_t>(extent), &nbytes) ||
        nbytes > kMaxChunkNbytes) {
      throw Error(ErrorCode::unsupported,
                  std::string(document) + ": chunks " + shape_to_json(chunk_shape) + " of " +
                      dtype.to_string() + " exceed " + std::to_string(kMaxChunkNbytes) + " bytes");
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
