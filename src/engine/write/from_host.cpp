#include "engine/write/from_host.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/checked.h"
#include "base/limits.h"
#include "base/memory_errors.h"
#include "base/thread_pool.h"
#include "codec/scratch.h"
#include "codec/vlen.h"
#include "engine/query/sink.h"
#include "engine/query/strided.h"
#include "engine/read/chunk.h"
#include "engine/request/context.h"
#include "engine/write/shard_writer.h"

namespace headrace {
namespace {

// A shard's memory up to this is asked for at once and touched as it fills; beyond, it grows.
constexpr std::size_t kMaxRoom = std::size_t{256} << 20;

bool covers(const Points&, const Shape&) { return false; }

bool all_fill(ConstBytes chunk, const ArrayLayout& layout) {
  const std::vector<std::byte>& fill = layout.fill;
  if (layout.variable_length()) return all_equal(chunk, fill);
  // Each element equals the one before it, and the first the fill value: bit for bit, so that a
  // NaN counts as itself and -0.0 is kept.
  const std::size_t item = fill.size();
  return chunk.size() >= item && std::memcmp(chunk.data(), fill.data(), item) == 0 &&
         std::memcmp(chunk.data(), chunk.data() + item, chunk.size() - item) == 0;
}

template <typename Query>
class Writer {
 public:
  explicit Writer(RequestContext& context) : context_(context), layout_(context.layout) {
    for (const ShardLevel& level : layout_.shards)
      orders_.emplace_back(context.state.choice().shard_order, level.inner_grid);
  }

  void write_region(const Query& query, const Region& region) {
    const Shape& shape = layout_.stored_shape();
    const typename Query::Cut cut(query, GridCut(shape, region.first_chunk));
    context_.parallel(
        cut.size(),
        [&](std::size_t i) {
          context_.check();
          Coordinates coordinates;
          Query child;
          cut.child(i, coordinates.at, child);
          const std::string key = context_.chunk_key(coordinates.at);
          try {
            const Shape& extent = layout_.metadata->shape;
            write_one(key, child, valid_extent(coordinates, extent, shape, region));
          } catch (const Error& error) {
            throw error.with_context(context_.place("write", key));
          }
        },
        objects_at_once());
  }

  void write_one(const std::string& key, const Query& query, const Shape& valid) {
    // A handle may have seen a smaller array than there is by now: of an object that reaches over
    // its edge, what lies behind that is kept.
    const bool whole = covers(query, valid);
    const auto lock = context_.lock_object(key);
    Scratch old;
    const std::optional<ConstBytes> before = bytes_to_keep(key, query, valid, *old);
    if (whole && !before && store_plain_shard(key, query)) return;
    Scratch encoded;
    std::optional<ConstBytes> after;
    try {
      after = encode_object(query, valid, before, *encoded);
    } catch (const Error& error) {
      // What is replaced need not be readable.
      if (!whole || !before || error.code() != ErrorCode::corrupt) throw;
      after = encode_object(query, valid, std::nullopt, *encoded);
    }
    if (after) {
      context_.driver.set(key, *after);
    } else {
      context_.driver.erase(key);
    }
  }

 private:
  // Of the object as it is stored, what may have to be kept. Where all that can be seen of it is
  // written anew, it need not be readable.
  std::optional<ConstBytes> bytes_to_keep(const std::string& key,
                                          const Query& query,
                                          const Shape& valid,
                                          Buffer& old) {
    if (covers(query, extent_kept(layout_.stored_shape(), valid))) return std::nullopt;
    try {
      if (!context_.driver.get_latest(key, old, max_object_nbytes())) return std::nullopt;
    } catch (const Error& error) {
      if (!covers(query, valid) || error.code() != ErrorCode::corrupt) throw;
      return std::nullopt;
    }
    return old.bytes();
  }

  // What of an object, of which `valid` lies in the array, a write has to cover to keep nothing.
  const Shape& extent_kept(const Shape& shape, const Shape& valid) const {
    return context_.keeps_behind_edge() ? shape : valid;
  }

  std::optional<ConstBytes> encode_object(const Query& query,
                                          const Shape& valid,
                                          std::optional<ConstBytes> before,
                                          Buffer& encoded) {
    return layout_.shards.empty() ? encode_chunk(query, before, encoded)
                                  : encode_shard(query, valid, before, 0, encoded);
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
    if (layout_.shards.empty()) return context_.threads;
    const std::size_t shard = checked_nbytes(layout_.stored_shape(), layout_.itemsize(), "shard");
    const std::size_t fit = context_.memory_budget / std::max<std::size_t>(shard, 1);
    return static_cast<int>(std::min<std::size_t>(std::max<std::size_t>(fit, 2),
                                                  static_cast<std::size_t>(context_.threads)));
  }

