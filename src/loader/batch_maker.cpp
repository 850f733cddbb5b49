#include "loader/batch_maker.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include "base/checked.h"
#include "base/mutex.h"
#include "base/start_thread.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "headrace/config.h"

namespace headrace::loader {
namespace {

// Kernels are launched for all of them together.
constexpr std::size_t kDeviceChunks = 64;
constexpr std::int64_t kBatchesAhead = 64;
constexpr std::chrono::milliseconds kPollInterval{50};

// Where there is no memory for the message it is left out.
void add_once(std::vector<std::string>& messages, std::string_view message) noexcept {
  constexpr std::size_t kMost = 100;
  const bool is_known = std::find(messages.begin(), messages.end(), message) != messages.end();
  if (is_known || messages.size() == kMost) return;
  try {
    messages.emplace_back(message);
  } catch (const std::bad_alloc&) {
  }
}

std::size_t largest_chunk_nbytes(const Plan& plan) {
  std::size_t largest = 1;
  for (const PlannedVariable& variable : plan.variables)
    largest = std::max(largest, variable.largest_chunk_nbytes());
  return largest;
}

bool is_remote(const Plan& plan) {
  return std::any_of(
      plan.variables.begin(), plan.variables.end(), [](const PlannedVariable& variable) {
        return variable.array.store().across_network();
      });
}

// Encoded bytes and what decoding takes lie on the device beside the chunks: once for what the
// batch in the making waits for, once for what is read beside it, each within a part of the budget.
ReadLimit device_read_limit(const Plan& plan, std::size_t largest, std::size_t quarter) {
  constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
  const Config settings = config();
  const std::size_t slabs = 4 * settings.device_slab_nbytes;  // SlabsInFlight::kOpen
  if (!is_remote(plan) || quarter / 2 < largest) {
    const std::size_t nbytes = std::max(largest, std::min(slabs, quarter));
    return {nbytes, kUnlimited, nbytes, kDeviceChunks};
  }
  const std::size_t nbytes = std::max(largest, std::min(slabs, quarter / 2));
  const std::size_t beside = std::max(largest, std::min(settings.io_nbytes, quarter / 2));
  const std::size_t chunks = std::clamp<std::size_t>(beside / largest, 1, settings.io_depth);
  return {nbytes + beside, kUnlimited, nbytes, kDeviceChunks, chunks, beside};
}

// A quarter of the budget at most, and one chunk at least. What the engine holds beside the chunks
// is the encoded bytes of one a thread, or the slabs of a device.
ReadLimit read_limit(const Plan& plan) {
  const std::size_t largest = largest_chunk_nbytes(plan);
  const std::size_t quarter = plan.options.memory_budget / 4;
  constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
  if (!plan.options.device.is_cpu()) return device_read_limit(plan, largest, quarter);
  if (is_remote(plan)) {
    // What is asked for and not decoded yet is no more than the chunks that it becomes.
    const Config settings = config();
    const std::size_t nbytes = std::max(largest, std::min(settings.io_nbytes, quarter));
    const std::size_t chunks = std::clamp<std::size_t>(nbytes / largest, 1, settings.io_depth);
    return {nbytes, kUnlimited, nbytes, chunks, chunks, nbytes};
  }
  const auto threads = static_cast<std::size_t>(std::max(thread_count(), 1));
  const std::size_t chunks = std::clamp<std::size_t>(quarter / largest, 1, threads);
  return {chunks * largest, chunks == threads ? kUnlimited : chunks, kUnlimited, chunks};
}

bool is_floating(const DType& dtype) {
  return dtype.kind() == DType::Kind::floating || dtype == DType::bfloat16;
}

// An element for what is in a bad chunk: NaN, 0 where there is none.
std::vector<std::uint8_t> bad_element(const DType& dtype) {
  std::vector<std::uint8_t> bytes(dtype.itemsize());
  if (!is_floating(dtype)) return bytes;
  std::fill(bytes.begin(), bytes.end(), std::uint8_t{0xff});
  bytes.back() = 0x7f;
  return bytes;
}

}  // namespace

std::size_t cache_nbytes(const Plan& plan) {
  // One is in the making, one is the caller's.
  const std::size_t batches = static_cast<std::size_t>(plan.options.prefetch) + 2;
  const std::size_t largest = largest_chunk_nbytes(plan);
  const std::size_t taken = checked_add(checked_mul(batches, plan.batch_nbytes(), "prefetch"),
                                        read_limit(plan).reserved_nbytes,
                                        "prefetch");
  const std::size_t budget = plan.options.memory_budget;
  if (taken <= budget && largest <= budget - taken) return budget - taken;
  throw Error(ErrorCode::out_of_memory,
              "[loader] memory_budget: " + std::to_string(batches) + " batches of " +
                  std::to_string(plan.batch_nbytes()) + " bytes, a chunk of up to " +
                  std::to_string(largest) + " and what it takes to decode it need " +
                  std::to_string(checked_add(taken, largest, "prefetch")) + " bytes, got " +
                  std::to_string(budget));
}

// A chunk to be read: into the batch for `need`, or to be kept.
struct BatchMaker::ReadJob {
  ChunkKey key;
  Need* need = nullptr;  // of the batch in the making
  bool direct = false;
  std::size_t nbytes = 0;  // of the cache
  std::shared_ptr<void> memory{};
  bool bad = false;
  bool dropped = false;  // read ahead in vain: it is for the batch that needs it to say so
};

// Chunks of the next batches, read by a thread of its own.
struct BatchMaker::BesideRead {
  std::vector<ReadJob> jobs;
  std::vector<ReadRequest> requests;
  std::size_t nbytes = 0;
  std::atomic<bool> stop{false};
  Mutex mutex;
  ConditionVariable changed;
  bool over GUARDED_BY(mutex) = false;
  std::vector<std::string> failures{};  // what the errors said; used by the thread alone
  std::thread thread;                   // the last member: it uses all others

