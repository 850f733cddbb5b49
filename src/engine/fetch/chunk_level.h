#pragma once

// The way from a query (Box or Points) to stored chunks, for every reader:
//  1. A ChunkLevel is a query cut by a grid: that of stored objects, or that of a shard's inner
//     chunks. Its children are known by their position in the cut.
//  2. Above the innermost level children are shards: open_shard() gives the level inside of one.
//  3. At the innermost level find_stored() says where a child lies; which children are asked for
//     together is engine/fetch/plan.h's.
//  4. located() tells in an error which child of a level it is about.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/memory_errors.h"
#include "engine/query/coordinates.h"
#include "engine/query/regions.h"
#include "engine/request/stored_array.h"
#include "store/async.h"
#include "store/store.h"

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
  std::shared_ptr<const ObjectReader> reader;  // null of asynchronous reads, which have a version
  std::string version;
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

// Of a child of the top level, a stored object.
template <typename Query>
std::string object_key(const StoredArray& array,
                       const ChunkLevel<Query>& level,
                       std::size_t position) {
  Coordinates coordinates;
  Query query;
  level.cut.child(position, coordinates.at, query);
  return array.key(coordinates.at);
}

template <typename Query>
Error located(const StoredArray& array,
              const ChunkLevel<Query>& level,
              std::size_t position,
              const Error& error) {
  Coordinates coordinates;
  Query query;
  level.cut.child(position, coordinates.at, query);
  if (!level.parent) return error.with_context(array.where("read", array.key(coordinates.at)));
  const std::string inner = coordinates_text(coordinates.at, array.layout.metadata->ndim());
  return located(array, *level.parent, level.position, error.with_context("inner chunk " + inner));
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
std::optional<StoredChunk> find_stored(const StoredArray& array,
                                       const ChunkLevel<Query>& level,
                                       const Coordinates& coordinates) {
  if (level.parent) {
    const std::optional<ByteRange> range = find_inner(level, coordinates);
    if (!range) return std::nullopt;
    return StoredChunk{level.reader, *range};
  }
  std::shared_ptr<const ObjectReader> reader = array.driver.open(array.key(coordinates.at));
  if (!reader) return std::nullopt;
  const std::uint64_t nbytes = reader->size();
  return StoredChunk{std::move(reader), {0, nbytes}};
}

// Where a shard that is an object has its index.
inline Extent index_part(const ShardLevel& shard) {
  return shard.index_at_end ? Extent::suffix(shard.index_nbytes)
                            : Extent::range(0, shard.index_nbytes);
}

// `corrupt` when a shard is too short for its index.
void check_holds_index(std::uint64_t shard_nbytes, std::size_t index_nbytes);

// What an index is kept by. A nested shard may begin where the one around it does: its depth tells
// them apart.
std::string index_place(const std::string& key, std::size_t depth, std::uint64_t offset);
template <typename Query>
std::string index_place(const ChunkLevel<Query>& shard) {
  return index_place(shard.key, shard.depth - 1, shard.base);
}

// The index of a shard that is `range` of an object, from the cache when the object is still the
// same.
std::shared_ptr<const ShardIndex> load_shard_index(const StoredArray& array,
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
// read(attempt) is told the number of its attempt, from 1 on, if it takes it.
template <typename Read>
auto again_when_changed(Read read) {
  constexpr int kAttempts = 4;
  for (int attempt = 1;; ++attempt) {
    try {
      return with_memory_errors([&] {
        if constexpr (std::is_invocable_v<Read&, int>) {
          return read(attempt);
        } else {
          return read();
        }
      });
    } catch (const Error& error) {
      if (attempt == kAttempts || !is_changed(error)) throw;
    }
  }
}

// Whether less than half of a shard's chunks are wanted. Of what is read whole, and so in its
// order, the system's own reading ahead is as good.
template <typename Query>
bool wants_parts(const ChunkLevel<Query>& level) {
  return level.parent && 2 * level.cut.size() < static_cast<std::size_t>(level.shard->inner_count);
}

// Null when the shard is not stored.
template <typename Query>
std::shared_ptr<const ChunkLevel<Query>> open_shard(
    const StoredArray& array,
    const std::shared_ptr<const ChunkLevel<Query>>& parent,
    std::size_t position) {
  Coordinates coordinates;
  Query query;
  parent->cut.child(position, coordinates.at, query);
  try {
    const std::optional<StoredChunk> stored = find_stored(array, *parent, coordinates);
    if (!stored) return nullptr;
    const ShardLevel& shard = array.layout.shards[parent->depth];
    auto level = std::make_shared<ChunkLevel<Query>>(std::move(query), shard.inner_shape);
    level->parent = parent;
    level->position = position;
    level->depth = parent->depth + 1;
    level->shard = &shard;
    level->key = parent->parent ? parent->key : array.key(coordinates.at);
    level->reader = stored->reader;
    level->base = stored->range.offset;
    if (wants_parts(*level)) level->reader->expect_parts();
    level->index = load_shard_index(array, shard, level->key, *stored->reader, stored->range);
    return level;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found) return nullptr;  // removed since it was opened
    throw located(array, *parent, position, error);
  }
}

}  // namespace headrace
