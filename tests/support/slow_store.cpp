#include "support/slow_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "headrace/error.h"

namespace headrace::test {
namespace {

using Clock = std::chrono::steady_clock;

std::string text_of(const AsyncRead& read) {
  switch (read.extent.kind) {
    case Extent::Kind::whole:
      return read.key + " whole";
    case Extent::Kind::suffix:
      return read.key + " -" + std::to_string(read.extent.nbytes);
    case Extent::Kind::range:
      return read.key + ' ' + std::to_string(read.extent.offset) + '+' +
             std::to_string(read.extent.nbytes);
  }
  return read.key;
}

}  // namespace

class SlowStore::State {
 public:
  explicit State(const SlowManners& manners) : manners_(manners), random_(manners.seed) {
    timer_ = std::thread([this] { run(); });
  }

  ~State() {
    {
      const MutexLock lock(mutex_);
      ends_ = true;
      changed_.notify_all();
    }
    timer_.join();
  }

  struct Object {
    std::shared_ptr<const std::vector<std::byte>> bytes;
    std::uint64_t version = 0;
  };
  struct Asked {
    AsyncRead* read = nullptr;
    AsyncWrite* write = nullptr;  // instead
    Clock::time_point due{};
    bool on_wire = false;
    bool cancelled = false;
    std::size_t round = 1;
  };

  // One answer, made without the lock.
  void answer(AsyncRead& read, bool cancelled) {
    std::function<void(const AsyncRead&)> hook;
    {
      const MutexLock lock(mutex_);
      hook = hook_;
    }
    if (hook) hook(read);
    try {
      const MutexLock lock(mutex_);
      if (cancelled) throw Error(ErrorCode::cancelled, "slow://test: " + read.key);
      if (const auto fault = faults_.find(read.key); fault != faults_.end())
        std::rethrow_exception(fault->second);
      if (Clock::now() > read.deadline)
        throw Error(ErrorCode::io, "slow://test: " + read.key + " took too long", ETIMEDOUT);
      if (manners_.seed != 0 && chance(manners_.error_rate))
        throw Error(ErrorCode::io, "slow://test: " + read.key + " could not be had", EIO);
      if (manners_.seed != 0 && chance(manners_.replace_rate)) {
        const auto object = objects_.find(read.key);
        if (object != objects_.end()) object->second.version = ++version_;
      }
      give(read);
    } catch (...) {
      read.error = std::current_exception();
    }
    {
      const MutexLock lock(mutex_);
      given_nbytes_ -= asked_nbytes(read);
      --given_;
    }
    read.done();
  }

  void answer(AsyncWrite& write, bool cancelled) {
    std::function<void(const AsyncWrite&)> hook;
    {
      const MutexLock lock(mutex_);
      hook = write_hook_;
    }
    if (hook) hook(write);
    {
      const MutexLock lock(mutex_);
      try {
        if (cancelled) throw Error(ErrorCode::cancelled, "slow://test: " + write.key);
        if (const auto fault = faults_.find(write.key); fault != faults_.end())
          std::rethrow_exception(fault->second);
        take(write);
      } catch (...) {
        write.error = std::current_exception();
      }
      --given_writes_;
      given_write_nbytes_ -= total_size(std::span<const ConstBytes>(write.parts));
    }
    write.done();
  }

  void take(AsyncWrite& write) REQUIRES(mutex_) {
    const auto found = objects_.find(write.key);
    const bool is_there = found != objects_.end();
    using Kind = WriteCondition::Kind;
    if ((write.condition.kind == Kind::missing && is_there) ||
        (write.condition.kind == Kind::version &&
         (!is_there || write.condition.version != "v" + std::to_string(found->second.version)))) {
      throw Error(ErrorCode::conflict, "slow://test: " + write.key + " is another one");
    }
    if (write.erases) {
      if (is_there) objects_.erase(found);
      return;
    }
    std::vector<std::byte> bytes;
    for (const ConstBytes part : write.parts) bytes.insert(bytes.end(), part.begin(), part.end());
    objects_[write.key] = {std::make_shared<const std::vector<std::byte>>(std::move(bytes)),
                           ++version_};
    write.version = "v" + std::to_string(version_);
  }