  void run(const std::atomic<bool>& session_stops, StatsBoard& board) {
    const Span span("read beside");
    std::atomic<std::uint64_t> compressed{0};
    ReadOptions options;
    options.encoded_nbytes = &compressed;
    options.poll = [&] {
      if (stop.load(std::memory_order_relaxed) || session_stops.load(std::memory_order_relaxed))
        throw Error(ErrorCode::cancelled, "[loader] the loader was closed");
    };
    read(0, jobs.size(), options);
    board.update([&](Stats& stats) {
      for (const ReadJob& job : jobs) {
        if (job.dropped) continue;
        ++stats.chunks_decoded;
        stats.decoded_nbytes += static_cast<std::int64_t>(job.nbytes);
      }
      stats.compressed_nbytes += static_cast<std::int64_t>(compressed.load());
      for (const std::string& failure : failures) add_once(stats.failed_ahead, failure);
    });
    const MutexLock lock(mutex);
    over = true;
    changed.notify_all();
  }

  bool is_over(std::chrono::milliseconds patience = {}) {
    const MutexLock lock(mutex);
    if (!over && patience.count() > 0) changed.wait_for(mutex, patience);
    return over;
  }

  void drop(std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) jobs[i].dropped = true;
  }

  // What cannot be read is for the batch that needs it to say: of some that fail, halves are tried.
  void read(std::size_t first, std::size_t count, const ReadOptions& options) {
    try {
      read_many({requests.begin() + static_cast<std::ptrdiff_t>(first),
                 requests.begin() + static_cast<std::ptrdiff_t>(first + count)},
                options);
      return;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled) return drop(first, count);
      add_once(failures, error.what());
    } catch (const std::exception& error) {
      // A codec of the application's, or no memory: likewise.
      add_once(failures, error.what());
    } catch (...) {
      add_once(failures, "unknown error");
    }
    if (count == 1) return drop(first, count);
    read(first, count / 2, options);
    read(first + count / 2, count - count / 2, options);
  }
};

