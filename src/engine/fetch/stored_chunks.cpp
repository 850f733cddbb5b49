#include "engine/fetch/stored_chunks.h"

#include <algorithm>
#include <atomic>

#include "base/thread_pool.h"
#include "codec/scratch.h"
#include "engine/fetch/chunk_level.h"
#include "engine/query/regions.h"
#include "engine/request/context.h"
#include "engine/write/from_host.h"
#include "format/chunk_grid.h"
#include "format/selection.h"

namespace headrace {

namespace {

using ChunkCoordinates = std::vector<std::int64_t>;

// Calls take(key, coordinates) for each stored object that is a chunk of the array.
template <typename Take>
void each_chunk(const ArrayState& state, const ArrayMetadata& metadata, Take take) {
  const std::string prefix = state.path().empty() ? "" : state.path() + "/";
  for (std::string& key : state.driver().list(prefix)) {
    auto coordinates =
        metadata.chunk_keys.parse(std::string_view(key).substr(prefix.size()), metadata.ndim());
    if (coordinates) take(std::move(key), *coordinates);
  }
}

GridAxis grid_axis(const ArrayMetadata& metadata, std::size_t d) {
  return metadata.chunk_edges.empty() ? GridAxis(metadata.chunk_shape[d])
                                      : GridAxis(metadata.chunk_edges[d]);
}

std::int64_t first_index(const ArrayMetadata& metadata, std::size_t d, std::int64_t chunk) {
  return metadata.chunk_edges.empty() ? chunk * metadata.chunk_shape[d]
                                      : metadata.chunk_edges[d].first_index_of(chunk);
}

}  // namespace

Listing list_chunks(const ArrayState& state) {
  const auto metadata = state.metadata();
  const Shape grid = grid_shape(metadata->shape, metadata->chunk_shape, metadata->chunk_edges);
  Listing listing;
  each_chunk(state, *metadata, [&](std::string key, const ChunkCoordinates& coordinates) {
    bool inside = true;
    for (std::size_t d = 0; d < grid.size(); ++d) inside &= coordinates[d] < grid[d];
    (inside ? listing.inside : listing.outside).push_back(std::move(key));
  });
  return listing;
}

std::shared_ptr<const ArrayLayout> layout_of_object(const RequestContext& context,
                                                    const std::string& key) {
  if (!context.layout.regions) return context.layout_owner;
  const ArrayMetadata& metadata = *context.layout.metadata;
  const std::size_t prefix = context.state.path().empty() ? 0 : context.state.path().size() + 1;
  const auto coordinates =
      metadata.chunk_keys.parse(std::string_view(key).substr(prefix), metadata.ndim());
  return context.layout.regions->at(coordinates.value());
}

std::int64_t count_stored_chunks(const ArrayState& state) {
  const Listing listing = list_chunks(state);
  const auto layout = state.layout();
  if (layout->shards.empty()) return static_cast<std::int64_t>(listing.inside.size());
  const ReadOptions options;
  RequestContext context(state, layout, options, nullptr);
  std::atomic<std::int64_t> n{0};
  parallel_for(listing.inside.size(), [&](std::size_t i) {
    const std::string& key = listing.inside[i];
    try {
      const auto index = again_when_changed([&]() -> std::shared_ptr<const ShardIndex> {
        const auto reader = context.driver.open(key);
        if (!reader) return nullptr;  // removed since it was listed
        RequestContext inside(context, layout_of_object(context, key));
        const ShardLevel& shard = inside.layout.shards.front();
        return load_shard_index(inside, shard, key, *reader, {0, reader->size()});
      });
      if (!index) return;
      for (std::int64_t inner = 0; inner < index->count; ++inner) n += index->has(inner);
    } catch (const Error& error) {
      throw error.with_context(context.place("read", key));
    }
  });
  return n;
}

void erase_outside(const ArrayState& state,
                   const Shape& shape,
                   const std::shared_ptr<const ArrayMetadata>& before) {
  const std::size_t ndim = shape.size();
  const Shape grid = grid_shape(shape, before->chunk_shape, before->chunk_edges);
  std::vector<ChunkCoordinates> cut;  // chunks that lie inside in part
  each_chunk(state, *before, [&](const std::string& key, const ChunkCoordinates& coordinates) {
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
        write_anywhere(state,
                       layout,
                       resolve_selection(Selection(std::move(outside)),
                                         before->shape,
                                         before->chunk_shape,
                                         before->chunk_edges),
                       fill,
                       WriteOptions());
      } catch (const Error& error) {
        if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::corrupt) throw;
      }
    }
  }
}

}  // namespace headrace
