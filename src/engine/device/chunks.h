#pragma once

// The chunks that a query touches, one after another, on their way to a device.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "engine/fetch/ahead.h"
#include "engine/fetch/chunk_level.h"
#include "engine/fetch/in_flight.h"
#include "engine/fetch/plan.h"
#include "engine/fetch/shard_read.h"
#include "engine/query/regions.h"
#include "kernels/kernels.h"

namespace headrace {

template <typename Query>
struct Chunk {
  std::shared_ptr<const ChunkLevel<Query>> level;
  std::size_t position = 0;  // in the level's cut
  Query query{};             // what is wanted of it
  bool missing = false;      // reads as the fill value
  ByteRange range{};         // of the object; of chunks outside of shards once they are fetched

  // What was fetched: encoded bytes, or, packed, the wanted elements one after another. In place,
  // nothing is left to be done.
  const std::uint8_t* device = nullptr;
  bool packed = false;
  bool in_place = false;
  std::unique_ptr<const Headers> headers{};  // as read_headers() gives them
  std::size_t said_nbytes = 0;               // as said_nbytes() gives them

  std::size_t encoded_nbytes() const { return static_cast<std::size_t>(range.nbytes); }
};

// Missing shards come as one missing chunk. What lies outside of shards is not looked for.
template <typename Query>
class ChunkWalk {
 public:
  ChunkWalk(Request& request, const StoredArray& array, std::vector<RegionPart<Query>>& parts)
      : request_(request), array_(array), parts_(parts) {}

  std::optional<Chunk<Query>> next() {
    while (found_.empty()) {
      if (!find_more()) return std::nullopt;
    }
    Chunk<Query> chunk = std::move(found_.front());
    found_.pop_front();
    return chunk;
  }

 private:
  using Level = ChunkLevel<Query>;

  // Of so many shards are the indices read side by side, and the objects kept open.
  static constexpr std::size_t kShardsAtOnce = 64;
  static constexpr std::size_t kChunksAtOnce = 4096;
  static constexpr std::size_t kThreadChunks = 256;

  // A level on the way down from a region to a chunk.
  struct Place {
    std::shared_ptr<const Level> level;
    std::size_t next = 0;  // of its children
    // Shards that were opened and not entered yet, in their order; null: it is missing.
    std::deque<std::shared_ptr<const Level>> opened{};
  };

  // Of a level.
  struct Child {
    std::shared_ptr<const Level> parent;
    std::size_t position;
  };

  // False at the end.
  bool find_more() {
    if (way_.empty()) {
      if (regions_.empty() && !begin_regions()) return false;
      way_.push_back(std::move(regions_.front()));
      regions_.pop_front();
    }
    Place& place = way_.back();
    const std::size_t left = place.level->cut.size() - place.next;
    if (is_innermost(array_.layout, *place.level)) {
      const std::size_t count = std::min(kChunksAtOnce, left);
      find_chunks(place.level, place.next, count);
      place.next += count;
      if (count == left) way_.pop_back();
    } else if (!place.opened.empty()) {
      std::shared_ptr<const Level> shard = std::move(place.opened.front());
      const std::size_t position = place.next - place.opened.size();
      place.opened.pop_front();
      if (shard) {
        way_.push_back({std::move(shard)});
      } else {
        found_.push_back(child(place.level, position));
        found_.back().missing = true;
      }
    } else if (left > 0) {
      const std::size_t count = std::min(kShardsAtOnce, left);
      place.opened = open_shards(place.level, place.next, count);
      place.next += count;
    } else {
      way_.pop_back();
    }
    return true;
  }

  // Across a network those that have few shards begin together: so many round trips less.
  bool begin_regions() {
    AsyncReads* const store = array_.layout.shards.empty() ? nullptr : array_.driver.async_reads();
    std::size_t shards = 0;
    while (part_ < parts_.size() && (regions_.empty() || (store && shards < kShardsAtOnce))) {
      RegionPart<Query>& part = parts_[part_++];
      regions_.push_back({top_level(array_.layout, part.region, std::move(part.query))});
      shards += regions_.back().level->cut.size();
    }
    if (store && regions_.size() > 1 && shards <= 2 * kShardsAtOnce) open_regions(*store);
    return !regions_.empty();
  }