  // Stores an uncompressed shard from the caller's memory, where its chunks lie there as they will
  // be stored: all but the last, which may reach over the edge of the array. False where they do
  // not.
  bool store_plain_shard(const std::string& key, const Query& query) {
    if (layout_.shards.size() != 1 || !layout_.chain.is_identity()) return false;
    const ShardLevel& level = layout_.shards.front();
    const typename Query::Cut cut(query, level.inner_shape);
    const std::size_t nbytes = layout_.chain.decoded_nbytes();
    PlainShard shard(level);
    Scratch last;
    for (const std::size_t i : positions_in_order<Query>(orders_[0], cut, level.inner_grid)) {
      context_.check();
      Coordinates coordinates;
      Query child;
      cut.child(i, coordinates.at, child);
      auto sink = make_sink(child, level.inner_shape, layout_.itemsize());
      const std::byte* chunk = sink.ordered() ? sink.direct(0, nbytes) : nullptr;
      if (!chunk && i + 1 < cut.size()) return false;
      if (!chunk) {
        last->resize(nbytes);
        VlenArena arena;
        merge(sink, child, std::nullopt, last->bytes(), arena);
        chunk = last->data();
      }
      if (!drops({chunk, nbytes})) {
        shard.put(linear_index(coordinates.at, level.inner_grid), {chunk, nbytes});
      }
    }
    if (shard.empty()) {
      context_.driver.erase(key);
    } else {
      context_.driver.set_parts(key, shard.finish());
    }
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
    return !context_.state.choice().write_empty_chunks && all_fill(chunk, layout_);
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
    ShardWriter shard(level, order, before, std::min(cut.size() * inner_nbytes, kMaxRoom));
    // Plain chunks are gathered where they will lie in the shard.
    const bool plain = innermost && layout_.chain.is_identity();
    if (plain) shard.reserve(cut.size(), inner_nbytes);
    context_.parallel(
        cut.size(),
        [&](std::size_t turn) {
          context_.check();
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
        context_.threads);
    return shard.finish(encoded) ? std::optional<ConstBytes>(encoded.bytes()) : std::nullopt;
  }

  using BoxOrPointSink = decltype(make_sink(
      std::declval<const Query&>(), std::declval<const Shape&>(), std::size_t{}));

  RequestContext& context_;
  const ArrayLayout& layout_;
  std::vector<InnerOrder> orders_;  // of the levels of shards
};

template <typename Query>
void write_query(RequestContext& context, Query query) {
  // Shards are large: one region at a time sees to it how many are put together at once.
  const bool alone = !context.layout.shards.empty() || context.threads < thread_count();
  each_region(context,
              std::move(query),
              alone ? 1 : context.threads,
              [](RequestContext& inside, const Query& part, const Region& region) {
                Writer<Query>(inside).write_region(part, region);
              });
}

}  // namespace

TensorView broadcast_to(const TensorView& view, const Shape& shape) {
  const Shape strides = view.strides_or_c();
  auto refuse = [&] {
    auto text = [](const Shape& s) { return coordinates_text(s.data(), s.size()); };
    throw Error(
        ErrorCode::invalid_argument,
        "could not broadcast data of shape " + text(view.shape) + " into shape " + text(shape));
  };
  TensorView result = view;
  result.shape = shape;
  result.strides.assign(shape.size(), 0);
  // Leading extents of 1 beyond the target's rank say nothing.
  std::size_t extra = view.shape.size() > shape.size() ? view.shape.size() - shape.size() : 0;
  for (std::size_t d = 0; d < extra; ++d) {
    if (view.shape[d] != 1) refuse();
  }
  const std::size_t skip = shape.size() - (view.shape.size() - extra);
  for (std::size_t d = skip; d < shape.size(); ++d) {
    const std::size_t from = d - skip + extra;
    if (view.shape[from] == shape[d]) {
      result.strides[d] = strides[from];
    } else if (view.shape[from] != 1) {
      refuse();
    }
  }
  return result;
}

bool covers(const Box& box, const Shape& valid) {
  for (std::size_t d = 0; d < valid.size(); ++d) {
    const Axis& axis = box.axes[d];
    if (axis.list || axis.first != 0 || axis.step != 1 || axis.count != valid[d]) return false;
  }
  return true;
}

Shape valid_extent(const Coordinates& coordinates,
                   const Shape& extent,
                   const Shape& chunk,
                   const Region& region) {
  Shape valid(chunk.size());
  for (std::size_t d = 0; d < chunk.size(); ++d) {
    std::int64_t first = coordinates.at[d] * chunk[d];
    if (!region.first_chunk.empty()) {
      first = region.first_index[d] + (coordinates.at[d] - region.first_chunk[d]) * chunk[d];
    }
    valid[d] = std::min(chunk[d], extent[d] - first);
  }
  return valid;
}

void write_object(RequestContext& context,
                  const std::string& key,
                  const Box& box,
                  const Shape& valid) {
  Writer<Box>(context).write_one(key, box, valid);
}

void write_selection(const ArrayState& state,
                     std::shared_ptr<const ArrayLayout> layout,
                     const ResolvedSelection& selection,
                     const TensorView& data,
                     const WriteOptions& options,
                     const std::atomic<bool>* cancel) {
  state.check_writable();
  RequestContext context(state, std::move(layout), options, cancel);
  if (selection.size() == 0) return;
  with_memory_errors([&] {
    context.prepare_locks();
    if (selection.pointwise) {
      write_query(context, Points(selection, data));
    } else {
      write_query(context, Box(selection, data));
    }
  });
}

}  // namespace headrace