  bool chance(double rate) REQUIRES(mutex_) {
    return std::uniform_real_distribution<double>(0, 1)(random_) < rate;
  }

  void give(AsyncRead& read) REQUIRES(mutex_) {
    const auto found = objects_.find(read.key);
    if (found == objects_.end()) return;
    const std::vector<std::byte>& bytes = *found->second.bytes;
    const std::string version =
        manners_.tells_versions ? "v" + std::to_string(found->second.version) : "";
    if (!read.if_version.empty() && read.if_version != version) throw_changed(read.key);
    std::size_t offset = 0, nbytes = bytes.size();
    switch (read.extent.kind) {
      case Extent::Kind::whole:
        check_object_nbytes(read.key, bytes.size(), read.max_nbytes);
        break;
      case Extent::Kind::suffix:
        nbytes = std::min<std::size_t>(read.extent.nbytes, bytes.size());
        offset = bytes.size() - nbytes;
        break;
      case Extent::Kind::range:
        check_object_range(read.key, bytes.size(), read.extent.offset, read.extent.nbytes);
        offset = read.extent.offset;
        nbytes = read.extent.nbytes;
        break;
    }
    const ConstBytes wanted = ConstBytes(bytes).subspan(offset, nbytes);
    if (read.into.empty()) {
      read.bytes.assign(wanted);
    } else {
      std::memcpy(read.into.data(), wanted.data(), wanted.size());
    }
    read.found = true;
    read.version = version;
    read.object_nbytes = manners_.tells_object_nbytes ? bytes.size() : 0;
    counts_.nbytes += nbytes;
  }

  std::uint64_t asked_nbytes(const AsyncRead& read) REQUIRES(mutex_) {
    if (read.extent.kind != Extent::Kind::whole) return read.into.empty() ? read.extent.nbytes : 0;
    const auto size = sizes_.find(read.key);
    return size == sizes_.end() ? 0 : size->second;
  }

  void run() {
    const MutexLock lock(mutex_);
    while (!ends_ || !asked_.empty()) {
      std::size_t on_wire = 0;
      for (Asked& asked : asked_) {
        if (!asked.on_wire && on_wire < manners_.depth) {
          asked.on_wire = true;
          asked.due = Clock::now() + manners_.latency;
        }
        on_wire += asked.on_wire;
      }
      counts_.most_on_wire = std::max(counts_.most_on_wire, on_wire);
      std::vector<std::size_t> due;
      std::optional<Clock::time_point> next;
      const auto now = Clock::now();
      for (std::size_t i = 0; i < asked_.size(); ++i) {
        const Asked& asked = asked_[i];
        if (asked.cancelled || (asked.on_wire && asked.due <= now)) {
          due.push_back(i);
        } else if (asked.on_wire) {
          next = next ? std::min(*next, asked.due) : asked.due;
        }
      }
      if (due.empty()) {
        if (next) {
          changed_.wait_until(mutex_, *next);
        } else {
          changed_.wait(mutex_);
        }
        continue;
      }
      const std::size_t which = manners_.seed == 0 ? 0
                                                   : std::uniform_int_distribution<std::size_t>(
                                                         0, due.size() - 1)(random_);
      const Asked asked = asked_[due[which]];
      asked_.erase(asked_.begin() + static_cast<std::ptrdiff_t>(due[which]));
      counts_.cancelled += asked.cancelled;
      answered_round_ = std::max(answered_round_, asked.round);
      const MutexUnlock free(mutex_);
      if (asked.write != nullptr) {
        answer(*asked.write, asked.cancelled);
      } else {
        answer(*asked.read, asked.cancelled);
      }
    }
  }

