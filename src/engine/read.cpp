#include "engine/read.h"

#include <algorithm>
#include <optional>

#include "base/thread_pool.h"
#include "codec/scratch.h"
#include "engine/fetch.h"
#include "engine/read_chunk.h"
#include "engine/read_plain.h"
#include "store/coalesce.h"

namespace headrace {
namespace {

// For local stores, measured on a warm page cache: runs that stay in the L2 cache until they are
// decoded beat longer ones, and a system call costs less than a copy of 16 KiB.
constexpr std::uint64_t kLocalRun = 256 << 10;
constexpr std::uint64_t kLocalGap = 16 << 10;

// Larger chunks cost more to read than to ask for: they are not asked for in batches.
constexpr std::size_t kMaxBatchedChunk = 1 << 20;

// Reads what a query asks for; Query is Box or Points.
template <typename Query>
class Reader {
 public:
  Reader(RequestContext& context, int level_threads) : context_(context), threads_(level_threads) {}

  void read_array(const Query& query) {
    const ArrayMetadata& m = *context_.layout.metadata;
    const typename Query::Cut cut(query, m.chunk_shape);
    if (const std::size_t batch = batch_size(query, cut); batch > 1) {
      read_batches(cut, batch);
      return;
    }
    each(cut, [&](const Coordinates& coordinates, const Query& child) {
      const std::string key = context_.chunk_key(coordinates.at);
      at_chunk(key, [&] { read_object(key, child); });
    });
  }

 private:
  // One level of chunks. When they are too few for the threads, each may use several.
  template <typename Body>
  void each(const typename Query::Cut& cut, Body body) {
    const std::size_t n = cut.size();
    note_units(n);
    parallel_for(
        n,
        [&](std::size_t i) {
          context_.check();
          Coordinates coordinates;
          Query child;
          cut.child(i, coordinates.at, child);
          body(coordinates, child);
        },
        threads_);
  }

  void note_units(std::size_t n) {
    if (n < 2 * static_cast<std::size_t>(threads_)) few_chunks_ = true;
  }

  // Objects to ask the store for at once: several where it gains by that, whole chunks are small
  // and most of their bytes are wanted. What the batches hold fits into half of the budget.
  std::size_t batch_size(const Query& query, const typename Query::Cut& cut) const {
    const ArrayLayout& layout = context_.layout;
    const std::size_t most = context_.driver.batch_size();
    const std::size_t nbytes = std::max<std::size_t>(layout.chain.decoded_nbytes(), 1);
    if (most == 1 || !layout.shards.empty() || nbytes > kMaxBatchedChunk) return 1;
    if (layout.chain.is_identity() && query.size() * layout.itemsize() < cut.size() * nbytes / 2) {
      return 1;
    }
    const std::size_t fit = context_.config.memory_budget / 2 / (kFetchedBatches * nbytes);
    return std::min({most, fit, (cut.size() + 1) / 2});
  }

  void read_batches(const typename Query::Cut& cut, std::size_t batch) {
    note_units(cut.size());
    const auto child = [&](std::size_t i, Query& query) {
      Coordinates coordinates;
      cut.child(i, coordinates.at, query);
      return context_.chunk_key(coordinates.at);
    };
    fetch_objects(
        context_.driver,
        {cut.size(), batch, threads_},
        [&](std::size_t i) {
          Query query;
          return child(i, query);
        },
        [&](std::size_t i, const GetRequest& request) {
          Query query;
          child(i, query);
          at_chunk(request.key, [&] { read_fetched(request, query); });
        },
        [&] { context_.check(); });
  }

  void read_fetched(const GetRequest& request, const Query& query) {
    const ArrayLayout& layout = context_.layout;
    if (request.error) std::rethrow_exception(request.error);
    if (!request.found) {
      read_object(request.key, query);  // tells what is missing from what is no object
      return;
    }
    auto sink = make_sink(query, layout.chunk_shape, layout.itemsize());
    if (layout.chain.is_identity()) {
      check_plain_size(layout, request.into->size());
      sink.scatter(request.into->data());
    } else {
      decode_chunk(layout.chain, request.into->bytes(), sink, decode_context());
    }
  }

  // Names the array and the chunk in what goes wrong.
  template <typename Body>
  void at_chunk(const std::string& key, Body body) {
    try {
      body();
    } catch (const Error& error) {
      throw error.with_context(context_.place("read", key));
    }
  }

  void read_object(const std::string& key, const Query& query) {
    const ArrayLayout& layout = context_.layout;
    const std::unique_ptr<ObjectReader> reader = context_.driver.open(key);
    if (!reader) {
      make_sink(query, layout.stored_shape(), layout.itemsize()).fill(layout.fill);
    } else if (!layout.shards.empty()) {
      read_shard(key, *reader, 0, reader->size(), 0, query);
    } else {
      read_chunk(layout, *reader, 0, reader->size(), query, decode_context());
    }
  }

  DecodeContext decode_context() const { return {few_chunks_ ? context_.threads : 1}; }