BatchMaker::BatchMaker(std::shared_ptr<const Plan> plan,
                       StatsBoard& board,
                       const std::atomic<bool>& stop)
    : plan_(std::move(plan)),
      board_(board),
      stop_(stop),
      memory_(make_batch_memory(plan_->options.device)),
      cache_(cache_nbytes(*plan_)),
      limit_(read_limit(*plan_)),
      boxes_(plan_->variables.size()) {}

BatchMaker::~BatchMaker() { stop_reads_beside(); }

void BatchMaker::begin_epoch(std::shared_ptr<const Order> order, std::int64_t epoch) {
  stop_reads_beside();
  order_ = std::move(order);
  epoch_ = epoch;
  needed_.clear();
  for (const PlannedVariable& variable : plan_->variables)
    needed_.emplace_back(static_cast<std::size_t>(variable.chunk_count()));
  cache_.forget_uses();
}

std::vector<std::int64_t> BatchMaker::samples_of_rank(std::int64_t position) const {
  const Options& options = plan_->options;
  const std::int64_t end = std::min(position + plan_->global_batch(), order_->size());
  std::vector<std::int64_t> samples;
  for (std::int64_t at = position + options.rank; at < end; at += options.world_size)
    samples.push_back(order_->sample_at(at));
  return samples;
}

Batch BatchMaker::new_batch(std::int64_t samples) {
  Batch batch;
  batch.samples = samples;
  batch.epoch = epoch_;
  tensors_.clear();
  for (const PlannedTensor& planned : plan_->tensors) {
    Shape shape{samples};
    shape.insert(shape.end(), planned.sample_shape.begin(), planned.sample_shape.end());
    batch.tensors.push_back(memory_->allocate_tensor(shape, planned.dtype));
    const Tensor& tensor = batch.tensors.back();
    tensors_.push_back(static_cast<std::uint8_t*>(tensor.data()));
    if (planned.has_gaps && tensor.nbytes() > 0) memory_->zero(tensor.data(), tensor.nbytes());
  }
  return batch;
}

Batch BatchMaker::make(std::int64_t position, const std::function<void()>& poll) {
  poll_ = poll;
  std::vector<Need> needs;
  std::vector<std::int64_t> samples;
  {
    const Span span("plan");
    const StageTimer timer(board_, &Stats::plan_s);
    samples = samples_of_rank(position);
    needs = find_needs(*plan_, samples);
    count_needed(needs);
  }
  // An error may have left something of the batch before.
  cache_.unpin();
  for (auto& boxes : boxes_) boxes.clear();
  bad_samples_.assign(samples.size(), false);
  Batch batch = new_batch(static_cast<std::int64_t>(samples.size()));
  try {
    serve(needs, position);
    replace_bad_samples(batch);
  } catch (...) {
    memory_->finish();  // what a device was given may still write to the batch
    throw;
  }
  memory_->finish();
  return batch;
}

bool BatchMaker::read_ahead(std::int64_t position, std::int64_t now) {
  if (reads_beside()) {
    poll_ = {};
    begin_reads_beside(position, now);
    const auto is_there = [&](const Need& need) { return cache_.find(need.key) != nullptr; };
    const auto needs = find_needs(*plan_, samples_of_rank(position));
    if (std::all_of(needs.begin(), needs.end(), is_there)) return true;
    if (beside_.empty()) return false;
    wait_for(beside_.begin());
    begin_reads_beside(position, now);
    return std::all_of(needs.begin(), needs.end(), is_there);
  }
  std::vector<ReadJob> jobs;
  for (const Need& need : find_needs(*plan_, samples_of_rank(position))) {
    if (cache_.find(need.key) || is_direct(need)) continue;
    const std::size_t nbytes = plan_->variables[need.key.variable].chunk_nbytes(need.key.chunk);
    jobs.push_back({need.key, nullptr, false, nbytes});
  }
  std::size_t nbytes = 0;
  for (const ReadJob& job : jobs) nbytes += job.nbytes;
  if (!make_room(nbytes, now, position)) return false;
  if (jobs.empty()) return true;
  add_following(jobs, position, now);
  read(jobs);
  for (ReadJob& job : jobs)
    if (!job.dropped) keep(job, position);
  return true;
}