  mutable Mutex mutex_;
  ConditionVariable changed_;
  SlowManners manners_ GUARDED_BY(mutex_);
  std::mt19937_64 random_ GUARDED_BY(mutex_);
  SlowCounts counts_ GUARDED_BY(mutex_);
  std::function<void(const AsyncRead&)> hook_ GUARDED_BY(mutex_);
  std::function<void(const AsyncWrite&)> write_hook_ GUARDED_BY(mutex_);
  std::size_t given_writes_ GUARDED_BY(mutex_) = 0;
  std::uint64_t given_write_nbytes_ GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::exception_ptr, std::less<>> faults_ GUARDED_BY(mutex_);
  std::map<std::string, Object, std::less<>> objects_ GUARDED_BY(mutex_);
  std::map<std::string, std::uint64_t, std::less<>> sizes_ GUARDED_BY(mutex_);  // as first set
  std::uint64_t version_ GUARDED_BY(mutex_) = 0;
  std::vector<Asked> asked_ GUARDED_BY(mutex_);
  std::size_t given_ GUARDED_BY(mutex_) = 0;
  std::uint64_t given_nbytes_ GUARDED_BY(mutex_) = 0;
  std::size_t answered_round_ GUARDED_BY(mutex_) = 0;
  std::uint64_t tickets_ GUARDED_BY(mutex_) = 0;
  bool ends_ GUARDED_BY(mutex_) = false;
  std::thread timer_;
};

SlowStore::SlowStore(const SlowManners& manners) : state_(std::make_unique<State>(manners)) {}
SlowStore::~SlowStore() = default;

void SlowStore::set_manners(const SlowManners& manners) {
  const MutexLock lock(state_->mutex_);
  state_->manners_ = manners;
  state_->random_.seed(manners.seed);
}

SlowCounts SlowStore::counts() const {
  const MutexLock lock(state_->mutex_);
  return state_->counts_;
}

void SlowStore::forget_counts() {
  const MutexLock lock(state_->mutex_);
  state_->counts_ = {};
  state_->answered_round_ = 0;
}

void SlowStore::before_answer(std::function<void(const AsyncRead&)> hook) {
  const MutexLock lock(state_->mutex_);
  state_->hook_ = std::move(hook);
}

void SlowStore::fail_key(std::string key, std::exception_ptr error) {
  const MutexLock lock(state_->mutex_);
  if (error) {
    state_->faults_[std::move(key)] = std::move(error);
  } else {
    state_->faults_.erase(key);
  }
}

void SlowStore::put(std::string_view key, ConstBytes bytes) {
  check_key(key);
  const MutexLock lock(state_->mutex_);
  state_->objects_[std::string(key)] = {
      std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end()),
      ++state_->version_};
  state_->sizes_.try_emplace(std::string(key), bytes.size());
}

void SlowStore::replace_by_same(std::string_view key) {
  const MutexLock lock(state_->mutex_);
  state_->objects_.find(key)->second.version = ++state_->version_;
}

std::vector<std::string> SlowStore::keys() const {
  const MutexLock lock(state_->mutex_);
  std::vector<std::string> keys;
  for (const auto& [key, object] : state_->objects_) keys.push_back(key);
  return keys;
}

void SlowStore::submit(std::span<AsyncRead* const> reads) noexcept {
  bool now = false;
  {
    const MutexLock lock(state_->mutex_);
    SlowCounts& counts = state_->counts_;
    now = state_->manners_.answers_in_submit;
    ++counts.submits;
    for (AsyncRead* const read : reads) {
      read->ticket = ++state_->tickets_;
      ++counts.requests;
      counts.asked.push_back(text_of(*read));
      ++state_->given_;
      state_->given_nbytes_ += state_->asked_nbytes(*read);
      const std::size_t round = state_->answered_round_ + 1;
      counts.rounds = std::max(counts.rounds, round);
      if (!now) state_->asked_.push_back({read, nullptr, {}, false, false, round});
    }
    counts.most_given = std::max(counts.most_given, state_->given_);
    counts.most_nbytes = std::max(counts.most_nbytes, state_->given_nbytes_);
    state_->changed_.notify_all();
  }
  if (!now) return;
  for (AsyncRead* const read : reads) state_->answer(*read, false);
}