  void read_shard(const std::string& key,
                  const ObjectReader& reader,
                  std::uint64_t base,
                  std::uint64_t nbytes,
                  std::size_t depth,
                  const Query& query) {
    const ArrayLayout& layout = context_.layout;
    const ShardLevel& level = layout.shards[depth];
    const auto index = load_shard_index(context_, level, key, reader, base, nbytes);
    const typename Query::Cut cut(query, level.inner_shape);
    const bool innermost = depth + 1 == layout.shards.size();
    if (innermost && !layout.chain.is_identity() && reader.mapped().empty() && cut.size() > 1) {
      read_runs(reader, base, level, *index, cut);
      return;
    }
    each(cut, [&](const Coordinates& coordinates, const Query& child) {
      const std::int64_t i = linear_index(coordinates.at, level.inner_grid);
      within(coordinates, [&] {
        if (!index->has(i)) {
          make_sink(child, level.inner_shape, layout.itemsize()).fill(layout.fill);
          return;
        }
        const auto [offset, nbytes_of_inner] = index->range(i);
        if (innermost) {
          read_chunk(layout, reader, base + offset, nbytes_of_inner, child, decode_context());
        } else {
          read_shard(key, reader, base + offset, nbytes_of_inner, depth + 1, child);
        }
      });
    });
  }

  // The inner chunks of a shard, neighbours in one request.
  void read_runs(const ObjectReader& reader,
                 std::uint64_t base,
                 const ShardLevel& level,
                 const ShardIndex& index,
                 const typename Query::Cut& cut) {
    const ArrayLayout& layout = context_.layout;
    std::vector<std::size_t> present;
    std::vector<ByteRange> ranges;
    Coordinates coordinates;
    Query child;
    for (std::size_t i = 0; i < cut.size(); ++i) {
      cut.child(i, coordinates.at, child);
      const std::int64_t chunk = linear_index(coordinates.at, level.inner_grid);
      if (index.has(chunk)) {
        within(coordinates, [&] {
          const auto [offset, nbytes] = index.range(chunk);
          ranges.push_back({offset, nbytes});
        });
        present.push_back(i);
      } else {
        make_sink(child, level.inner_shape, layout.itemsize()).fill(layout.fill);
      }
    }
    const bool local = context_.driver.local();
    const auto groups = coalesce(ranges,
                                 local ? kLocalGap : context_.config.coalesce_gap,
                                 local ? kLocalRun : context_.config.coalesce_run);
    note_units(groups.size());
    parallel_for(
        groups.size(),
        [&](std::size_t g) {
          context_.check();
          const RangeGroup& group = groups[g];
          Scratch run(checked_encoded_nbytes(group.range.nbytes));
          reader.read(base + group.range.offset, run.bytes());
          for (std::size_t member : group.members) {
            Coordinates at;
            Query wanted;
            cut.child(present[member], at.at, wanted);
            auto sink = make_sink(wanted, layout.chunk_shape, layout.itemsize());
            const ByteRange& range = ranges[member];
            const ConstBytes bytes = run.bytes();
            within(at, [&] {
              decode_chunk(layout.chain,
                           bytes.subspan(range.offset - group.range.offset, range.nbytes),
                           sink,
                           decode_context());
            });
          }
        },
        threads_);
  }

  // Names the inner chunk in what goes wrong.
  template <typename Body>
  void within(const Coordinates& coordinates, Body body) {
    try {
      body();
    } catch (const Error& error) {
      throw error.with_context("inner chunk " +
                               coordinates_text(coordinates.at, context_.layout.metadata->ndim()));
    }
  }

  RequestContext& context_;
  const int threads_;
  std::atomic<bool> few_chunks_{false};
};

}  // namespace

std::shared_ptr<const ShardIndex> load_shard_index(RequestContext& context,
                                                   const ShardLevel& level,
                                                   const std::string& key,
                                                   const ObjectReader& reader,
                                                   std::uint64_t base,
                                                   std::uint64_t nbytes) {
  IndexCache& cache = context.state.shared()->index_cache;
  const std::uint64_t version = reader.version();
  // A nested shard may begin where the one around it does: its depth tells them apart.
  const auto depth = &level - context.layout.shards.data();
  const std::string place =
      depth == 0 ? key : key + '@' + std::to_string(depth) + '@' + std::to_string(base);
  if (version != 0) {
    if (auto index = cache.find(place, version)) return index;
  }
  if (nbytes < level.index_nbytes) {
    throw Error(ErrorCode::corrupt,
                "shard of " + std::to_string(nbytes) +
                    " bytes is shorter than its index, expected " +
                    std::to_string(level.index_nbytes) + " bytes for that");
  }
  const std::uint64_t offset = base + (level.index_at_end ? nbytes - level.index_nbytes : 0);
  Scratch encoded(level.index_nbytes);
  reader.read(offset, encoded.bytes());
  auto index = std::make_shared<const ShardIndex>(
      decode_shard_index(encoded.bytes(), level.index_chain, nbytes));
  if (version != 0) cache.put(place, version, index);
  return index;
}

void read_selection(const ArrayState& state,
                    std::shared_ptr<const ArrayLayout> layout,
                    const ResolvedSelection& selection,
                    const TensorView& out,
                    const ReadOptions& options,
                    const std::atomic<bool>* cancel) {
  RequestContext context(state, std::move(layout), options, cancel);
  check_on_device(context.layout, Device::Type::cpu);
  if (selection.size() == 0) return;
  if (selection.pointwise) {
    Reader<Points>(context, context.threads).read_array(Points(selection, out));
  } else {
    Reader<Box>(context, context.threads).read_array(Box(selection, out));
  }
}

}  // namespace headrace