// Where no other sample can need it.
bool BatchMaker::is_direct(const Need& need) const {
  const PlannedVariable& variable = plan_->variables[need.key.variable];
  // What is read before its batch has memory is kept.
  if (reads_beside() || variable.format || need.parts.size() != 1) return false;
  const Range samples = plan_->samples_of(variable, need.key.chunk);
  if (samples.second - samples.first != 1) return false;
  const Shape at = variable.chunk_at(need.key.chunk);
  for (std::size_t d = 0; d < at.size(); ++d) {
    const ChunkAxis& axis = variable.axes[d].chunks;
    if (need.parts[0].box.count[d] != axis.end(at[d]) - axis.begin(at[d])) return false;
  }
  return true;
}

bool BatchMaker::make_room(std::size_t nbytes, std::int64_t now, std::int64_t needed_until) {
  return cache_.make_room(nbytes, now, needed_until, [&](const ChunkKey& key) {
    return order_->next_use(plan_->samples_of(plan_->variables[key.variable], key.chunk), now);
  });
}

void BatchMaker::serve(std::vector<Need>& needs, std::int64_t position) {
  std::vector<ReadJob> missing;
  std::vector<Need*> under_way;
  std::int64_t hits = 0;
  for (Need& need : needs) {
    CachedChunk* const chunk = cache_.find(need.key);
    if (chunk == nullptr) {
      missing.push_back({need.key, &need, is_direct(need)});
      continue;
    }
    chunk->pinned = true;
    if (chunk->under_way) {
      under_way.push_back(&need);
    } else {
      use_cached(need, position);
      ++hits;
    }
  }
  board_.update([&](Stats& stats) { stats.cache_hits += hits; });

  if (reads_beside()) {
    missing = begin_needed(std::move(missing), under_way, position);
    begin_reads_beside(position + plan_->global_batch(), position);
  }
  read_missing(std::move(missing), position);
  std::vector<ReadJob> failed;
  for (Need* const need : under_way) {
    CachedChunk* chunk = cache_.find(need->key);
    if (chunk != nullptr && chunk->under_way) {
      wait_for(read_of(need->key));
      chunk = cache_.find(need->key);
    }
    if (chunk == nullptr) {
      failed.push_back({need->key, need, false});
    } else {
      use_cached(*need, position);
    }
  }
  read_missing(std::move(failed), position);
  flush();
}

void BatchMaker::use_cached(Need& need, std::int64_t position) {
  CachedChunk& chunk = *cache_.find(need.key);
  chunk.pinned = true;
  chunk.next_use = position;
  add_parts(need, chunk);
  if (chunk.bad) note_bad(need);
}

void BatchMaker::read_missing(std::vector<ReadJob> missing, std::int64_t position) {
  std::size_t done = 0;
  while (done < missing.size()) {
    // As many as there is room for.
    std::vector<ReadJob> jobs;
    std::size_t nbytes = 0;
    while (done < missing.size()) {
      ReadJob& job = missing[done];
      const PlannedVariable& variable = plan_->variables[job.key.variable];
      job.nbytes = job.direct ? 0 : variable.chunk_nbytes(job.key.chunk);
      if (!make_room(nbytes + job.nbytes, position, std::numeric_limits<std::int64_t>::min()))
        break;
      nbytes += job.nbytes;
      jobs.push_back(std::move(job));
      ++done;
    }
    if (jobs.empty()) {  // what this batch has been given so far takes all of it
      flush();
      // Or what is on its way for later ones.
      if (!beside_.empty()) wait_for(beside_.begin());
      continue;
    }
    if (done == missing.size() && !reads_beside()) add_following(jobs, position, position);
    read(jobs);
    for (ReadJob& job : jobs) {
      if (!job.need) {
        if (!job.dropped) keep(job, position);
      } else if (!job.direct || job.bad) {
        CachedChunk& chunk = keep(job, position);
        chunk.pinned = true;
        add_parts(*job.need, chunk);
      }
      if (job.need && job.bad) note_bad(*job.need);
    }
  }
}

