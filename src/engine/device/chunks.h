#pragma once

// The chunks that a query touches, one after another, on their way to a device.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "engine/fetch/chunk_level.h"
#include "engine/fetch/in_flight.h"
#include "engine/fetch/plan.h"
#include "engine/fetch/shard_read.h"
#include "kernels/kernels.h"

namespace headrace {

template <typename Query>
struct Chunk {
  std::shared_ptr<const ChunkLevel<Query>> level;
  std::size_t position = 0;  // in the level's cut
  Query query{};             // what is wanted of it
  bool missing = false;      // reads as the fill value
  ByteRange range{};         // of the object; of chunks outside of shards once they are fetched

  // What was fetched: encoded bytes, or, packed, the wanted elements one after another.
  const std::uint8_t* device = nullptr;
  bool packed = false;
  std::unique_ptr<const Headers> headers{};  // as read_headers() gives them

  std::size_t encoded_nbytes() const { return static_cast<std::size_t>(range.nbytes); }
};

template <typename Query>
class ChunkWalk {
 public:
  ChunkWalk(Request& request, const StoredArray& array) : request_(request), array_(array) {}

  // Missing shards come as one missing chunk. What lies outside of shards is not looked for.
  void each(RegionPart<Query> part, FunctionRef<void(Chunk<Query>)> visit) {
    walk(top_level(array_.layout, part.region, std::move(part.query)), visit);
  }

 private:
  using Level = ChunkLevel<Query>;

  // Of so many shards are the indices read side by side, and the objects kept open.
  static constexpr std::size_t kShardsAtOnce = 64;
  static constexpr std::size_t kChunksAtOnce = 4096;
  static constexpr std::size_t kThreadChunks = 256;

  void walk(const std::shared_ptr<const Level>& level, FunctionRef<void(Chunk<Query>)> visit) {
    const bool innermost = is_innermost(array_.layout, *level);
    const std::size_t n = level->cut.size();
    const std::size_t most = innermost ? kChunksAtOnce : kShardsAtOnce;
    for (std::size_t first = 0; first < n; first += most) {
      const std::size_t count = std::min(most, n - first);
      if (innermost) {
        for (Chunk<Query>& chunk : find_chunks(level, first, count)) visit(std::move(chunk));
        continue;
      }
      const auto shards = open_shards(level, first, count);
      for (std::size_t i = 0; i < count; ++i) {
        if (shards[i]) {
          walk(shards[i], visit);
        } else {
          Chunk<Query> chunk = child(level, first + i);
          chunk.missing = true;
          visit(std::move(chunk));
        }
      }
    }
  }

  std::vector<std::shared_ptr<const Level>> open_shards(const std::shared_ptr<const Level>& level,
                                                        std::size_t first,
                                                        std::size_t count) {
    const Span span("plan");
    std::vector<std::shared_ptr<const Level>> shards(count);
    if (AsyncReads* const store = array_.driver.async_reads()) {
      ask_for_shards(*store, level, first, shards);
      return shards;
    }
    parallel_for(count, [&](std::size_t i) {
      request_.check();
      shards[i] = open_shard(array_, level, first + i);
    });
    return shards;
  }

  // All at once.
  void ask_for_shards(AsyncReads& store,
                      const std::shared_ptr<const Level>& level,
                      std::size_t first,
                      std::vector<std::shared_ptr<const Level>>& shards) {
    class Shard final : public ShardRead<Query> {
     public:
      Shard(const ChunkWalk& walk,
            const std::shared_ptr<const Level>& parent,
            std::size_t position,
            std::shared_ptr<const Level>& found_shard)
          : ShardRead<Query>(walk.request_, walk.array_, parent, position), found_(found_shard) {}

     protected:
      void opened(std::shared_ptr<const Level> shard) override { found_ = std::move(shard); }

     private:
      std::shared_ptr<const Level>& found_;
    };
    class Shards final : public ReadsInFlight::Source {
     public:
      explicit Shards(FunctionRef<std::unique_ptr<ReadsInFlight::Read>()> next) : next_(next) {}
      std::unique_ptr<ReadsInFlight::Read> next() override { return next_(); }

     private:
      const FunctionRef<std::unique_ptr<ReadsInFlight::Read>()> next_;
    };
    std::size_t begun = 0;
    const auto next = [&]() -> std::unique_ptr<ReadsInFlight::Read> {
      if (begun == shards.size()) return nullptr;
      const std::size_t i = begun++;
      return std::make_unique<Shard>(*this, level, first + i, shards[i]);
    };
    const auto check = [&] { request_.check(); };
    ReadsInFlight flight(store, limits_of_flight(request_, store), check);
    flight.add(std::make_unique<Shards>(next));
    const auto threads = std::min(shards.size(), static_cast<std::size_t>(thread_count()));
    request_.parallel(
        threads, [&](std::size_t) { flight.work(); }, static_cast<int>(threads));
  }

  std::vector<Chunk<Query>> find_chunks(const std::shared_ptr<const Level>& level,
                                        std::size_t first,
                                        std::size_t count) {
    const Span span("plan");
    std::vector<Chunk<Query>> chunks(count);
    parallel_for((count + kThreadChunks - 1) / kThreadChunks, [&](std::size_t part) {
      const std::size_t end = std::min(count, (part + 1) * kThreadChunks);
      for (std::size_t i = part * kThreadChunks; i < end; ++i) chunks[i] = child(level, first + i);
    });
    return chunks;
  }

  Chunk<Query> child(const std::shared_ptr<const Level>& level, std::size_t position) {
    Chunk<Query> chunk{level, position};
    Coordinates coordinates;
    level->cut.child(position, coordinates.at, chunk.query);
    if (!level->parent || !is_innermost(array_.layout, *level)) return chunk;
    try {
      const std::optional<ByteRange> range = find_inner(*level, coordinates);
      chunk.missing = !range;
      chunk.range = range.value_or(ByteRange{});
    } catch (const Error& error) {
      throw located(array_, *level, position, error);
    }
    return chunk;
  }

  Request& request_;
  const StoredArray& array_;
};

}  // namespace headrace
