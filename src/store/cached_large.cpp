#include "store/cached_large.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "headrace/error.h"
#include "store/cached_flight.h"
#include "store/store.h"

namespace headrace {

class CachedReads::Large::Segment final : public AsyncRead {
 public:
  explicit Segment(std::shared_ptr<Large> large) : large_(std::move(large)) {}
  void done() noexcept override { large_->ended(*this); }

 private:
  const std::shared_ptr<Large> large_;
};

namespace {

// As told_version() has it.
bool tells_nothing(const std::string& version) { return version.empty() || version.back() == ':'; }

}  // namespace

void CachedReads::Large::fill_room() {
  std::vector<std::shared_ptr<Segment>> begun;
  std::vector<AsyncRead*> reads;
  {
    const MutexLock lock(mutex_);
    if (is_over_) return;
    const bool knows = is_first_known_ || !read_.if_version.empty();
    const std::size_t room = knows ? kSegmentsAtOnce : 1;
    while (!error_ && next_ < nbytes_ && running_.size() < room) {
      // Ends where blocks end, so that none is kept in two parts.
      const std::uint64_t begin = read_.extent.offset + next_;
      const std::uint64_t full = begin + kSegmentNbytes;
      const std::uint64_t aligned = full - full % reads_.copies_.block_nbytes();
      const std::uint64_t end =
          std::min(aligned > begin ? aligned : full, read_.extent.offset + read_.extent.nbytes);
      auto segment = std::make_shared<Segment>(shared_from_this());
      segment->key = read_.key;
      segment->extent = Extent::range(begin, end - begin);
      segment->if_version = is_first_known_ ? version_ : read_.if_version;
      segment->if_unchanged_since = read_.if_unchanged_since;
      segment->deadline = read_.deadline;
      const MutableBytes into = read_.into.empty() ? read_.bytes.bytes() : read_.into;
      segment->into =
          into.subspan(static_cast<std::size_t>(next_), static_cast<std::size_t>(end - begin));
      reads.push_back(segment.get());
      begun.push_back(segment);
      running_.push_back(std::move(segment));
      next_ += end - begin;
      if (!knows) break;
    }
  }
  if (begun.empty()) return;
  reads_.submit(reads);
  bool has_failed = false;
  {
    const MutexLock lock(mutex_);
    has_failed = error_ != nullptr;
  }
  // Whoever failed may not have found them yet.
  if (!has_failed) return;
  for (const std::shared_ptr<Segment>& segment : begun) reads_.cancel(*segment);
}

void CachedReads::Large::go_on() noexcept {
  try {
    fill_room();
  } catch (...) {
    fail(std::current_exception());
  }
  bool is_over = false;
  {
    const MutexLock lock(mutex_);
    if (is_over_) return;
    is_over = running_.empty() && (error_ || next_ == nbytes_);
    is_over_ = is_over;
  }
  if (is_over) finish();
}

// By whoever answers it. What is begun next is begun by a thread that may wait.
void CachedReads::Large::ended(const Segment& segment) noexcept {
  std::exception_ptr error = segment.error;
  std::shared_ptr<Segment> self;  // freed after the lock
  {
    const MutexLock lock(mutex_);
    const auto at = std::ranges::find(running_, &segment, &std::shared_ptr<Segment>::get);
    self = std::move(*at);
    running_.erase(at);
    if (!error && !is_first_known_) {
      is_first_known_ = true;
      is_missing_ = !segment.found;
      version_ = segment.version;
      object_nbytes_ = segment.object_nbytes;
      is_unversioned_ = segment.found && tells_nothing(version_);
      if (is_missing_ || is_unversioned_) next_ = nbytes_;
    } else if (!error && !segment.found) {
      error = reads_.changed(segment.key);
    }
  }
  if (error) fail(error);
  try {
    reads_.on_thread([large = shared_from_this()] { large->go_on(); });
  } catch (...) {  // no memory for the job
    go_on();
  }
}

void CachedReads::Large::fail(const std::exception_ptr& error) noexcept {
  std::list<std::shared_ptr<Segment>> running;
  {
    const MutexLock lock(mutex_);
    if (error_) return;
    error_ = error;
    try {
      running = running_;
    } catch (...) {
      return;  // they end by themselves
    }
  }
  // One that has ended meanwhile is nobody's there.
  for (const std::shared_ptr<Segment>& segment : running) reads_.cancel(*segment);
}

void CachedReads::Large::cancel(const std::exception_ptr& error) noexcept {
  fail(error);
  go_on();
}

void CachedReads::Large::finish() noexcept {
  State& state = reads_.state_.get();
  std::exception_ptr error;
  bool again = false;
  {
    const MutexLock lock(mutex_);
    error = error_;
    again = is_unversioned_ && !error;
    read_.found = !error && !is_missing_;
    read_.version = version_;
    read_.object_nbytes = object_nbytes_;
  }
  if (again) return reads_.submit_one(read_);
  {
    const MutexLock lock(state.mutex);
    state.large.erase(read_.ticket);
  }
  read_.error = std::move(error);
  read_.done();
}

// As far as memory knows.
bool CachedReads::may_tell_version(const AsyncRead& read) {
  if (!read.if_version.empty()) return !tells_nothing(read.if_version);
  const std::optional<KnownObject> object = copies_.find_object_in_memory(read.key);
  return !object || tells_versions(*object);
}

void CachedReads::submit_large(AsyncRead& read) noexcept {
  std::shared_ptr<Large> large;
  try {
    if (read.into.empty()) read.bytes.resize(static_cast<std::size_t>(read.extent.nbytes));
    large = std::make_shared<Large>(*this, read);
    State& state = state_.get();
    const MutexLock lock(state.mutex);
    read.ticket = ++state.last_ticket;
    state.large.emplace(read.ticket, large);
  } catch (...) {
    read.error = std::current_exception();
    return read.done();
  }
  large->go_on();
}

// After all, under the ticket that it has.
void CachedReads::submit_one(AsyncRead& read) noexcept {
  std::vector<GroupOwner> groups;
  State& state = state_.get();
  try {
    read.found = false;
    read.version.clear();
    auto group = groups.emplace_back(std::make_shared<Group>());
    group->key = read.key;
    group->if_version = read.if_version;
    Want& want = group->wants.emplace_back();
    want.extent = read.extent;
    want.max_nbytes = read.max_nbytes;
    want.deadline = read.deadline;
    want.ticket = read.ticket;
    if (read.into.empty()) read.bytes.reset();
    const MutexLock lock(state.mutex);
    state.readers.emplace(read.ticket, State::Reader{&read});
    state.large.erase(read.ticket);
  } catch (...) {
    {
      const MutexLock lock(state.mutex);
      state.large.erase(read.ticket);
    }
    read.error = std::current_exception();
    return read.done();
  }
  begin_on_threads(std::move(groups));
}

}  // namespace headrace