// Those of the batch in the making go out before all others; what there is no room for is returned.
std::vector<BatchMaker::ReadJob> BatchMaker::begin_needed(std::vector<ReadJob> missing,
                                                          std::vector<Need*>& under_way,
                                                          std::int64_t position) {
  std::vector<ReadJob> begun;
  std::vector<ReadJob> left;
  std::size_t nbytes = 0;
  for (ReadJob& job : missing) {
    const PlannedVariable& variable = plan_->variables[job.key.variable];
    const std::size_t size = variable.chunk_nbytes(job.key.chunk);
    const bool is_enough =
        !plan_->options.device.is_cpu() && nbytes > 0 && nbytes + size > limit_.nbytes;
    if (!left.empty() || is_enough ||
        !make_room(nbytes + size, position, std::numeric_limits<std::int64_t>::min())) {
      left.push_back(std::move(job));
      continue;
    }
    nbytes += size;
    begun.push_back({job.key, nullptr, false, size});
    under_way.push_back(job.need);
  }
  if (begun.empty()) return left;
  begin_reads_of(std::move(begun), position);
  for (Need* const need : under_way) cache_.find(need->key)->pinned = true;
  return left;
}

// Chunks of the batches from `position` on, as many as may be under way and there is room for,
// while the batch from `now` on is the next.
void BatchMaker::begin_reads_beside(std::int64_t position, std::int64_t now) {
  for (auto read = beside_.begin(); read != beside_.end();) {
    read = (*read)->is_over() ? end_read_beside(read) : std::next(read);
  }
  // So many by one call, so that new ones go out before all of the others are there.
  const std::size_t at_once = std::max<std::size_t>(limit_.beside_chunks / 4, 1);
  std::vector<ReadJob> jobs;
  std::size_t nbytes = 0;
  const auto begin = [&] {
    if (!jobs.empty()) begin_reads_of(std::exchange(jobs, {}), position);
    nbytes = 0;
  };
  // Where all is there for long it is not looked for further.
  std::size_t looked = 0;
  for (std::int64_t i = 0; looked < 2 * limit_.beside_chunks; ++i) {
    const std::int64_t at = position + i * plan_->global_batch();
    if (at >= order_->size()) break;
    for (const Need& need : find_needs(*plan_, samples_of_rank(at))) {
      ++looked;
      const auto is_wanted = [&](const ReadJob& job) { return job.key == need.key; };
      if (cache_.find(need.key) || std::any_of(jobs.begin(), jobs.end(), is_wanted)) continue;
      const std::size_t size = plan_->variables[need.key.variable].chunk_nbytes(need.key.chunk);
      const bool is_enough = beside_chunks_ + jobs.size() >= limit_.beside_chunks ||
                             beside_nbytes_ + nbytes + size > limit_.beside_nbytes;
      if (is_enough || !make_room(nbytes + size, now, at)) return begin();
      nbytes += size;
      jobs.push_back({need.key, nullptr, false, size});
      if (jobs.size() == at_once) begin();
    }
  }
  begin();
}

// To the host one call has the requests of all arrays under way at a time; to a device a call for
// each does.
void BatchMaker::begin_reads_of(std::vector<ReadJob> jobs, std::int64_t position) {
  if (plan_->options.device.is_cpu()) return begin_read_beside(std::move(jobs), position);
  std::vector<std::vector<ReadJob>> of_variables(plan_->variables.size());
  for (ReadJob& job : jobs) of_variables[job.key.variable].push_back(std::move(job));
  for (auto& of_variable : of_variables)
    if (!of_variable.empty()) begin_read_beside(std::move(of_variable), position);
}

