#include "engine/fetch/stored_chunks.h"

#include <atomic>

#include "base/thread_pool.h"
#include "codec/scratch.h"
#include "engine/fetch/chunk_level.h"
#include "engine/query/regions.h"
#include "engine/request/context.h"
#include "format/chunk_grid.h"

namespace headrace {

void each_stored_chunk(const ArrayState& state,
                       const ArrayMetadata& metadata,
                       FunctionRef<void(std::string key, const ChunkCoordinates& at)> take) {
  const std::string prefix = state.path().empty() ? "" : state.path() + "/";
  for (std::string& key : state.driver().list(prefix)) {
    auto coordinates =
        metadata.chunk_keys.parse(std::string_view(key).substr(prefix.size()), metadata.ndim());
    if (coordinates) take(std::move(key), *coordinates);
  }
}

Listing list_chunks(const ArrayState& state) {
  const auto metadata = state.metadata();
  const Shape grid = grid_shape(metadata->shape, metadata->chunk_shape, metadata->chunk_edges);
  Listing listing;
  each_stored_chunk(state, *metadata, [&](std::string key, const ChunkCoordinates& coordinates) {
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

}  // namespace headrace
