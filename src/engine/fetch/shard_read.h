#pragma once

// Opens a shard of a store across a network by at most one request: for its index, of which what is
// kept is taken for true. Whoever reads the shard by ChunkLevel::version learns when it is not.
// Where all of a shard is wanted and its index is not known, that request may be for all of it.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "engine/fetch/chunk_level.h"
#include "engine/fetch/in_flight.h"
#include "engine/query/inner_order.h"
#include "engine/request/request.h"
#include "store/async_driver.h"

namespace headrace {

// Throws what is wrong with an answer.
inline void check_answer(const AsyncRead& read) {
  if (read.error) std::rethrow_exception(read.error);
}

// Of ranges that are read of one object at once.
class OneVersion {
 public:
  // `io` with ESTALE when this answer is of another version than one before, or one of them is of
  // no object.
  void check(const AsyncRead& answer) {
    const MutexLock lock(mutex_);
    if (!known_) known_.emplace(answer.found, answer.version);
    if (*known_ != std::pair(answer.found, answer.version)) throw_changed(answer.key);
  }

 private:
  Mutex mutex_;
  std::optional<std::pair<bool, std::string>> known_ GUARDED_BY(mutex_);
};

// A shard that is open, as another query wants it: child `position` of that query's `parent`.
template <typename Query>
std::shared_ptr<const ChunkLevel<Query>> same_shard(const ChunkLevel<Query>& shard,
                                                    std::shared_ptr<const ChunkLevel<Query>> parent,
                                                    std::size_t position) {
  Coordinates coordinates;
  Query query;
  parent->cut.child(position, coordinates.at, query);
  auto level = std::make_shared<ChunkLevel<Query>>(std::move(query), shard.shard->inner_shape);
  level->parent = std::move(parent);
  level->position = position;
  level->depth = shard.depth;
  level->shard = shard.shard;
  level->index = shard.index;
  level->key = shard.key;
  level->version = shard.version;
  level->base = shard.base;
  return level;
}

template <typename Query>
class ShardRead : public ReadsInFlight::Read {
 public:
  using Level = ChunkLevel<Query>;

  // `whole_nbytes`: a shard of at most so many bytes may come whole, if something of
  // `inner_chunks` of its chunks is wanted and these are all; 0: none.
  ShardRead(const Request& request,
            const StoredArray& array,
            std::shared_ptr<const Level> parent,
            std::size_t position,
            std::size_t inner_chunks = 0,
            std::uint64_t whole_nbytes = 0)
      : array_(array), parent_(std::move(parent)), position_(position) {
    at([&] { prepare(request, inner_chunks, whole_nbytes); });
  }

  void use(std::size_t) override { opened(open()); }

 protected:
  // The level inside of the shard; null when the shard is not stored.
  virtual void opened(std::shared_ptr<const Level> level) = 0;

  // What opened() is told. Once.
  std::shared_ptr<const Level> open() {
    if (!ready) at([&] { take_index(); });
    return std::move(level_);
  }

  // Whether `bytes` are all of the shard.
  bool is_whole() const { return is_whole_; }

 private:
  template <typename Body>
  void at(Body body) {
    try {
      body();
    } catch (const Error& failure) {
      throw located(array_, *parent_, position_, failure);
    }
  }

  bool is_nested() const { return parent_->parent != nullptr; }

  void prepare(const Request& request, std::size_t inner_chunks, std::uint64_t whole_nbytes) {
    Coordinates coordinates;
    Query query;
    parent_->cut.child(position_, coordinates.at, query);
    ByteRange range{0, 0};
    if (is_nested()) {
      const std::optional<ByteRange> stored = find_inner(*parent_, coordinates);
      ready = !stored;
      if (ready) return;
      range = *stored;
    }
    const ShardLevel& shard = array_.layout.shards[parent_->depth];
    level_ = std::make_shared<Level>(std::move(query), shard.inner_shape);
    level_->parent = parent_;
    level_->position = position_;
    level_->depth = parent_->depth + 1;
    level_->shard = &shard;
    level_->key = is_nested() ? parent_->key : array_.key(coordinates.at);
    level_->version = parent_->version;
    level_->base = range.offset;
    place_ = index_place(*level_);
    ready = take_kept(request);
    if (ready) return;
    check_inner_count(shard.inner_grid);
    const auto keeps_parts = [&] { return array_.driver.async_reads()->keeps_parts(level_->key); };
    if (whole_nbytes > 0 && !is_nested() && inner_chunks == inner_chunks_inside(coordinates) &&
        !keeps_parts()) {
      is_whole_ = true;
      key = level_->key;
      max_nbytes = held_nbytes = whole_nbytes;
    } else {
      ask(range);
    }
  }