void BatchMaker::begin_read_beside(std::vector<ReadJob> jobs, std::int64_t position) {
  auto read = std::make_unique<BesideRead>();
  for (ReadJob& job : jobs) {
    job.memory = memory_->allocate(job.nbytes);
    read->requests.push_back(read_request(job));
    read->nbytes += job.nbytes;
  }
  read->jobs = std::move(jobs);
  BesideRead& begun = *read;
  for (const ReadJob& job : begun.jobs) {
    CachedChunk chunk{job.memory, job.nbytes, position};
    chunk.under_way = true;
    cache_.insert(job.key, std::move(chunk));
  }
  beside_chunks_ += begun.jobs.size();
  beside_nbytes_ += begun.nbytes;
  beside_.push_back(std::move(read));
  try {
    begun.thread = start_thread([this, &begun] { begun.run(stop_, board_); });
  } catch (const std::exception& error) {
    // Nobody reads them: the batches that need them do.
    board_.update([&](Stats& stats) { add_once(stats.failed_ahead, error.what()); });
    for (ReadJob& job : begun.jobs) job.dropped = true;
    const MutexLock lock(begun.mutex);
    begun.over = true;
  }
}

BatchMaker::BesideReads::iterator BatchMaker::read_of(const ChunkKey& key) {
  return std::find_if(beside_.begin(), beside_.end(), [&](const auto& read) {
    return std::any_of(
        read->jobs.begin(), read->jobs.end(), [&](const ReadJob& job) { return job.key == key; });
  });
}

void BatchMaker::wait_for(BesideReads::iterator read) {
  const StageTimer timer(board_, &Stats::read_s);
  const ReadOptions options = read_options();
  while (!(*read)->is_over(kPollInterval)) options.poll();
  end_read_beside(read);
}

// Of one that is over or was stopped.
BatchMaker::BesideReads::iterator BatchMaker::end_read_beside(BesideReads::iterator read) {
  BesideRead& ended = **read;
  if (ended.thread.joinable()) ended.thread.join();
  beside_chunks_ -= ended.jobs.size();
  beside_nbytes_ -= ended.nbytes;
  for (const ReadJob& job : ended.jobs) {
    if (job.dropped) {
      cache_.erase(job.key);
    } else {
      cache_.find(job.key)->under_way = false;
    }
  }
  const auto nbytes = static_cast<std::int64_t>(cache_.nbytes());
  board_.update(
      [&](Stats& stats) { stats.peak_cache_nbytes = std::max(stats.peak_cache_nbytes, nbytes); });
  return beside_.erase(read);
}

void BatchMaker::stop_reads_beside() {
  for (const auto& read : beside_) read->stop = true;
  while (!beside_.empty()) end_read_beside(beside_.begin());
}

// Chunks of the batches after the one at `position`, up to what is best decoded together.
void BatchMaker::add_following(std::vector<ReadJob>& jobs,
                               std::int64_t position,
                               std::int64_t now) {
  std::size_t nbytes = 0;
  for (const ReadJob& job : jobs) nbytes += job.nbytes;
  for (std::int64_t i = 1; i <= kBatchesAhead; ++i) {
    const std::int64_t at = position + i * plan_->global_batch();
    if (at >= order_->size() || jobs.size() >= limit_.together || nbytes >= limit_.nbytes) return;
    bool any_kept = false;
    for (const Need& need : find_needs(*plan_, samples_of_rank(at))) {
      if (is_direct(need)) continue;
      any_kept = true;
      const auto is_wanted = [&](const ReadJob& job) { return job.key == need.key; };
      if (cache_.find(need.key) || std::any_of(jobs.begin(), jobs.end(), is_wanted)) continue;
      const std::size_t size = plan_->variables[need.key.variable].chunk_nbytes(need.key.chunk);
      if (!make_room(nbytes + size, now, at)) return;
      nbytes += size;
      jobs.push_back({need.key, nullptr, false, size});
    }
    if (!any_kept) return;  // nor in the batches after it
  }
}

