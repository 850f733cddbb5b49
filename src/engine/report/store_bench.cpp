#include <algorithm>
#include <chrono>
#include <limits>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/request/array_state.h"
#include "engine/request/config.h"
#include "engine/request/stored_array.h"
#include "format/chunk_grid.h"
#include "headrace/array.h"
#include "headrace/trace.h"
#include "store/async.h"
#include "store/store.h"

namespace headrace {

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kSmallNbytes = 4096;
// Of a large object as much as the engine asks for at a time in a long run.
constexpr std::uint64_t kLargeNbytes = std::uint64_t{4} << 20;
constexpr std::size_t kLatencySamples = 50;
constexpr std::size_t kObjects = 256;
constexpr std::chrono::seconds kPatience{30};
// More than this of the best is enough: beyond it requests cost memory for nothing.
constexpr double kEnough = 0.95;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

struct Object {
  std::string key;
  std::uint64_t nbytes = 0;
};

// Keeps so many reads under way, until there was enough of it.
class Rounds {
 public:
  explicit Rounds(AsyncReads& store) : store_(store) {}

  struct Result {
    std::vector<double> seconds{};  // of each read, sorted
    std::vector<Object> found{};
    std::uint64_t nbytes = 0;
    double elapsed = 0;
  };
  struct Limits {
    std::size_t depth = 1;
    std::size_t reads = std::numeric_limits<std::size_t>::max();
    std::uint64_t nbytes = std::numeric_limits<std::uint64_t>::max();
    double seconds = std::numeric_limits<double>::max();
  };

  // `prepare` says what a read asks for. Throws what the first read that fails says.
  template <typename Prepare>
  Result run(const Limits& limits, Prepare prepare) {
    Result result;
    std::list<std::unique_ptr<Read>> under_way;
    std::exception_ptr failed;
    std::size_t begun = 0;
    std::uint64_t asked = 0;
    const Clock::time_point start = Clock::now();
    for (;;) {
      while (under_way.size() < limits.depth && !failed && begun < limits.reads &&
             asked < limits.nbytes && seconds_since(start) < limits.seconds) {
        Read& read = *under_way.emplace_back(std::make_unique<Read>(*this));
        prepare(read);
        ++begun;
        asked += read.extent.nbytes;
        read.begun = Clock::now();
        read.deadline = read.begun + kPatience;
        AsyncRead* const submitted = &read;
        store_.submit({&submitted, 1});
      }
      if (under_way.empty()) break;
      const Read& read = wait();
      if (read.error && !failed) failed = read.error;
      if (!read.error && read.found) {
        result.seconds.push_back(read.took);
        result.nbytes += read.bytes.size();
        result.found.push_back({read.key, read.object_nbytes});
      }
      under_way.remove_if([&](const auto& one) { return one.get() == &read; });
    }
    result.elapsed = seconds_since(start);
    if (failed) std::rethrow_exception(failed);
    std::sort(result.seconds.begin(), result.seconds.end());
    return result;
  }

  class Read final : public AsyncRead {
   public:
    explicit Read(Rounds& rounds) : rounds_(rounds) {}
    void done() noexcept override {
      took = seconds_since(begun);
      rounds_.answered(*this);
    }
    Clock::time_point begun{};
    double took = 0;
    Read* next_done = nullptr;

   private:
    Rounds& rounds_;
  };

 private:
  // Under the lock to its end: who waits frees the read.
  void answered(Read& read) noexcept {
    const MutexLock lock(mutex_);
    read.next_done = std::exchange(done_, &read);
    came_.notify_one();
  }
  Read& wait() {
    const MutexLock lock(mutex_);
    while (done_ == nullptr) came_.wait(mutex_);
    return *std::exchange(done_, done_->next_done);
  }

  AsyncReads& store_;
  Mutex mutex_;
  ConditionVariable came_;
  Read* done_ GUARDED_BY(mutex_) = nullptr;
};

class StoreBench {
 public:
  StoreBench(const ArrayState& state, AsyncReads& store, const StoreBenchOptions& options)
      : state_(state), store_(store), options_(options), random_(options.seed), rounds_(store) {}

