#include "engine/fetch/plan.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/thread_pool.h"

namespace headrace {
namespace {

// Measured on a warm page cache: a system call costs less than a copy of 16 KiB.
constexpr std::uint64_t kLocalGap = std::uint64_t{16} << 10;
// Of a local store, for bytes that are only copied on.
constexpr std::uint64_t kDeviceRun = std::uint64_t{1} << 20;
// Larger chunks of a local store cost more to read than to ask for.
constexpr std::size_t kMaxBatchedChunk = std::size_t{1} << 20;

// Of a store across a network, what it says itself comes before what the configuration does.
Coalescing near_in(const StoreDriver& driver, FetchFor purpose, const Config& config) {
  if (!driver.local()) {
    return driver.coalescing().value_or(Coalescing{config.coalesce_gap, config.coalesce_run});
  }
  return {kLocalGap, purpose == FetchFor::device ? kDeviceRun : kCachedNbytes};
}

// 0 to n - 1 in their order, but chunks of one shard behind its first one.
std::vector<std::size_t> by_shards(std::size_t n,
                                   FunctionRef<std::optional<WantedChunk>(std::size_t i)> wanted) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::size_t> first_of(n);
  std::unordered_map<const void*, std::size_t> first_of_shard;
  const void* shard = nullptr;  // of the one before
  std::size_t first = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::optional<WantedChunk> chunk = wanted(i);
    if (!chunk || !chunk->shard) {
      first_of[i] = i;
      continue;
    }
    if (std::exchange(shard, chunk->shard) != chunk->shard)
      first = first_of_shard.try_emplace(shard, i).first->second;
    first_of[i] = first;
  }
  if (!std::is_sorted(first_of.begin(), first_of.end())) {
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return first_of[a] < first_of[b];
    });
  }
  return order;
}

}  // namespace

FetchPlan::FetchPlan(const StoredArray& array,
                     const Request& request,
                     FetchFor purpose,
                     std::size_t threads)
    : driver_(array.driver),
      layout_(array.layout),
      purpose_(purpose),
      threads_(threads),
      held_nbytes_(request.memory_budget() / 2),
      near_(near_in(driver_, purpose, request.config())) {}

// For the caller one thread fetches ahead for all; to a device each fetches for itself.
std::size_t FetchPlan::objects_at_once(std::size_t chunks) const {
  const bool ahead = purpose_ == FetchFor::caller;
  const std::size_t most = driver_.batch_size();
  const std::size_t nbytes = std::max<std::size_t>(layout_.chain.decoded_nbytes(), 1);
  const bool large = nbytes > kMaxBatchedChunk && (!ahead || driver_.local());
  if (most == 1 || !layout_.shards.empty() || large) return 0;
  const std::size_t held = ahead ? kFetchedBatches : threads_;
  const std::size_t shares = ahead ? 2 : threads_;
  const std::size_t batch =
      std::min({most, held_nbytes_ / (held * nbytes), (chunks + shares - 1) / shares});
  // Opening costs a request of its own, which a local store answers sooner than a batch of one.
  return batch == 1 && driver_.local() ? 0 : batch;
}

// The caller's memory takes chunks that are not encoded straight from the store, and all from where
// they lie in memory already.
bool FetchPlan::has_runs(const ObjectReader& shard, std::size_t chunks) const {
  if (purpose_ != FetchFor::caller) return true;
  if (layout_.chain.is_identity() || !shard.mapped().empty()) return false;
  return chunks > 1 || !driver_.local();
}

bool FetchPlan::is_swollen(std::uint64_t encoded_nbytes) const {
  constexpr std::uint64_t kMost = 2, kSlack = 1 << 20;
  return purpose_ != FetchFor::caller && !layout_.variable_length() &&
         encoded_nbytes > kMost * layout_.chain.decoded_nbytes() + kSlack;
}

