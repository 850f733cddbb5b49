#include "engine/fetch/stored_chunks.h"

#include <atomic>

#include "base/thread_pool.h"
#include "codec/scratch.h"
#include "engine/fetch/chunk_level.h"
#include "engine/query/regions.h"
#include "format/chunk_grid.h"

namespace headrace {

namespace {

std::string prefix_of(const ArrayState& state) {
  return state.path().empty() ? "" : state.path() + "/";
}

// Whether a chunk lies within the shape of an array, or was left behind by another.
class Inside {
 public:
  explicit Inside(const ArrayMetadata& metadata)
      : grid_(grid_shape(metadata.shape, metadata.chunk_shape, metadata.chunk_edges)) {}

  bool operator()(const ChunkCoordinates& coordinates) const {
    for (std::size_t d = 0; d < grid_.size(); ++d)
      if (coordinates[d] >= grid_[d]) return false;
    return true;
  }

 private:
  const Shape grid_;
};

}  // namespace

void each_stored_chunk(const ArrayState& state,
                       const ArrayMetadata& metadata,
                       FunctionRef<void(std::string key, const ChunkCoordinates& at)> take) {
  const std::string prefix = prefix_of(state);
  for (std::string& key : state.driver().list(prefix)) {
    auto coordinates =
        metadata.chunk_keys.parse(std::string_view(key).substr(prefix.size()), metadata.ndim());
    if (coordinates) take(std::move(key), *coordinates);
  }
}

Listing list_chunks(const ArrayState& state) {
  const auto metadata = state.metadata();
  const Inside is_inside(*metadata);
  Listing listing;
  each_stored_chunk(state, *metadata, [&](std::string key, const ChunkCoordinates& coordinates) {
    (is_inside(coordinates) ? listing.inside : listing.outside).push_back(std::move(key));
  });
  return listing;
}

std::uint64_t stored_nbytes(const ArrayState& state) {
  const auto metadata = state.metadata();
  const Inside is_inside(*metadata);
  const std::string prefix = prefix_of(state);
  std::uint64_t nbytes = 0;
  for (const ObjectSize& object : state.driver().list_sizes(prefix)) {
    const auto coordinates = metadata->chunk_keys.parse(
        std::string_view(object.key).substr(prefix.size()), metadata->ndim());
    if (coordinates && is_inside(*coordinates)) nbytes += object.nbytes;
  }
  return nbytes;
}

std::shared_ptr<const ArrayLayout> layout_of_object(const StoredArray& array,
                                                    const std::string& key) {
  if (!array.layout.regions) return array.layout_owner;
  const ArrayMetadata& metadata = *array.layout.metadata;
  const std::size_t prefix = array.state.path().empty() ? 0 : array.state.path().size() + 1;
  const auto coordinates =
      metadata.chunk_keys.parse(std::string_view(key).substr(prefix), metadata.ndim());
  return array.layout.regions->at(coordinates.value());
}

std::int64_t count_stored_chunks(const ArrayState& state) {
  const Listing listing = list_chunks(state);
  const auto layout = state.layout();
  if (layout->shards.empty()) return static_cast<std::int64_t>(listing.inside.size());
  const StoredArray array(state, layout);
  std::atomic<std::int64_t> n{0};
  parallel_for(listing.inside.size(), [&](std::size_t i) {
    const std::string& key = listing.inside[i];
    try {
      const auto index = again_when_changed([&]() -> std::shared_ptr<const ShardIndex> {
        const auto reader = array.driver.open(key);
        if (!reader) return nullptr;  // removed since it was listed
        const StoredArray inside(state, layout_of_object(array, key));
        const ShardLevel& shard = inside.layout.shards.front();
        return load_shard_index(inside, shard, key, *reader, {0, reader->size()});
      });
      if (!index) return;
      for (std::int64_t inner = 0; inner < index->count; ++inner) n += index->has(inner);
    } catch (const Error& error) {
      throw error.with_context(array.where("read", key));
    }
  });
  return n;
}

}  // namespace headrace
