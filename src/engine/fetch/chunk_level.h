#pragma once

// The way from a query (Box or Points) to stored chunks, for every reader:
//  1. A ChunkLevel is a query cut by a grid: that of stored objects, or that of a shard's inner
//     chunks. Its children are known by their position in the cut.
//  2. Above the innermost level children are shards: open_shard() gives the level inside of one.
//  3. At the innermost level find_stored() says where a child lies, near_groups() which inner
//     chunks of a shard are read as one range, and asked_at_once() how many ranges are one request.
//  4. located() tells in an error which child of a level it is about.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_errors.h"
#include "engine/query/coordinates.h"
#include "engine/query/regions.h"
#include "engine/request/context.h"
#include "store/coalesce.h"

namespace headrace {

template <typename Query>
struct ChunkLevel {
  ChunkLevel(Query q, GridCut grid) : query(std::move(q)), cut(query, std::move(grid)) {}

  const Query query;
  const typename Query::Cut cut;  // borrows from `query`

  // Of a shard.
  std::shared_ptr<const ChunkLevel> parent;  // null at the top
  std::size_t position = 0;                  // in the parent's cut
  std::size_t depth = 0;                     // shards around its children
  const ShardLevel* shard = nullptr;
  std::shared_ptr<const ShardIndex> index;
  // The object, and where in it the shard begins.
  std::string key;
  std::shared_ptr<const ObjectReader> reader;
  std::uint64_t base = 0;
};

// What a chunk or shard is stored as: a part of an object.
struct StoredChunk {
  std::shared_ptr<const ObjectReader> reader;
  ByteRange range;
};

// What a query wants of a region, cut into stored objects.
template <typename Query>
std::shared_ptr<const ChunkLevel<Query>> top_level(const ArrayLayout& layout,
                                                   const Region& region,
                                                   Query query) {
  return std::make_shared<const ChunkLevel<Query>>(
      std::move(query), GridCut(layout.stored_shape(), region.first_chunk));
}

// Whether the children are what is decoded, not shards.
template <typename Query>
bool is_innermost(const ArrayLayout& layout, const ChunkLevel<Query>& level) {
  return level.depth == layout.shards.size();
}

template <typename Query>
Error located(const RequestContext& context,
              const ChunkLevel<Query>& level,
              std::size_t position,
              const Error& error) {
  Coordinates coordinates;
  Query query;
  level.cut.child(position, coordinates.at, query);
  if (!level.parent)
    return error.with_context(context.place("read", context.chunk_key(coordinates.at)));
  const std::string inner = coordinates_text(coordinates.at, context.layout.metadata->ndim());
  return located(
      context, *level.parent, level.position, error.with_context("inner chunk " + inner));
}

// Of a child of a shard, in the object; nothing when it is not stored.
template <typename Query>
std::optional<ByteRange> find_inner(const ChunkLevel<Query>& level,
                                    const Coordinates& coordinates) {
  const std::int64_t i = linear_index(coordinates.at, level.shard->inner_grid);
  if (!level.index->has(i)) return std::nullopt;
  const auto [offset, nbytes] = level.index->range(i);
  return ByteRange{level.base + offset, nbytes};
}

template <typename Query>
std::optional<StoredChunk> find_stored(const RequestContext& context,
                                       const ChunkLevel<Query>& level,
                                       const Coordinates& coordinates) {
  if (level.parent) {
    const std::optional<ByteRange> range = find_inner(level, coordinates);
    if (!range) return std::nullopt;
    return StoredChunk{level.reader, *range};
  }
  std::shared_ptr<const ObjectReader> reader =
      context.driver.open(context.chunk_key(coordinates.at));
  if (!reader) return std::nullopt;
  const std::uint64_t nbytes = reader->size();
  return StoredChunk{std::move(reader), {0, nbytes}};
}

// The index of a shard that is `range` of an object, from the cache when the object is still the
// same.
std::shared_ptr<const ShardIndex> load_shard_index(RequestContext& context,
                                                   const ShardLevel& level,
                                                   const std::string& key,
                                                   const ObjectReader& reader,
                                                   const ByteRange& range);

// Calls read(); false when the object was removed since it was opened: its chunks are missing.
template <typename Read>
bool unless_removed(Read read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    return false;
  }
}

// Calls read(), and anew when an object was replaced while it was read in parts: then what its
// index said and what it holds are of two objects. All that is wanted is read anew.
template <typename Read>
auto again_when_changed(Read read) {
  constexpr int kAttempts = 4;
  for (int attempt = 1; attempt < kAttempts; ++attempt) {
    try {
      return with_memory_errors(read);
    } catch (const Error& error) {
      if (!is_changed(error)) throw;
    }
  }
  return with_memory_errors(read);
}

// Null when the shard is not stored.
template <typename Query>
std::shared_ptr<const ChunkLevel<Query>> open_shard(
    RequestContext& context,
    const std::shared_ptr<const ChunkLevel<Query>>& parent,
    std::size_t position) {
  Coordinates coordinates;
  Query query;
  parent->cut.child(position, coordinates.at, query);
  try {
    const std::optional<StoredChunk> stored = find_stored(context, *parent, coordinates);
    if (!stored) return nullptr;
    const ShardLevel& shard = context.layout.shards[parent->depth];
    auto level = std::make_shared<ChunkLevel<Query>>(std::move(query), shard.inner_shape);
    level->parent = parent;
    level->position = position;
    level->depth = parent->depth + 1;
    level->shard = &shard;
    level->key = parent->parent ? parent->key : context.chunk_key(coordinates.at);
    level->reader = stored->reader;
    level->base = stored->range.offset;
    level->index = load_shard_index(context, shard, level->key, *stored->reader, stored->range);
    return level;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found) return nullptr;  // removed since it was opened
    throw located(context, *parent, position, error);
  }
}

// Ranges of one object to be read together. `local_run`: how many bytes at most, of a store for
// which requests are cheap; for others the configuration says it.
std::vector<RangeGroup> near_groups(const RequestContext& context,
                                    std::span<const ByteRange> ranges,
                                    std::uint64_t local_run);

// How many of `groups`, from the first on, to ask for at once: one, and of a store across a network
// as many as `nbytes` have room for.
std::size_t asked_at_once(const RequestContext& context,
                          std::span<const RangeGroup> groups,
                          std::uint64_t nbytes);

}  // namespace headrace