  // Inner chunks that lie within the array.
  std::size_t inner_chunks_inside(const Coordinates& coordinates) const {
    const ShardLevel& shard = *level_->shard;
    const Shape& shape = array_.layout.metadata->shape;
    std::size_t inner = 1;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const std::int64_t first = coordinates.at[d] * shard.shard_shape[d];
      const std::int64_t inside = std::min(shard.shard_shape[d], shape[d] - first);
      const std::int64_t chunk = shard.inner_shape[d];
      inner *= static_cast<std::size_t>((inside + chunk - 1) / chunk);
    }
    return inner;
  }

  // Where nothing is wanted of what the index has, no request would tell whether it still is true.
  bool take_kept(const Request& request) {
    IndexCache& cache = array_.state.shared()->index_cache;
    IndexCache::Versioned kept;
    if (is_nested()) {
      const std::uint64_t number = version_number(level_->version);
      if (number != 0) kept = {level_->version, cache.find(place_, number)};
    } else if (request.trusts_kept_indices()) {
      kept = cache.find_any(place_);
    }
    if (!kept.index) return false;
    level_->version = std::move(kept.version);
    level_->index = std::move(kept.index);
    Coordinates coordinates;
    Query query;
    for (std::size_t i = 0; i < level_->cut.size(); ++i) {
      level_->cut.child(i, coordinates.at, query);
      if (level_->index->has(linear_index(coordinates.at, level_->shard->inner_grid))) return true;
    }
    level_->index = nullptr;
    if (!is_nested()) level_->version.clear();
    return false;
  }

  void ask(const ByteRange& range) {
    const ShardLevel& shard = *level_->shard;
    key = level_->key;
    held_nbytes = shard.index_nbytes;
    if (!is_nested()) {
      extent = index_part(shard);
      return;
    }
    shard_nbytes_ = range.nbytes;
    check_holds_index(range.nbytes, shard.index_nbytes);
    const std::uint64_t in_shard = shard.index_at_end ? range.nbytes - shard.index_nbytes : 0;
    extent = Extent::range(range.offset + in_shard, shard.index_nbytes);
    if_version = level_->version;
  }

  void take_index() {
    check_answer(*this);
    if (!found) {
      if (is_nested()) throw_changed(key);
      level_ = nullptr;
      return;
    }
    if (!is_nested()) {
      level_->version = version;
      // Where the store does not tell, a range that ends behind the shard is found by asking for
      // it.
      shard_nbytes_ = object_nbytes != 0 ? object_nbytes : UINT64_MAX;
      if (is_whole_) shard_nbytes_ = bytes.size();
      check_holds_index(bytes.size(), level_->shard->index_nbytes);
    }
    const std::size_t index_nbytes = level_->shard->index_nbytes;
    ConstBytes encoded = bytes;
    if (is_whole_) {
      encoded =
          level_->shard->index_at_end ? encoded.last(index_nbytes) : encoded.first(index_nbytes);
    }
    auto index = std::make_shared<const ShardIndex>(
        decode_shard_index(encoded, level_->shard->index_chain, shard_nbytes_));
    if (!level_->version.empty()) {
      array_.state.shared()->index_cache.put(
          place_, version_number(level_->version), index, level_->version);
    }
    level_->index = std::move(index);
  }

  const StoredArray& array_;
  const std::shared_ptr<const Level> parent_;
  const std::size_t position_;
  std::shared_ptr<Level> level_;  // null: nothing is stored there
  bool is_whole_ = false;
  std::uint64_t shard_nbytes_ = 0;
  std::string place_;
};

}  // namespace headrace
