#pragma once

// The chunks that a query (Box or Points) touches, in order, with where each is stored.

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "engine/device_slab.h"
#include "engine/read.h"
#include "engine/request_context.h"

namespace headrace {

// A query cut by a grid: that of stored objects, or that of a shard's inner chunks.
template <typename Query>
struct ChunkLevel {
  ChunkLevel(Query q, const Shape& chunk) : query(std::move(q)), cut(query, chunk) {}

  const Query query;
  const typename Query::Cut cut;  // borrows from `query`

  // Of a shard.
  std::shared_ptr<const ChunkLevel> parent;  // null at the top
  std::size_t position = 0;                  // in the parent's cut
  std::string key;
  std::shared_ptr<const ObjectReader> reader;
  std::uint64_t base = 0;
  std::shared_ptr<const ShardIndex> index;
  const ShardLevel* shard = nullptr;
};

// One child of a level, on its way to the device.
template <typename Query>
struct Chunk {
  std::shared_ptr<const ChunkLevel<Query>> level;
  std::size_t position = 0;  // in the level's cut
  bool missing = false;      // reads as the fill value
  Query query{};             // what is wanted of it

  // What was fetched: encoded bytes, or the wanted elements one after another.
  std::byte* host = nullptr;
  const std::uint8_t* device = nullptr;
  std::size_t nbytes = 0;
  bool packed = false;

  void place(const SlabMemory::Piece& piece, std::size_t size, bool is_packed) {
    host = piece.host;
    device = piece.device;
    nbytes = size;
    packed = is_packed;
  }
};

struct StoredChunk {
  std::shared_ptr<const ObjectReader> reader;
  std::uint64_t base = 0;
  std::uint64_t nbytes = 0;
};

// Tells in `error` which chunk it is about, as reads to the host do.
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

// Where the bytes of a child with these coordinates lie; nothing when it is not stored.
template <typename Query>
std::optional<StoredChunk> find_stored(const RequestContext& context,
                                       const ChunkLevel<Query>& level,
                                       const Coordinates& coordinates) {
  if (!level.parent) {
    std::shared_ptr<const ObjectReader> reader =
        context.driver.open(context.chunk_key(coordinates.at));
    if (!reader) return std::nullopt;
    const std::uint64_t nbytes = reader->size();
    return StoredChunk{std::move(reader), 0, nbytes};
  }
  const std::int64_t i = linear_index(coordinates.at, level.shard->inner_grid);
  if (!level.index->has(i)) return std::nullopt;
  const auto [offset, nbytes] = level.index->range(i);
  return StoredChunk{level.reader, level.base + offset, nbytes};
}

template <typename Query>
class ChunkWalk {
 public:
  explicit ChunkWalk(RequestContext& context) : context_(context), layout_(context.layout) {}

  // Missing shards come as one missing chunk.
  void each(Query query, FunctionRef<void(Chunk<Query>)> visit) {
    const ArrayMetadata& m = *layout_.metadata;
    walk(std::make_shared<const Level>(std::move(query), m.chunk_shape), 0, visit);
  }

 private:
  using Level = ChunkLevel<Query>;

  // Of so many shards are the indices read side by side, and the objects kept open.
  static constexpr std::size_t kShardsAtOnce = 64;

  void walk(const std::shared_ptr<const Level>& level,
            std::size_t depth,
            FunctionRef<void(Chunk<Query>)> visit) {
    const std::size_t n = level->cut.size();
    if (depth == layout_.shards.size()) {
      for (std::size_t i = 0; i < n; ++i) visit({level, i});
      return;
    }
    for (std::size_t first = 0; first < n; first += kShardsAtOnce) {
      std::vector<std::shared_ptr<const Level>> shards(std::min(kShardsAtOnce, n - first));
      parallel_for(shards.size(), [&](std::size_t i) {
        context_.check();
        shards[i] = open_shard(level, first + i, layout_.shards[depth]);
      });
      for (std::size_t i = 0; i < shards.size(); ++i) {
        if (shards[i]) {
          walk(shards[i], depth + 1, visit);
        } else {
          visit({level, first + i, /*missing=*/true});
        }
      }
    }
  }

  // Null when it is not stored.
  std::shared_ptr<const Level> open_shard(const std::shared_ptr<const Level>& parent,
                                          std::size_t position,
                                          const ShardLevel& shard) {
    Coordinates coordinates;
    Query query;
    parent->cut.child(position, coordinates.at, query);
    try {
      const auto stored = find_stored(context_, *parent, coordinates);
      if (!stored) return nullptr;
      auto level = std::make_shared<Level>(std::move(query), shard.inner_shape);
      level->parent = parent;
      level->position = position;
      level->key = parent->parent ? parent->key : context_.chunk_key(coordinates.at);
      level->reader = stored->reader;
      level->base = stored->base;
      level->shard = &shard;
      level->index = load_shard_index(
          context_, shard, level->key, *stored->reader, stored->base, stored->nbytes);
      return level;
    } catch (const Error& error) {
      throw located(context_, *parent, position, error);
    }
  }

  RequestContext& context_;
  const ArrayLayout& layout_;
};

}  // namespace headrace