FetchList FetchPlan::list(std::size_t n,
                          std::size_t batch,
                          FunctionRef<std::optional<WantedChunk>(std::size_t i)> wanted) const {
  const std::size_t nbytes = layout_.chain.decoded_nbytes();
  FetchList list;
  const void* shard = nullptr;  // of those that wait for their neighbours
  std::vector<std::size_t> inner;
  std::vector<ByteRange> ranges;
  const auto add_shard = [&] {
    add_runs(list, inner, ranges);
    inner.clear();
    ranges.clear();
  };
  for (const std::size_t i : by_shards(n, wanted)) {
    const std::optional<WantedChunk> chunk = wanted(i);
    if (!chunk) continue;
    if (is_part(layout_, chunk->nbytes, nbytes) || is_swollen(chunk->range.nbytes) ||
        (!chunk->shard && batch == 0)) {
      list.requests.push_back({FetchRequest::Kind::alone, list.order.size()});
      list.order.push_back(i);
    } else if (!chunk->shard) {
      add_object(list, i, batch);
    } else {
      if (chunk->shard != shard) add_shard();
      shard = chunk->shard;
      inner.push_back(i);
      ranges.push_back(chunk->range);
    }
  }
  add_shard();
  return list;
}

void FetchPlan::add_object(FetchList& list, std::size_t chunk, std::size_t batch) const {
  if (list.requests.empty() || list.requests.back().kind != FetchRequest::Kind::batch ||
      list.requests.back().count == batch) {
    list.requests.push_back({FetchRequest::Kind::batch, list.order.size(), 0});
  }
  ++list.requests.back().count;
  list.order.push_back(chunk);
}

void FetchPlan::add_runs(FetchList& list,
                         std::span<const std::size_t> chunks,
                         std::span<const ByteRange> ranges) const {
  const std::vector<RangeGroup> groups = coalesce(ranges, near_);
  for (std::span<const RangeGroup> rest = groups; !rest.empty();) {
    const std::size_t n = runs_at_once(rest);
    FetchRequest request{FetchRequest::Kind::runs, list.order.size(), 0};
    for (const RangeGroup& group : rest.first(n)) {
      request.runs.push_back({list.order.size(), group.members.size(), group.range});
      for (const std::size_t member : group.members) list.order.push_back(chunks[member]);
    }
    request.count = list.order.size() - request.first;
    list.requests.push_back(std::move(request));
    rest = rest.subspan(n);
  }
}

// The first ones of `runs`: one, and across a network as many as there is room for.
std::size_t FetchPlan::runs_at_once(std::span<const RangeGroup> runs) const {
  if (driver_.local()) return 1;
  std::size_t room = held_nbytes_ / threads_;
  std::size_t n = 0;
  for (; n < runs.size() && runs[n].range.nbytes <= room; ++n)
    room -= static_cast<std::size_t>(runs[n].range.nbytes);
  return std::max<std::size_t>(n, 1);
}

BatchedObject FetchPlan::result_of(const GetRequest& request) const {
  if (request.error) std::rethrow_exception(request.error);
  if (!request.found) return BatchedObject::missing;
  return is_swollen(request.into->size()) ? BatchedObject::reopen : BatchedObject::whole;
}

ReadsInFlight::Limits limits_of_flight(const Request& request, const AsyncReads& store) {
  const std::size_t enough = 2 * std::max<std::size_t>(store.depth(), 1);
  return {std::min(request.io_depth(), enough), request.io_nbytes()};
}

void read_runs(const StoreDriver& driver,
               const ObjectReader& reader,
               std::span<const FetchRequest::Run> runs,
               std::span<std::byte* const> targets,
               int threads) {
  std::vector<RangeRead> together;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const ByteRange& range = runs[r].range;
    const MutableBytes target(targets[r], static_cast<std::size_t>(range.nbytes));
    if (!driver.local()) {
      together.push_back({range.offset, target});
      continue;
    }
    in_pieces(target.size(), threads, kReadPiece, [&](std::size_t at, std::size_t n) {
      reader.read(range.offset + at, target.subspan(at, n));
    });
  }
  if (!together.empty()) reader.read_ranges(together);
}

void in_pieces(std::size_t nbytes,
               int threads,
               std::size_t piece_nbytes,
               FunctionRef<void(std::size_t at, std::size_t n)> body) {
  const std::size_t piece = threads > 1 ? piece_nbytes : std::max<std::size_t>(nbytes, 1);
  parallel_for((nbytes + piece - 1) / piece,
               [&](std::size_t i) { body(i * piece, std::min(piece, nbytes - i * piece)); },
               threads);
}

}  // namespace headrace