  // Each shard once, whichever regions have it.
  void open_regions(AsyncReads& store) {
    const Span span("plan");
    std::unordered_map<std::string, std::size_t> known;
    std::vector<Child> wanted;
    std::vector<std::size_t> places;
    for (const Place& region : regions_) {
      for (std::size_t i = 0; i < region.level->cut.size(); ++i) {
        const auto [at, is_new] =
            known.try_emplace(object_key(array_, *region.level, i), wanted.size());
        if (is_new) wanted.push_back({region.level, i});
        places.push_back(at->second);
      }
    }
    const auto found = ask_for_shards(store, wanted);
    std::size_t place = 0;
    for (Place& region : regions_) {
      for (std::size_t i = 0; i < region.level->cut.size(); ++i) {
        const Child& first = wanted[places[place]];
        std::shared_ptr<const Level> shard = found[places[place++]];
        const bool is_first = first.parent == region.level && first.position == i;
        if (shard && !is_first) shard = same_shard(*shard, region.level, i);
        region.opened.push_back(std::move(shard));
      }
      region.next = region.opened.size();
    }
  }

  std::deque<std::shared_ptr<const Level>> open_shards(const std::shared_ptr<const Level>& level,
                                                       std::size_t first,
                                                       std::size_t count) {
    const Span span("plan");
    if (AsyncReads* const store = array_.driver.async_reads()) {
      std::vector<Child> wanted;
      for (std::size_t i = 0; i < count; ++i) wanted.push_back({level, first + i});
      return ask_for_shards(*store, wanted);
    }
    std::deque<std::shared_ptr<const Level>> shards(count);
    const auto key = [&](std::size_t i) { return object_key(array_, *level, first + i); };
    const ShardLevel& shard = array_.layout.shards[level->depth];
    ObjectsAhead ahead(
        array_.driver, level->parent ? 0 : count, index_part(shard), shard.index_nbytes, key);
    parallel_for(count, [&](std::size_t i) {
      request_.check();
      ahead.before(i, key);
      shards[i] = open_shard(array_, level, first + i);
    });
    return shards;
  }

  // All at once.
  std::deque<std::shared_ptr<const Level>> ask_for_shards(AsyncReads& store,
                                                          const std::vector<Child>& wanted) {
    class Shard final : public ShardRead<Query> {
     public:
      Shard(const ChunkWalk& walk, const Child& child, std::shared_ptr<const Level>& found_shard)
          : ShardRead<Query>(walk.request_, walk.array_, child.parent, child.position),
            found_(found_shard) {}

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
    std::deque<std::shared_ptr<const Level>> shards(wanted.size());
    std::size_t begun = 0;
    const auto next = [&]() -> std::unique_ptr<ReadsInFlight::Read> {
      if (begun == shards.size()) return nullptr;
      const std::size_t i = begun++;
      return std::make_unique<Shard>(*this, wanted[i], shards[i]);
    };
    const auto check = [&] { request_.check(); };
    ReadsInFlight flight(store, limits_of_flight(request_, store), check);
    flight.add(std::make_unique<Shards>(next));
    const auto threads = std::min(shards.size(), static_cast<std::size_t>(thread_count()));
    request_.parallel(
        threads, [&](std::size_t) { flight.work(); }, static_cast<int>(threads));
    return shards;
  }

  void find_chunks(const std::shared_ptr<const Level>& level,
                   std::size_t first,
                   std::size_t count) {
    const Span span("plan");
    found_.resize(count);
    parallel_for((count + kThreadChunks - 1) / kThreadChunks, [&](std::size_t part) {
      const std::size_t end = std::min(count, (part + 1) * kThreadChunks);
      for (std::size_t i = part * kThreadChunks; i < end; ++i) found_[i] = child(level, first + i);
    });
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
  std::vector<RegionPart<Query>>& parts_;
  std::size_t part_ = 0;            // the next of them
  std::deque<Place> regions_;       // that were begun, and not entered yet
  std::vector<Place> way_;          // the region first
  std::deque<Chunk<Query>> found_;  // what comes next
};

}  // namespace headrace
