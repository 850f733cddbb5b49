#include "engine/read/to_host.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/thread_pool.h"
#include "codec/scratch.h"
#include "codec/vlen.h"
#include "engine/fetch/ahead.h"
#include "engine/fetch/chunk_level.h"
#include "engine/fetch/objects.h"
#include "engine/fetch/plan.h"
#include "engine/read/chunk.h"
#include "engine/read/from_network.h"
#include "engine/request/request.h"
#include "engine/request/stored_array.h"
#include "format/chunk_grid.h"

namespace headrace {
namespace {

// Reads what a query asks for; Query is Box or Points.
template <typename Query>
class Reader {
 public:
  // `arena`: null, or for the bytes of elements of variable length.
  Reader(Request& request, const StoredArray& array, VlenArena* arena)
      : request_(request),
        array_(array),
        layout_(array.layout),
        arena_(arena),
        threads_(request.threads_for(layout_)),
        plan_(array, request, FetchFor::caller, static_cast<std::size_t>(threads_)),
        few_chunks_(threads_ < thread_count()) {}

  void read_region(Query query, const Region& region) {
    const auto level = top_level(layout_, region, std::move(query));
    if (const std::size_t batch = batch_size(*level); batch > 0) {
      read_batches(*level, batch);
    } else {
      stored_ = keys_of_sparse(*level);
      read_level(level);
    }
  }

 private:
  using Level = ChunkLevel<Query>;

  // An inner chunk of a shard: its position in the cut, its bytes in the object.
  struct StoredInner {
    std::size_t position;
    ByteRange range;
  };

  void read_level(const std::shared_ptr<const Level>& level) {
    if (!is_innermost(layout_, *level)) {
      const auto key = [&](std::size_t i) { return key_of(*level, i); };
      const ShardLevel& shard = layout_.shards[level->depth];
      const std::size_t objects = level->parent || stored_ ? 0 : level->cut.size();
      ObjectsAhead ahead(array_.driver, objects, index_part(shard), shard.index_nbytes, key);
      each(level->cut.size(), [&](std::size_t i) {
        ahead.before(i, key);
        if (const auto inner = is_expected(*level, i) ? open_shard(array_, level, i) : nullptr) {
          read_level(inner);
        } else {
          fill(*level, i);
        }
      });
    } else if (level->parent && plan_.has_runs(*level->reader, level->cut.size())) {
      read_together(*level);
    } else {
      const auto key = [&](std::size_t i) { return key_of(*level, i); };
      const bool by_itself = level->parent || stored_ || wants_parts_of_chunks(*level);
      const std::size_t objects = by_itself ? 0 : level->cut.size();
      ObjectsAhead ahead(
          array_.driver, objects, object_part(layout_.chain), layout_.chain.decoded_nbytes(), key);
      each(level->cut.size(), [&](std::size_t i) {
        ahead.before(i, key);
        is_expected(*level, i) ? read_one(*level, i) : fill(*level, i);
      });
    }
  }

  using Keys = std::unordered_set<std::string>;

  // Of a large grid in files, read for the most part, that has less than half of its objects and is
  // not being written to: their keys. To open one that is not there costs some 9 us, a name in a
  // list of what is there one.
  std::optional<Keys> keys_of_sparse(const Level& level) const {
    constexpr std::size_t kLarge = 4096;
    constexpr std::size_t kMost = std::size_t{1} << 20;  // a list takes memory and hears no signal
    // Of as many a list is worth the wait for folders that were written to just now to settle.
    constexpr std::size_t kWorthAWait = std::size_t{1} << 16;
    constexpr std::chrono::milliseconds kWait{60};
    const std::size_t n = level.cut.size();
    if (n < kLarge || n > kMost || !array_.driver.has_files()) return {};
    const ArrayMetadata& metadata = *layout_.metadata;
    double grid = 1;
    for (const std::int64_t extent :
         grid_shape(metadata.shape, metadata.chunk_shape, metadata.chunk_edges))
      grid *= static_cast<double>(extent);
    if (grid > 2 * static_cast<double>(n)) return {};
    try {
      if (!looks_sparse(level)) return {};
      const std::string& path = array_.state.path();
      const std::string prefix = path.empty() ? "" : path + '/';
      auto names = array_.driver.list_at_rest(prefix);
      if (!names && n >= kWorthAWait) {
        std::this_thread::sleep_for(kWait);
        names = array_.driver.list_at_rest(prefix);
      }
      if (!names || names->size() > n / 2) return {};
      return Keys(std::move_iterator(names->begin()), std::move_iterator(names->end()));
    } catch (const Error&) {
      return {};  // what may be entered and not listed: each object is asked for by its name
    }
  }

  // By a few objects from all over the grid: a full one is not listed in vain.
  bool looks_sparse(const Level& level) const {
    constexpr std::size_t kTried = 64;
    std::size_t missing = 0;
    for (std::size_t i = 0; i < kTried; ++i)
      missing += array_.driver.exists(key_of(level, level.cut.size() / kTried * i)) ? 0 : 1;
    return missing > kTried / 2;
  }

