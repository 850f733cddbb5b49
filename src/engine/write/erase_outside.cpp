#include "engine/write/erase_outside.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/fetch/stored_chunks.h"
#include "engine/write/from_host.h"
#include "format/chunk_grid.h"
#include "format/selection.h"

namespace headrace {
namespace {

GridAxis grid_axis(const ArrayMetadata& metadata, std::size_t d) {
  return metadata.chunk_edges.empty() ? GridAxis(metadata.chunk_shape[d])
                                      : GridAxis(metadata.chunk_edges[d]);
}

std::int64_t first_index(const ArrayMetadata& metadata, std::size_t d, std::int64_t chunk) {
  return metadata.chunk_edges.empty() ? chunk * metadata.chunk_shape[d]
                                      : metadata.chunk_edges[d].first_index_of(chunk);
}

}  // namespace

void erase_outside(const ArrayState& state,
                   const Shape& shape,
                   const std::shared_ptr<const ArrayMetadata>& before) {
  const std::size_t ndim = shape.size();
  const Shape grid = grid_shape(shape, before->chunk_shape, before->chunk_edges);
  std::vector<ChunkCoordinates> cut;  // chunks that lie inside in part
  each_stored_chunk(
      state, *before, [&](const std::string& key, const ChunkCoordinates& coordinates) {
        bool inside = true, whole = true;
        for (std::size_t d = 0; d < ndim; ++d) {
          inside &= coordinates[d] < grid[d];
          if (!inside) break;
          // Behind the end of the array before there is nothing of it.
          const std::int64_t first = first_index(*before, d, coordinates[d]);
          const std::int64_t end = std::min(grid_axis(*before, d).at(first).end, before->shape[d]);
          whole &= end <= shape[d];
        }
        if (!inside)
          state.driver().erase(key);
        else if (!whole)
          cut.push_back(coordinates);
      });
  if (cut.empty()) return;

  std::shared_ptr<const ArrayLayout> layout;
  try {
    layout = state.layout_of(before);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return;  // a codec that this build lacks
  }
  TensorView fill;
  fill.data = const_cast<std::byte*>(layout->fill.data());
  fill.dtype = before->dtype;
  for (const ChunkCoordinates& coordinates : cut) {
    std::vector<SelectionItem> chunk(ndim);
    Shape first(ndim), end(ndim);
    for (std::size_t d = 0; d < ndim; ++d) {
      first[d] = first_index(*before, d, coordinates[d]);
      end[d] = std::min(grid_axis(*before, d).at(first[d]).end, before->shape[d]);
      chunk[d] = slice(first[d], end[d]);
    }
    for (std::size_t d = 0; d < ndim; ++d) {
      if (end[d] <= shape[d]) continue;
      std::vector<SelectionItem> outside = chunk;
      outside[d] = slice(std::max(shape[d], first[d]), end[d]);
      try {
        const ResolvedSelection selection = resolve_selection(
            Selection(std::move(outside)), before->shape, before->chunk_shape, before->chunk_edges);
        write_selection(
            state, layout, selection, broadcast_to(fill, selection.result_shape), WriteOptions());
      } catch (const Error& error) {
        if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::corrupt) throw;
      }
    }
  }
}

}  // namespace headrace
