#pragma once

// What a stored object is to be: made of the caller's memory, and of what was stored where a query
// does not cover it. Where it goes then is not this file's.

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/limits.h"
#include "codec/scratch.h"
#include "codec/vlen.h"
#include "engine/query/coordinates.h"
#include "engine/query/cut.h"
#include "engine/query/sink.h"
#include "engine/query/strided.h"
#include "engine/read/chunk.h"
#include "engine/request/request.h"
#include "engine/request/stored_array.h"
#include "engine/write/from_host.h"
#include "engine/write/shard_writer.h"

namespace headrace {

inline bool covers(const Points&, const Shape&) { return false; }

inline bool all_fill(ConstBytes chunk, const ArrayLayout& layout) {
  const std::vector<std::byte>& fill = layout.fill;
  if (layout.variable_length()) return all_equal(chunk, fill);
  // Each element equals the one before it, and the first the fill value: bit for bit, so that a
  // NaN counts as itself and -0.0 is kept.
  const std::size_t item = fill.size();
  return chunk.size() >= item && std::memcmp(chunk.data(), fill.data(), item) == 0 &&
         std::memcmp(chunk.data(), chunk.data() + item, chunk.size() - item) == 0;
}

// An object on its way to the store. Its bytes lie in buffers of who made it, or in the caller's
// memory.
class NewObject {
 public:
  NewObject(Buffer& encoded, Buffer& last) : encoded_(encoded), last_(last) {}

  // None: the object is to be erased.
  std::span<const ConstBytes> parts() const {
    return one_ ? std::span<const ConstBytes>(&*one_, 1) : parts_;
  }
  bool in_one_part() const { return one_.has_value(); }
  std::uint64_t held_nbytes() const {
    const bool in_encoded = one_ && one_->data() == encoded_.data();
    return (in_encoded ? encoded_.size() : 0) + last_.size();
  }

 private:
  template <typename Query>
  friend class ObjectEncoder;

  Buffer& encoded_;
  Buffer& last_;  // chunk of a plain shard
  std::optional<PlainShard> shard_;
  std::optional<ConstBytes> one_;
  std::span<const ConstBytes> parts_;
};

template <typename Query>
class ObjectEncoder {
 public:
  // All outlive it.
  ObjectEncoder(Request& request, const StoredArray& array)
      : request_(request),
        array_(array),
        layout_(array.layout),
        threads_(request.threads_for(layout_)) {
    for (const ShardLevel& level : layout_.shards)
      orders_.emplace_back(array.state.choice().shard_order, level.inner_grid);
  }

  const StoredArray& array() const { return array_; }

  // A handle may have seen a smaller array than there is by now: of an object that reaches over its
  // edge, what lies behind that is kept.
  bool keeps_some(const Query& query, const Shape& valid) const {
    return !covers(query, extent_kept(layout_.stored_shape(), valid));
  }

  // `before`: as it is stored, where keeps_some(); nothing when there is none.
  void encode(const Query& query,
              const Shape& valid,
              std::optional<ConstBytes> before,
              NewObject& object) {
    const bool whole = covers(query, valid);
    if (whole && !before && take_plain_shard(query, object)) return;
    try {
      object.one_ = encode_object(query, valid, before, object.encoded_);
    } catch (const Error& error) {
      // What is replaced need not be readable.
      if (!whole || !before || error.code() != ErrorCode::corrupt) throw;
      object.one_ = encode_object(query, valid, std::nullopt, object.encoded_);
    }
  }

  // A shard may be as large as its inner chunks, and hold what none of them is.
  std::uint64_t max_object_nbytes() const {
    const std::uint64_t chunk = max_encoded_nbytes(layout_.chain);
    std::uint64_t nbytes = chunk;
    for (const ShardLevel& level : layout_.shards) {
      const auto count = static_cast<std::uint64_t>(level.inner_count);
      if (__builtin_mul_overflow(nbytes, count, &nbytes)) return kMaxEncodedNbytes;
      if (__builtin_add_overflow(nbytes, level.index_nbytes, &nbytes)) return kMaxEncodedNbytes;
    }
    return std::min(std::max(nbytes, chunk), kMaxEncodedNbytes);
  }

  // A shard is put together in memory: where one fills the budget, two are on their way at a time,
  // so that one is encoded while the other is stored.
  int objects_at_once() const {
    if (layout_.shards.empty()) return threads_;
    const std::size_t shard = checked_nbytes(layout_.stored_shape(), layout_.itemsize(), "shard");
    const std::size_t fit = request_.memory_budget() / std::max<std::size_t>(shard, 1);
    return static_cast<int>(
        std::min<std::size_t>(std::max<std::size_t>(fit, 2), static_cast<std::size_t>(threads_)));
  }

  std::size_t decoded_nbytes() const {
    return checked_nbytes(layout_.stored_shape(), layout_.itemsize(), "object");
  }

 private:
  // What of an object, of which `valid` lies in the array, a write has to cover to keep nothing.
  const Shape& extent_kept(const Shape& shape, const Shape& valid) const {
    return array_.state.keeps_behind_edge() ? shape : valid;
  }

  std::optional<ConstBytes> encode_object(const Query& query,
                                          const Shape& valid,
                                          std::optional<ConstBytes> before,
                                          Buffer& encoded) {
    return layout_.shards.empty() ? encode_chunk(query, before, encoded)
                                  : encode_shard(query, valid, before, 0, encoded);
  }