  std::string key_of(const Level& level, std::size_t position) const {
    return object_key(array_, level, position);
  }

  bool is_expected(const Level& level, std::size_t position) const {
    return !stored_ || level.parent || stored_->contains(key_of(level, position));
  }

  // One level of chunks.
  template <typename Body>
  void each(std::size_t n, Body body) {
    if (n < 2 * static_cast<std::size_t>(threads_)) few_chunks_ = true;
    request_.parallel(
        n,
        [&](std::size_t i) {
          request_.check();
          body(i);
        },
        threads_);
  }

  DecodeContext decode_context() const { return {few_chunks_ ? thread_count() : 1, arena_}; }

  // Names the array and the chunk in what goes wrong.
  template <typename Body>
  void at(const Level& level, std::size_t position, Body body) {
    try {
      body();
    } catch (const Error& error) {
      throw located(array_, level, position, error);
    }
  }

  void fill(const Level& level, std::size_t position) {
    Coordinates coordinates;
    Query query;
    level.cut.child(position, coordinates.at, query);
    fill(level, query);
  }

  void fill(const Level& level, const Query& query) {
    if (!level.parent) request_.note_missing(array_.state);
    const Shape& shape = is_innermost(layout_, level) ? layout_.chunk_shape
                                                      : layout_.shards[level.depth].shard_shape;
    make_sink(query, shape, layout_.itemsize()).fill(layout_.fill);
  }

  void read_one(const Level& level, std::size_t position) {
    Coordinates coordinates;
    Query query;
    level.cut.child(position, coordinates.at, query);
    at(level, position, [&] {
      const auto stored = find_stored(array_, level, coordinates);
      const bool found =
          stored && unless_removed([&] {
            read_chunk(layout_, *stored->reader, stored->range, query, decode_context());
          });
      if (found)
        request_.count_encoded(stored->range.nbytes);
      else
        fill(level, query);
    });
  }

  // The inner chunks of a shard, neighbours by one request.
  void read_together(const Level& level) {
    const std::uint64_t max_nbytes = max_encoded_nbytes(layout_.chain);
    std::vector<StoredInner> stored;
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
        stored.push_back({i, *range});
      } else {
        make_sink(query, layout_.chunk_shape, layout_.itemsize()).fill(layout_.fill);
      }
    }
    const FetchList list = plan_.list(stored.size(), 0, [&](std::size_t i) {
      return std::optional(WantedChunk{layout_.chain.decoded_nbytes(), &level, stored[i].range});
    });
    std::optional<RunsAhead> ahead;
    if (wants_parts(level)) ahead.emplace(list);
    each(list.requests.size(), [&](std::size_t r) {
      if (ahead) ahead->before(r, [&](const FetchRequest&) { return level.reader.get(); });
      read_request(level, stored, list, list.requests[r]);
    });
  }

  void read_request(const Level& level,
                    const std::vector<StoredInner>& stored,
                    const FetchList& list,
                    const FetchRequest& request) {
    const std::size_t first = stored[list.chunks_of(request).front()].position;
    Scratch encoded;
    std::vector<std::byte*> targets;
    const bool found = unless_removed([&] {
      at(level, first, [&] {
        std::uint64_t nbytes = 0;
        for (const FetchRequest::Run& run : request.runs)
          nbytes += checked_encoded_nbytes(run.range.nbytes);
        encoded->resize(checked_encoded_nbytes(nbytes));
        std::byte* target = encoded->data();
        for (const FetchRequest::Run& run : request.runs)
          targets.push_back(std::exchange(target, target + run.range.nbytes));
        read_runs(array_.driver, *level.reader, request.runs, targets, 1);
      });
    });
    std::vector<std::pair<std::size_t, ConstBytes>> chunks;
    for (std::size_t r = 0; r < request.runs.size(); ++r) {
      const FetchRequest::Run& run = request.runs[r];
      for (const std::size_t i : list.chunks_of(run)) {
        const auto& [position, range] = stored[i];
        const std::byte* const bytes = targets[r] + (range.offset - run.range.offset);
        chunks.emplace_back(position, ConstBytes(bytes, range.nbytes));
      }
    }
    const auto use = [&](std::size_t i) {
      const auto& [position, bytes] = chunks[i];
      found ? decode(level, position, bytes) : fill(level, position);
    };
    request_.parallel(chunks.size(), use, array_.driver.local() ? 1 : threads_);
  }

  void decode(const Level& level, std::size_t position, ConstBytes encoded) {
    Coordinates coordinates;
    Query query;
    level.cut.child(position, coordinates.at, query);
    request_.count_encoded(encoded.size());
    auto sink = make_sink(query, layout_.chunk_shape, layout_.itemsize());
    at(level, position, [&] { decode_chunk(layout_.chain, encoded, sink, decode_context()); });
  }