void SlowStore::cancel(AsyncRead& read) noexcept {
  const MutexLock lock(state_->mutex_);
  if (!state_->manners_.hears_cancel) return;
  for (State::Asked& asked : state_->asked_) asked.cancelled |= asked.read == &read;
  state_->changed_.notify_all();
}

void SlowStore::submit(std::span<AsyncWrite* const> writes) noexcept {
  bool now = false;
  {
    const MutexLock lock(state_->mutex_);
    SlowCounts& counts = state_->counts_;
    now = state_->manners_.answers_in_submit;
    for (AsyncWrite* const write : writes) {
      write->ticket = ++state_->tickets_;
      ++counts.writes;
      ++state_->given_writes_;
      state_->given_write_nbytes_ += total_size(std::span<const ConstBytes>(write->parts));
      if (!now) state_->asked_.push_back({nullptr, write, {}, false, false, 0});
    }
    counts.most_writes = std::max(counts.most_writes, state_->given_writes_);
    counts.most_write_nbytes = std::max(counts.most_write_nbytes, state_->given_write_nbytes_);
    state_->changed_.notify_all();
  }
  if (!now) return;
  for (AsyncWrite* const write : writes) state_->answer(*write, false);
}

void SlowStore::cancel(AsyncWrite& write) noexcept {
  const MutexLock lock(state_->mutex_);
  if (!state_->manners_.hears_cancel) return;
  for (State::Asked& asked : state_->asked_) asked.cancelled |= asked.write == &write;
  state_->changed_.notify_all();
}

void SlowStore::before_write(std::function<void(const AsyncWrite&)> hook) {
  const MutexLock lock(state_->mutex_);
  state_->write_hook_ = std::move(hook);
}

AsyncWrites* SlowStore::async_writes() {
  const MutexLock lock(state_->mutex_);
  return state_->manners_.writes_later ? this : nullptr;
}

WriteConditions SlowStore::write_conditions() const {
  const MutexLock lock(state_->mutex_);
  const bool knows = state_->manners_.knows_conditions;
  return {knows, knows};
}

std::size_t SlowStore::depth() const {
  const MutexLock lock(state_->mutex_);
  return state_->manners_.depth;
}

void SlowStore::erase(std::string_view key) {
  const MutexLock lock(state_->mutex_);
  const auto found = state_->objects_.find(key);
  if (found != state_->objects_.end()) state_->objects_.erase(found);
}

void SlowStore::erase_prefix(std::string_view prefix) {
  const MutexLock lock(state_->mutex_);
  std::erase_if(state_->objects_,
                [&](const auto& object) { return object.first.starts_with(prefix); });
}

std::vector<std::string> SlowStore::list(std::string_view prefix) {
  std::vector<std::string> found = keys();
  std::erase_if(found, [&](const std::string& key) { return !key.starts_with(prefix); });
  return found;
}

std::vector<DirEntry> SlowStore::list_dir(std::string_view prefix) {
  std::string below(check_prefix(prefix));
  if (!below.empty()) below += '/';
  std::set<DirEntry> entries;
  for (const std::string& key : list(below)) {
    const std::string_view rest = std::string_view(key).substr(below.size());
    const std::size_t slash = rest.find('/');
    entries.insert({std::string(rest.substr(0, slash)), slash != std::string_view::npos});
  }
  return {entries.begin(), entries.end()};
}

std::optional<AsyncDriver::ObjectState> SlowStore::look_up(std::string_view key) {
  const MutexLock lock(state_->mutex_);
  ++state_->counts_.requests;
  state_->counts_.asked.push_back(std::string(key) + " ?");
  const auto found = state_->objects_.find(key);
  if (found == state_->objects_.end()) return std::nullopt;
  return ObjectState{found->second.bytes->size(),
                     state_->manners_.tells_versions ? "v" + std::to_string(found->second.version)
                                                     : std::string()};
}

}  // namespace headrace::test