  // An uncompressed shard in the caller's memory, where its chunks lie there as they will be
  // stored: all but the last, which may reach over the edge of the array. False where they do not.
  bool take_plain_shard(const Query& query, NewObject& object) {
    if (layout_.shards.size() != 1 || !layout_.chain.is_identity()) return false;
    const ShardLevel& level = layout_.shards.front();
    const typename Query::Cut cut(query, level.inner_shape);
    const std::size_t nbytes = layout_.chain.decoded_nbytes();
    PlainShard& shard = object.shard_.emplace(level);
    Buffer& last = object.last_;
    for (const std::size_t i : positions_in_order<Query>(orders_[0], cut, level.inner_grid)) {
      request_.check();
      Coordinates coordinates;
      Query child;
      cut.child(i, coordinates.at, child);
      auto sink = make_sink(child, level.inner_shape, layout_.itemsize());
      const std::byte* chunk = sink.ordered() ? sink.direct(0, nbytes) : nullptr;
      if (!chunk && i + 1 < cut.size()) return false;
      if (!chunk) {
        last.resize(nbytes);
        VlenArena arena;
        merge(sink, child, std::nullopt, last.bytes(), arena);
        chunk = last.data();
      }
      if (!drops({chunk, nbytes})) {
        shard.put(linear_index(coordinates.at, level.inner_grid), {chunk, nbytes});
      }
    }
    if (!shard.empty()) object.parts_ = shard.finish();
    return true;
  }

  // The encoded bytes of a chunk with the query's part replaced, in `encoded` or in the caller's
  // own memory; nothing when it ends up all fill value and such chunks are not kept.
  std::optional<ConstBytes> encode_chunk(const Query& query,
                                         std::optional<ConstBytes> before,
                                         Buffer& encoded) {
    const CodecChain& chain = layout_.chain;
    const std::size_t nbytes = chain.decoded_nbytes();
    auto sink = make_sink(query, layout_.chunk_shape, layout_.itemsize());
    if (const std::byte* user = sink.ordered() ? sink.direct(0, nbytes) : nullptr) {
      return finish_chunk({user, nbytes}, encoded);
    }
    Scratch chunk(nbytes);
    VlenArena arena;
    merge(sink, query, before, chunk.bytes(), arena);
    if (chain.is_identity()) {
      if (drops(chunk.bytes())) return std::nullopt;
      std::swap(*chunk, encoded);
      return encoded.bytes();
    }
    return finish_chunk(chunk.bytes(), encoded);
  }

  std::optional<ConstBytes> finish_chunk(ConstBytes chunk, Buffer& encoded) {
    if (drops(chunk)) return std::nullopt;
    if (layout_.chain.is_identity()) return chunk;
    layout_.chain.encode(chunk, encoded);
    return encoded.bytes();
  }

  bool drops(ConstBytes chunk) const {
    return !array_.state.choice().write_empty_chunks && all_fill(chunk, layout_);
  }

  // The chunk as it will be: what was stored, or the fill value, under what is written. `arena`
  // keeps the bytes of what was stored.
  void merge(const ChunkSink& sink,
             const Query& query,
             std::optional<ConstBytes> before,
             MutableBytes chunk,
             VlenArena& arena) {
    if (covers(query, layout_.chunk_shape)) {
      // nothing of it stays
    } else if (before) {
      layout_.chain.decode(*before, chunk, {1, &arena});
    } else {
      fill_bytes(chunk.data(), chunk.size(), layout_.fill);
    }
    sink.gather(chunk.data());
  }

  std::optional<ConstBytes> encode_shard(const Query& query,
                                         const Shape& valid,
                                         std::optional<ConstBytes> before,
                                         std::size_t depth,
                                         Buffer& encoded) {
    const ShardLevel& level = layout_.shards[depth];
    const bool innermost = depth + 1 == layout_.shards.size();
    const typename Query::Cut cut(query, level.inner_shape);
    const std::size_t inner_nbytes = checked_nbytes(level.inner_shape, layout_.itemsize(), "chunk");
    const InnerOrder& order = orders_[depth];
    const auto positions = positions_in_order<Query>(order, cut, level.inner_grid);
    ShardWriter shard(level, order, before, cut.size() * inner_nbytes);
    // Plain chunks are gathered where they will lie in the shard.
    const bool plain = innermost && layout_.chain.is_identity();
    if (plain) shard.reserve(cut.size(), inner_nbytes);
    request_.parallel(
        cut.size(),
        [&](std::size_t turn) {
          request_.check();
          Coordinates coordinates;
          Query child;
          cut.child(positions[turn], coordinates.at, child);
          const std::int64_t inner = linear_index(coordinates.at, level.inner_grid);
          const Shape inner_valid = valid_extent(coordinates, valid, level.inner_shape);
          // What is replaced need not be readable.
          const auto inner_before = covers(child, extent_kept(level.inner_shape, inner_valid))
                                        ? std::nullopt
                                        : shard.before(inner);
          if (plain) {
            const MutableBytes place = shard.reserved(turn);
            const BoxOrPointSink sink = make_sink(child, level.inner_shape, layout_.itemsize());
            VlenArena arena;
            merge(sink, child, inner_before, place, arena);
            drops(place) ? shard.remove_reserved(turn, inner) : shard.put_reserved(turn, inner);
            return;
          }
          Scratch bytes;
          const auto after =
              innermost ? encode_chunk(child, inner_before, *bytes)
                        : encode_shard(child, inner_valid, inner_before, depth + 1, *bytes);
          after ? shard.put(turn, inner, *bytes) : shard.remove(turn, inner);
        },
        threads_);
    return shard.finish(encoded) ? std::optional<ConstBytes>(encoded.bytes()) : std::nullopt;
  }

  using BoxOrPointSink = decltype(make_sink(
      std::declval<const Query&>(), std::declval<const Shape&>(), std::size_t{}));

  Request& request_;
  const StoredArray& array_;
  const ArrayLayout& layout_;
  const int threads_;
  std::vector<InnerOrder> orders_;  // of the levels of shards
};

}  // namespace headrace
