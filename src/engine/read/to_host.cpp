#include "engine/read/to_host.h"

#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "base/thread_pool.h"
#include "codec/scratch.h"
#include "codec/vlen.h"
#include "engine/fetch/chunk_level.h"
#include "engine/fetch/objects.h"
#include "engine/read/chunk.h"

namespace headrace {
namespace {

// Of a local store: runs that stay in the L2 cache until they are decoded beat longer ones.
constexpr std::uint64_t kLocalRun = 256 << 10;

// Reads what a query asks for; Query is Box or Points.
template <typename Query>
class Reader {
 public:
  explicit Reader(RequestContext& context)
      : context_(context),
        layout_(context.layout),
        threads_(context.threads),
        few_chunks_(context.threads < thread_count()) {}

  void read_region(Query query, const Region& region) {
    const auto level = top_level(layout_, region, std::move(query));
    if (const std::size_t batch = batch_size(*level); batch > 0) {
      read_batches(*level, batch);
    } else {
      read_level(level);
    }
  }

 private:
  using Level = ChunkLevel<Query>;

  void read_level(const std::shared_ptr<const Level>& level) {
    if (!is_innermost(layout_, *level)) {
      each(level->cut.size(), [&](std::size_t i) {
        if (const auto shard = open_shard(context_, level, i)) {
          read_level(shard);
        } else {
          fill(*level, i);
        }
      });
    } else if (level->parent && !layout_.chain.is_identity() && level->reader->mapped().empty() &&
               (level->cut.size() > 1 || !context_.driver.local())) {
      read_runs(*level);
    } else {
      each(level->cut.size(), [&](std::size_t i) { read_one(*level, i); });
    }
  }

  // One level of chunks.
  template <typename Body>
  void each(std::size_t n, Body body) {
    if (n < 2 * static_cast<std::size_t>(threads_)) few_chunks_ = true;
    context_.parallel(
        n,
        [&](std::size_t i) {
          context_.check();
          body(i);
        },
        threads_);
  }

  DecodeContext decode_context() const {
    return {few_chunks_ ? thread_count() : 1, context_.arena};
  }

  // Names the array and the chunk in what goes wrong.
  template <typename Body>
  void at(const Level& level, std::size_t position, Body body) {
    try {
      body();
    } catch (const Error& error) {
      throw located(context_, level, position, error);
    }
  }

  void fill(const Level& level, std::size_t position) {
    Coordinates coordinates;
    Query query;
    level.cut.child(position, coordinates.at, query);
    const Shape& shape = is_innermost(layout_, level) ? layout_.chunk_shape
                                                      : layout_.shards[level.depth].shard_shape;
    make_sink(query, shape, layout_.itemsize()).fill(layout_.fill);
  }

  void read_one(const Level& level, std::size_t position) {
    Coordinates coordinates;
    Query query;
    level.cut.child(position, coordinates.at, query);
    at(level, position, [&] {
      const auto stored = find_stored(context_, level, coordinates);
      const bool found =
          stored && unless_removed([&] {
            read_chunk(layout_, *stored->reader, stored->range, query, decode_context());
          });
      if (found)
        context_.count_encoded(stored->range.nbytes);
      else
        make_sink(query, layout_.chunk_shape, layout_.itemsize()).fill(layout_.fill);
    });
  }

  // The inner chunks of a shard, neighbours in one request.
  void read_runs(const Level& level) {
    const std::uint64_t max_nbytes = max_encoded_nbytes(layout_.chain);
    std::vector<std::size_t> stored;
    std::vector<ByteRange> ranges;
    Coordinates coordinates;
    Query query;
    for (std::size_t i = 0; i < level.cut.size(); ++i) {
      level.cut.child(i, coordinates.at, query);
      std::optional<ByteRange> range;
      at(level, i, [&] {
        range = find_inner(level, coordinates);
        if (range) checked_encoded_nbytes(range->nbytes, max_nbytes);
      });
      if (range) {
        stored.push_back(i);
        ranges.push_back(*range);
      } else {
        make_sink(query, layout_.chunk_shape, layout_.itemsize()).fill(layout_.fill);
      }
    }
    const std::vector<RangeGroup> groups = near_groups(context_, ranges, kLocalRun);
    std::vector<std::span<const RangeGroup>> requests;
    const std::size_t room = context_.memory_budget / 2 / static_cast<std::size_t>(threads_);
    for (std::span<const RangeGroup> rest = groups; !rest.empty();) {
      requests.push_back(rest.first(asked_at_once(context_, rest, room)));
      rest = rest.subspan(requests.back().size());
    }
    each(requests.size(), [&](std::size_t r) { read_groups(level, stored, ranges, requests[r]); });
  }

  // By one request. `ranges` are those of the children at `stored`.
  void read_groups(const Level& level,
                   const std::vector<std::size_t>& stored,
                   const std::vector<ByteRange>& ranges,
                   std::span<const RangeGroup> groups) {
    const std::size_t first = stored[groups.front().members.front()];
    Scratch encoded;
    at(level, first, [&] {
      std::uint64_t nbytes = 0;
      for (const RangeGroup& group : groups) nbytes += checked_encoded_nbytes(group.range.nbytes);
      encoded->resize(checked_encoded_nbytes(nbytes));
    });
    std::vector<RangeRead> reads;
    std::vector<std::pair<std::size_t, ConstBytes>> chunks;
    MutableBytes free = encoded.bytes();
    for (const RangeGroup& group : groups) {
      const MutableBytes run = free.first(group.range.nbytes);
      free = free.subspan(run.size());
      reads.push_back({group.range.offset, run});
      for (const std::size_t member : group.members) {
        const auto [offset, nbytes] = ranges[member];
        chunks.emplace_back(stored[member], run.subspan(offset - group.range.offset, nbytes));
      }
    }
    const bool found =
        unless_removed([&] { at(level, first, [&] { level.reader->read_ranges(reads); }); });
    const auto use = [&](std::size_t i) {
      const auto& [position, bytes] = chunks[i];
      found ? decode(level, position, bytes) : fill(level, position);
    };
    context_.parallel(chunks.size(), use, context_.driver.local() ? 1 : threads_);
  }