ReadRequest BatchMaker::read_request(const ReadJob& job) const {
  const PlannedVariable& variable = plan_->variables[job.key.variable];
  const Shape at = variable.chunk_at(job.key.chunk);
  std::vector<SelectionItem> items;
  TensorView out{job.memory.get(), {}, {}, variable.dtype, plan_->options.device};
  for (std::size_t d = 0; d < at.size(); ++d) {
    const ChunkAxis& axis = variable.axes[d].chunks;
    items.emplace_back(slice(axis.begin(at[d]), axis.end(at[d])));
    out.shape.push_back(axis.end(at[d]) - axis.begin(at[d]));
  }
  if (job.direct) {
    const ChunkPart& part = job.need->parts[0];
    out.data = tensors_[variable.tensor] + part.target_offset;
    out.strides.assign(part.box.to, part.box.to + at.size());
  }
  return {variable.array, Selection(std::move(items)), std::move(out)};
}

ReadOptions BatchMaker::read_options() const {
  ReadOptions options;
  options.stream = memory_->stream();
  options.poll = [this] {
    if (stop_.load(std::memory_order_relaxed))
      throw Error(ErrorCode::cancelled, "[loader] the loader was closed");
    if (poll_) poll_();
  };
  return options;
}

// As many at once as the limit has it.
void BatchMaker::read(std::span<ReadJob> jobs) {
  const StageTimer timer(board_, &Stats::read_s);
  while (!jobs.empty()) {
    std::size_t count = 0, nbytes = 0;
    while (count < jobs.size() && count < limit_.chunks) {
      const ChunkKey& key = jobs[count].key;
      nbytes += plan_->variables[key.variable].chunk_nbytes(key.chunk);
      if (count > 0 && nbytes > limit_.nbytes) break;
      ++count;
    }
    read_together(jobs.first(count));
    jobs = jobs.subspan(count);
  }
}

// Where that fails and not all is lost by it, one after the other.
void BatchMaker::read_together(std::span<ReadJob> jobs) {
  std::vector<ReadRequest> requests;
  std::int64_t decoded = 0;
  for (ReadJob& job : jobs) {
    const PlannedVariable& variable = plan_->variables[job.key.variable];
    decoded += static_cast<std::int64_t>(variable.chunk_nbytes(job.key.chunk));
    if (!job.direct) job.memory = memory_->allocate(job.nbytes);
    requests.push_back(read_request(job));
  }
  const bool raises = plan_->options.on_bad_chunk == BadChunk::raise;
  const bool all_needed =
      std::all_of(jobs.begin(), jobs.end(), [](const ReadJob& job) { return job.need; });
  std::atomic<std::uint64_t> compressed{0};
  ReadOptions options = read_options();
  options.encoded_nbytes = &compressed;
  try {
    read_many(requests, options);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled || (raises && all_needed)) throw;
    compressed = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) read_alone(jobs[i], requests[i], options);
  }
  board_.update([&](Stats& stats) {
    stats.chunks_decoded += static_cast<std::int64_t>(jobs.size());
    stats.decoded_nbytes += decoded;
    stats.compressed_nbytes += static_cast<std::int64_t>(compressed.load());
  });
}

void BatchMaker::read_alone(ReadJob& job, const ReadRequest& request, const ReadOptions& options) {
  try {
    read_many({request}, options);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled) throw;
    if (!job.need) {
      job.dropped = true;
      board_.update([&](Stats& stats) { add_once(stats.failed_ahead, error.what()); });
      return;
    }
    if (error.code() != ErrorCode::corrupt || plan_->options.on_bad_chunk == BadChunk::raise) throw;
    job.bad = true;
    bad_message_ = error.what();
    board_.update([&](Stats& stats) { add_once(stats.bad_chunks, bad_message_); });
  }
}