  Json measure() {
    const std::size_t most =
        options_.max_depth > 0 ? options_.max_depth : std::max<std::size_t>(store_.depth(), 1);
    std::vector<std::size_t> depths;
    for (std::size_t depth = 1; depth < most; depth *= 2) depths.push_back(depth);
    depths.push_back(most);

    find_objects();
    const auto latencies = small_reads({1, kLatencySamples, kMost, options_.seconds / 10});
    const double turn = options_.seconds * 0.9 / static_cast<double>(2 * depths.size());
    Json levels = Json::array();
    std::vector<double> rates;
    for (const std::size_t depth : depths) {
      const auto chunks = chunk_reads({depth, kReads, options_.nbytes / depths.size(), turn});
      const auto small = small_reads({depth, kReads, kMost, turn});
      rates.push_back(static_cast<double>(chunks.nbytes) / chunks.elapsed / 1e6);
      levels.push_back({{"depth", depth},
                        {"mb_s", rates.back()},
                        {"chunks_s", static_cast<double>(chunks.seconds.size()) / chunks.elapsed},
                        {"chunk_p50_ms", quantile(chunks.seconds, 0.5) * 1e3},
                        {"chunk_p95_ms", quantile(chunks.seconds, 0.95) * 1e3},
                        {"small_s", static_cast<double>(small.seconds.size()) / small.elapsed},
                        {"nbytes", chunks.nbytes},
                        {"seconds", chunks.elapsed}});
    }
    const double best = *std::max_element(rates.begin(), rates.end());
    std::size_t enough = 0;
    while (rates[enough] < kEnough * best) ++enough;
    return {{"url", state_.driver().url()},
            {"array", state_.path()},
            {"objects", objects_.size()},
            {"object_nbytes", objects_[objects_.size() / 2].nbytes},
            {"latency_ms",
             {{"range_nbytes", kSmallNbytes},
              {"samples", latencies.seconds.size()},
              {"min", quantile(latencies.seconds, 0) * 1e3},
              {"p50", quantile(latencies.seconds, 0.5) * 1e3},
              {"p95", quantile(latencies.seconds, 0.95) * 1e3}}},
            {"levels", std::move(levels)},
            {"io_depth",
             {{"best", depths[enough]},
              {"still_rising", enough + 1 == depths.size() && depths.size() > 1},
              {"configured", config().io_depth},
              {"store", store_.depth()}}}};
  }

 private:
  static constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::size_t kReads = std::numeric_limits<std::size_t>::max();

  // By the store's list; where it has none, some of the chunks that there may be.
  void find_objects() {
    const auto metadata = state_.metadata();
    const std::string prefix = state_.path().empty() ? "" : state_.path() + "/";
    try {
      for (const ObjectSize& object : state_.driver().list_sizes(prefix)) {
        const auto at = metadata->chunk_keys.parse(
            std::string_view(object.key).substr(prefix.size()), metadata->ndim());
        if (at && object.nbytes > 0) objects_.push_back({object.key, object.nbytes});
      }
      std::shuffle(objects_.begin(), objects_.end(), random_);
      if (objects_.size() > kObjects) objects_.resize(kObjects);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::permission_denied) {
        throw;
      }
      guess_objects(*metadata);
    }
    if (objects_.empty()) {
      throw Error(ErrorCode::not_found,
                  state_.driver().url() + (prefix.empty() ? "" : " '" + state_.path() + "'") +
                      ": no chunk was found to read");
    }
    std::sort(objects_.begin(), objects_.end(), [](const Object& a, const Object& b) {
      return a.nbytes < b.nbytes;
    });
  }

  void guess_objects(const ArrayMetadata& metadata) {
    const StoredArray array(state_, state_.layout());
    const Shape grid = grid_shape(metadata.shape, metadata.chunk_shape, metadata.chunk_edges);
    double chunks = 1;
    for (const std::int64_t extent : grid) chunks *= static_cast<double>(extent);
    if (chunks == 0) return;
    const auto guesses = static_cast<std::size_t>(std::min(chunks, double{kObjects}));
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < guesses; ++i) {
      Shape at;
      // Each of few, some of many.
      auto number = static_cast<std::uint64_t>(i);
      for (const std::int64_t extent : grid) {
        const auto n = static_cast<std::uint64_t>(extent);
        at.push_back(static_cast<std::int64_t>(
            chunks <= static_cast<double>(kObjects) ? number % n : random_() % n));
        number /= n;
      }
      keys.push_back(array.key(at.data()));
    }
    const auto found = rounds_.run({std::min<std::size_t>(store_.depth(), 16), keys.size()},
                                   [&, next = std::size_t{0}](AsyncRead& read) mutable {
                                     read.key = keys[next++];
                                     read.extent = Extent::suffix(1);
                                   });
    for (const Object& object : found.found) {
      if (object.nbytes > 0) objects_.push_back(object);
    }
  }

  const Object& any() { return objects_[random_() % objects_.size()]; }

  Rounds::Result small_reads(const Rounds::Limits& limits) {
    return rounds_.run(limits, [&](AsyncRead& read) {
      const Object& object = any();
      const std::uint64_t nbytes = std::min(object.nbytes, kSmallNbytes);
      read.key = object.key;
      read.extent = Extent::range(random_() % (object.nbytes - nbytes + 1), nbytes);
    });
  }

  Rounds::Result chunk_reads(const Rounds::Limits& limits) {
    return rounds_.run(limits, [&](AsyncRead& read) {
      const Object& object = any();
      const std::uint64_t nbytes = std::min(object.nbytes, kLargeNbytes);
      read.key = object.key;
      read.extent = Extent::range(random_() % (object.nbytes - nbytes + 1), nbytes);
    });
  }

  const ArrayState& state_;
  AsyncReads& store_;
  const StoreBenchOptions options_;
  std::mt19937_64 random_;
  Rounds rounds_;
  std::vector<Object> objects_;
};

}  // namespace

std::string bench_store_json(const Array& array, const StoreBenchOptions& options) {
  const ArrayState& state = *array.state();
  AsyncReads* const store = state.driver().async_reads();
  if (store == nullptr) {
    throw Error(ErrorCode::unsupported,
                state.driver().url() +
                    ": requests are measured of stores across a network, and this one is not");
  }
  return StoreBench(state, *store, options)
      .measure()
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headrace