  void decode(const Level& level, std::size_t position, ConstBytes encoded) {
    Coordinates coordinates;
    Query query;
    level.cut.child(position, coordinates.at, query);
    context_.count_encoded(encoded.size());
    auto sink = make_sink(query, layout_.chunk_shape, layout_.itemsize());
    at(level, position, [&] { decode_chunk(layout_.chain, encoded, sink, decode_context()); });
  }

  // Whole objects to ask the store for at once, 0 to open one after the other: where it gains
  // nothing by batches, chunks are large or few of their bytes are wanted. What the batches hold
  // fits into half of the budget.
  std::size_t batch_size(const Level& level) const {
    const std::size_t most = context_.driver.batch_size();
    const std::size_t nbytes = std::max<std::size_t>(layout_.chain.decoded_nbytes(), 1);
    const std::size_t chunks = level.cut.size();
    const bool large = nbytes > kMaxBatchedChunk && context_.driver.local();
    if (most == 1 || !layout_.shards.empty() || large) return 0;
    if (layout_.chain.is_identity() &&
        level.query.size() * layout_.itemsize() < chunks * nbytes / 2) {
      return 0;
    }
    const std::size_t fit = context_.memory_budget / 2 / (kFetchedBatches * nbytes);
    const std::size_t batch = std::min({most, fit, (chunks + 1) / 2});
    // Opening costs a request of its own, which a local store answers sooner than a batch of one.
    return batch == 1 && context_.driver.local() ? 0 : batch;
  }

  void read_batches(const Level& level, std::size_t batch) {
    const std::size_t n = level.cut.size();
    if (n < 2 * static_cast<std::size_t>(threads_)) few_chunks_ = true;
    fetch_objects(
        context_.driver,
        {n, batch, threads_, max_encoded_nbytes(layout_.chain)},
        [&](std::size_t i) {
          Coordinates coordinates;
          Query query;
          level.cut.child(i, coordinates.at, query);
          return context_.chunk_key(coordinates.at);
        },
        [&](std::size_t i, const GetRequest& request) {
          if (request.error) {
            at(level, i, [&] { std::rethrow_exception(request.error); });
          } else if (request.found) {
            decode(level, i, request.into->bytes());
          } else if (context_.driver.has_files()) {
            read_one(level, i);  // tells what is missing from what is no file
          } else {
            fill(level, i);
          }
        },
        [&] { context_.check(); });
  }

  RequestContext& context_;
  const ArrayLayout& layout_;
  const int threads_;
  std::atomic<bool> few_chunks_;  // at a time: each may use several threads
};

template <typename Query>
void read_query(RequestContext& context, Query query) {
  // Each thread decodes one chunk at a time: where the budget has room for fewer, one region does.
  const int threads = context.threads < thread_count() ? 1 : context.threads;
  each_region(context,
              std::move(query),
              threads,
              [](RequestContext& inside, Query part, const Region& region) {
                Reader<Query>(inside).read_region(std::move(part), region);
              });
}

void read_elements(RequestContext& context,
                   const ResolvedSelection& selection,
                   const TensorView& out) {
  check_on_device(context.layout, Device::Type::cpu);
  if (selection.size() == 0) return;
  if (selection.pointwise) {
    read_query(context, Points(selection, out));
  } else {
    read_query(context, Box(selection, out));
  }
}

// A result of variable length: its elements, and all that they point into.
struct VlenResult {
  VlenArena arena;
  std::shared_ptr<const ArrayLayout> layout;  // has the fill value
  std::shared_ptr<std::byte> elements;
};

}  // namespace

void read_selection(const ArrayState& state,
                    std::shared_ptr<const ArrayLayout> layout,
                    const ResolvedSelection& selection,
                    const TensorView& out,
                    const ReadOptions& options,
                    const std::atomic<bool>* cancel) {
  again_when_changed([&] {
    RequestContext context(state, layout, options, cancel);
    read_elements(context, selection, out);
  });
}

Tensor read_vlen_selection(const ArrayState& state,
                           std::shared_ptr<const ArrayLayout> layout,
                           const ResolvedSelection& selection,
                           const ReadOptions& options,
                           const std::atomic<bool>* cancel) {
  return again_when_changed([&] {
    RequestContext context(state, layout, options, cancel);
    const auto result = std::make_shared<VlenResult>();
    result->layout = context.layout_owner;
    const Shape& shape = selection.result_shape;
    const DType& dtype = context.layout.metadata->dtype;
    result->elements = allocate_shared(checked_nbytes(shape, dtype.itemsize(), "size of a tensor"));
    Tensor tensor(
        std::shared_ptr<void>(result, result->elements.get()), shape, dtype, Device::cpu());
    context.arena = &result->arena;
    read_elements(context, selection, tensor.view());
    return tensor;
  });
}

}  // namespace headrace