  // Whether chunks are read where they lie.
  bool wants_parts_of_chunks(const Level& level) const {
    const std::size_t wanted = level.query.size() * layout_.itemsize();
    return is_part(layout_, wanted, level.cut.size() * layout_.chain.decoded_nbytes());
  }

  // Whole objects to ask the store for at once, 0 to open one after the other.
  std::size_t batch_size(const Level& level) const {
    return wants_parts_of_chunks(level) ? 0 : plan_.objects_at_once(level.cut.size());
  }

  void read_batches(const Level& level, std::size_t batch) {
    const std::size_t n = level.cut.size();
    if (n < 2 * static_cast<std::size_t>(threads_)) few_chunks_ = true;
    fetch_objects(
        array_.driver,
        {n, batch, threads_, max_encoded_nbytes(layout_.chain)},
        [&](std::size_t i) { return key_of(level, i); },
        [&](std::size_t i, const GetRequest& request) {
          BatchedObject result{};
          at(level, i, [&] { result = plan_.result_of(request); });
          switch (result) {
            case BatchedObject::whole:
              return decode(level, i, request.into->bytes());
            case BatchedObject::missing:
              return fill(level, i);
            case BatchedObject::reopen:
              return read_one(level, i);
          }
        },
        [&] { request_.check(); });
  }

  Request& request_;
  const StoredArray& array_;
  const ArrayLayout& layout_;
  VlenArena* const arena_;
  const int threads_;
  const FetchPlan plan_;
  std::optional<Keys> stored_;    // none: each is looked for
  std::atomic<bool> few_chunks_;  // at a time: each may use several threads
};

template <typename Query>
void read_query(Request& request, const StoredArray& array, VlenArena* arena, Query query) {
  if (array.driver.async_reads() != nullptr) {
    std::vector<NetworkQuery> alone;
    alone.push_back({&array, arena, std::move(query)});
    return read_from_network(request, std::move(alone));
  }
  // Each thread decodes one chunk at a time: where the budget has room for fewer, one region does.
  const int fit = request.threads_for(array.layout);
  const int threads = fit < thread_count() ? 1 : fit;
  each_region(request,
              array,
              std::move(query),
              threads,
              [&](const StoredArray& inside, Query part, const Region& region) {
                Reader<Query>(request, inside, arena).read_region(std::move(part), region);
              });
}

void read_elements(Request& request,
                   const StoredArray& array,
                   VlenArena* arena,
                   const ResolvedSelection& selection,
                   const TensorView& out) {
  check_forced(array.layout.devices, Device::Type::cpu);
  if (selection.size() == 0) return;
  if (selection.pointwise) {
    read_query(request, array, arena, Points(selection, out));
  } else {
    read_query(request, array, arena, Box(selection, out));
  }
}

void read_all_from_network(Request& request, std::span<const HostRead> reads) {
  std::deque<StoredArray> arrays;
  std::vector<NetworkQuery> queries;
  for (const HostRead& read : reads) {
    check_forced(read.layout->devices, Device::Type::cpu);
    if (read.selection->size() == 0) continue;
    // One array is one: its shards are asked for once.
    const auto is_same = [&](const StoredArray& other) {
      return &other.state == read.state && other.layout_owner == read.layout;
    };
    auto known = std::find_if(arrays.rbegin(), arrays.rend(), is_same);
    const StoredArray& array =
        known == arrays.rend() ? arrays.emplace_back(*read.state, read.layout) : *known;
    if (read.selection->pointwise) {
      queries.push_back({&array, nullptr, Points(*read.selection, read.out)});
    } else {
      queries.push_back({&array, nullptr, Box(*read.selection, read.out)});
    }
  }
  read_from_network(request, std::move(queries));
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
  again_when_changed([&](int attempt) {
    Request request(options, cancel, attempt);
    read_elements(request, {state, layout}, nullptr, selection, out);
    request.check_array_is_there();
  });
}

void read_from_network_together(std::span<const HostRead> reads, const ReadOptions& options) {
  again_when_changed([&](int attempt) {
    Request request(options, nullptr, attempt);
    read_all_from_network(request, reads);
  });
}

Tensor read_vlen_selection(const ArrayState& state,
                           std::shared_ptr<const ArrayLayout> layout,
                           const ResolvedSelection& selection,
                           const ReadOptions& options,
                           const std::atomic<bool>* cancel) {
  return again_when_changed([&](int attempt) {
    Request request(options, cancel, attempt);
    const StoredArray array(state, layout);
    const auto result = std::make_shared<VlenResult>();
    result->layout = array.layout_owner;
    const Shape& shape = selection.result_shape;
    const DType& dtype = array.layout.metadata->dtype;
    result->elements = allocate_shared(checked_nbytes(shape, dtype.itemsize(), "size of a tensor"));
    Tensor tensor(
        std::shared_ptr<void>(result, result->elements.get()), shape, dtype, Device::cpu());
    read_elements(request, array, &result->arena, selection, tensor.view());
    request.check_array_is_there();
    return tensor;
  });
}

}  // namespace headrace