CachedChunk& BatchMaker::keep(ReadJob& job, std::int64_t position) {
  CachedChunk chunk{std::move(job.memory), job.nbytes, position};
  if (job.bad) {
    const auto element = bad_element(plan_->variables[job.key.variable].dtype);
    chunk.memory = memory_->allocate(element.size());
    memory_->upload(chunk.memory.get(), element.data(), element.size());
    chunk.nbytes = element.size();
    chunk.bad = true;
  }
  CachedChunk& kept = cache_.insert(job.key, std::move(chunk));
  const auto nbytes = static_cast<std::int64_t>(cache_.nbytes());
  board_.update(
      [&](Stats& stats) { stats.peak_cache_nbytes = std::max(stats.peak_cache_nbytes, nbytes); });
  return kept;
}

void BatchMaker::add_parts(const Need& need, const CachedChunk& chunk) {
  const PlannedVariable& variable = plan_->variables[need.key.variable];
  for (const ChunkPart& part : need.parts) {
    GatherBox& box = boxes_[need.key.variable].emplace_back(part.box);
    box.source = static_cast<const std::uint8_t*>(chunk.memory.get());
    box.target = tensors_[variable.tensor] + part.target_offset;
    if (!chunk.bad) {
      box.source += part.source_offset;
      continue;
    }
    std::fill(std::begin(box.from), std::end(box.from), 0);
    if (!is_floating(variable.dtype)) box.mean = std::numeric_limits<double>::quiet_NaN();
  }
}

void BatchMaker::flush() {
  {
    const Span span("gather");
    const StageTimer timer(board_, &Stats::gather_s);
    for (std::size_t v = 0; v < boxes_.size(); ++v) {
      if (boxes_[v].empty()) continue;
      const PlannedVariable& variable = plan_->variables[v];
      const auto axes = static_cast<unsigned>(variable.axes.size());
      if (variable.format)
        memory_->gather({boxes_[v], axes, *variable.format});
      else
        memory_->gather_as_is(boxes_[v], axes, variable.dtype.itemsize());
      boxes_[v].clear();
    }
  }
  cache_.unpin();
}

void BatchMaker::note_bad(const Need& need) {
  for (const ChunkPart& part : need.parts) bad_samples_[part.sample] = true;
}

// By the next good one of the batch, counted around.
void BatchMaker::replace_bad_samples(Batch& batch) {
  if (plan_->options.on_bad_chunk != BadChunk::skip) return;
  const std::size_t n = bad_samples_.size();
  const auto bad = std::count(bad_samples_.begin(), bad_samples_.end(), true);
  if (bad == 0) return;
  if (static_cast<std::size_t>(bad) == n)
    throw Error(ErrorCode::corrupt, "[loader] no sample of a batch is good: " + bad_message_);
  for (std::size_t i = 0; i < n; ++i) {
    if (!bad_samples_[i]) continue;
    std::size_t good = i;
    while (bad_samples_[good]) good = (good + 1) % n;
    for (std::size_t t = 0; t < batch.tensors.size(); ++t) {
      const std::size_t nbytes = plan_->tensors[t].sample_nbytes;
      memory_->copy(tensors_[t] + i * nbytes, tensors_[t] + good * nbytes, nbytes);
    }
  }
  board_.update([&](Stats& stats) { stats.replaced_samples += bad; });
}

void BatchMaker::count_needed(const std::vector<Need>& needs) {
  std::size_t nbytes = 0;
  for (const Need& need : needs) {
    auto&& known = needed_[need.key.variable][static_cast<std::size_t>(need.key.chunk)];
    if (!known) nbytes += plan_->variables[need.key.variable].chunk_nbytes(need.key.chunk);
    known = true;
  }
  board_.update([&](Stats& stats) { stats.needed_nbytes += static_cast<std::int64_t>(nbytes); });
}

}  // namespace headrace::loader
