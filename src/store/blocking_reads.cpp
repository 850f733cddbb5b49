#include "store/blocking_reads.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "headrace/error.h"
#include "store/store.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;

std::exception_ptr error_of(ErrorCode code, const std::string& message, int os_error = 0) {
  try {
    throw Error(code, message, os_error);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

// The reads that are not done, by ticket. Outlives the store's reads for a call that is stuck.
class BlockingReads::Waiting {
 public:
  // Numbers it. True: nobody looks at deadlines yet.
  bool add(AsyncRead& read) {
    const MutexLock lock(mutex_);
    const std::uint64_t ticket = ++last_;
    const bool has_deadline = read.deadline != Clock::time_point::max();
    if (has_deadline) deadlines_.emplace(read.deadline, ticket);
    reads_.emplace(ticket, &read);
    read.ticket = ticket;
    if (!has_deadline) return false;
    changed_.notify_all();
    return !std::exchange(watched_, true);
  }

  // Null: it is done.
  AsyncRead* take(std::uint64_t ticket) {
    const MutexLock lock(mutex_);
    return take_locked(ticket);
  }

  bool has_any(std::span<const std::uint64_t> tickets) {
    const MutexLock lock(mutex_);
    return std::ranges::any_of(
        tickets, [&](std::uint64_t ticket) REQUIRES(mutex_) { return reads_.contains(ticket); });
  }

  void fail(std::uint64_t ticket, std::exception_ptr error) noexcept {
    AsyncRead* const read = take(ticket);
    if (read == nullptr) return;
    read->error = std::move(error);
    read->done();
  }

  void stop_watching() {
    const MutexLock lock(mutex_);
    watched_ = false;
  }

  // Until no read has a deadline.
  void watch(const std::string& url) {
    const MutexLock lock(mutex_);
    while (!deadlines_.empty()) {
      const auto first = deadlines_.begin();
      if (!reads_.contains(first->second)) {
        deadlines_.erase(first);
      } else if (Clock::now() < first->first) {
        changed_.wait_until(mutex_, first->first);
      } else {
        AsyncRead* const read = take_locked(first->second);
        deadlines_.erase(first);
        const MutexUnlock free(mutex_);
        read->error = error_of(ErrorCode::io, url + ": " + read->key + " took too long", ETIMEDOUT);
        read->done();
      }
    }
    watched_ = false;
  }

 private:
  AsyncRead* take_locked(std::uint64_t ticket) REQUIRES(mutex_) {
    const auto at = reads_.find(ticket);
    if (at == reads_.end()) return nullptr;
    AsyncRead* const read = at->second;
    reads_.erase(at);
    // The watcher passes over its deadline, and need not wait for it where it is the last one.
    if (reads_.empty() && watched_) changed_.notify_all();
    return read;
  }

  Mutex mutex_;
  ConditionVariable changed_;
  std::unordered_map<std::uint64_t, AsyncRead*> reads_ GUARDED_BY(mutex_);
  std::multimap<Clock::time_point, std::uint64_t> deadlines_ GUARDED_BY(mutex_);
  std::uint64_t last_ GUARDED_BY(mutex_) = 0;
  bool watched_ GUARDED_BY(mutex_) = false;
};

BlockingReads::Shared::Shared() : waiting(std::make_shared<Waiting>()) {}

// What one thread asks the store for.
struct BlockingReads::Call {
  Call(std::shared_ptr<CustomStore> its_store,
       std::shared_ptr<Waiting> its_waiting,
       Extent::Kind its_kind)
      : store(std::move(its_store)), waiting(std::move(its_waiting)), kind(its_kind) {}

  const std::shared_ptr<CustomStore> store;
  const std::shared_ptr<Waiting> waiting;
  const Extent::Kind kind;
  std::vector<std::uint64_t> tickets{};
  std::vector<std::string> keys{};  // of whole objects; else one
  std::vector<ByteRange> ranges{};  // of ranges, and of a suffix

  void run() noexcept {
    if (!waiting->has_any(tickets)) return;  // while it stood in the queue
    std::exception_ptr error;
    try {
      switch (kind) {
        case Extent::Kind::whole:
          return get();
        case Extent::Kind::range:
          return get_ranges();
        case Extent::Kind::suffix:
          return get_suffix();
      }
    } catch (...) {
      error = std::current_exception();
    }
    fail(std::move(error));
  }

  // Nothing of the error stays here: who is told of it may be the one that frees it.
  void fail(std::exception_ptr error) noexcept {
    while (!tickets.empty()) {
      const std::uint64_t ticket = tickets.back();
      tickets.pop_back();
      waiting->fail(ticket, tickets.empty() ? std::move(error) : error);
    }
  }

 private:
  void get() {
    const auto found = store->get(keys);
    check_count("objects", found.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      give(i, found[i], found[i] ? found[i]->bytes.size() : 0, [&](const AsyncRead& read) {
        check_object_nbytes(read.key, found[i]->bytes.size(), read.max_nbytes);
        return found[i]->bytes;
      });
    }
  }

  void get_ranges() {
    std::optional<std::vector<StoredBytes>> found;
    if (ranges.size() == 1) {
      if (auto one = store->get_range(keys.front(), ranges.front())) {
        found.emplace();
        found->push_back(std::move(*one));
      }
    } else {
      found = store->get_ranges(keys.front(), ranges);
    }
    if (found) check_count("ranges", found->size());
    for (std::size_t i = 0; i < tickets.size(); ++i) {
      give(i, found ? std::optional((*found)[i]) : std::nullopt, 0, [&](const AsyncRead& read) {
        const ConstBytes bytes = (*found)[i].bytes;
        check_object_range(read.key, bytes.size(), 0, ranges[i].nbytes);
        return bytes.first(static_cast<std::size_t>(ranges[i].nbytes));
      });
    }
  }

  void get_suffix() {
    const std::optional<std::uint64_t> size = store->size(keys.front());
    std::optional<StoredBytes> found;
    std::uint64_t nbytes = 0;
    if (size) {
      nbytes = std::min(*size, ranges.front().nbytes);
      found =
          nbytes == 0 ? StoredBytes{} : store->get_range(keys.front(), {*size - nbytes, nbytes});
    }
    give(0, found, size.value_or(0), [&](const AsyncRead& read) {
      check_object_range(read.key, found->bytes.size(), 0, nbytes);
      return found->bytes.first(static_cast<std::size_t>(nbytes));
    });
  }

  template <typename Bytes>
  void give(std::size_t i,
            const std::optional<StoredBytes>& found,
            std::uint64_t object_nbytes,
            Bytes bytes_of) noexcept {
    AsyncRead* const read = waiting->take(tickets[i]);
    if (read == nullptr) return;
    try {
      if (found) {
        const ConstBytes bytes = bytes_of(*read);
        if (read->into.empty()) {
          read->bytes.assign(bytes);
        } else if (!bytes.empty()) {
          std::memcpy(read->into.data(), bytes.data(), bytes.size());
        }
        read->object_nbytes = object_nbytes;
        read->found = true;
      }
    } catch (...) {
      read->error = std::current_exception();
    }
    read->done();
  }

  void check_count(const char* what, std::size_t got) const {
    if (got == tickets.size()) return;
    throw Error(ErrorCode::invalid_argument,
                store->url() + ": wanted " + std::to_string(tickets.size()) + " " + what +
                    ", got " + std::to_string(got));
  }
};

BlockingReads::BlockingReads(std::shared_ptr<CustomStore> store)
    : store_(std::move(store)), batch_size_(std::max<std::size_t>(store_->batch_size(), 1)) {}

void BlockingReads::watch(const std::shared_ptr<Waiting>& waiting) {
  try {
    watch_.run([waiting, url = store_->url()] { waiting->watch(url); });
  } catch (...) {
    waiting->stop_watching();
    throw;
  }
}

void BlockingReads::submit(std::span<AsyncRead* const> reads) noexcept {
  const std::shared_ptr<Waiting> waiting = shared_.get().waiting;
  std::vector<std::shared_ptr<Call>> calls;
  std::shared_ptr<Call> objects;                           // whole ones, room for more
  std::map<std::string, std::shared_ptr<Call>> by_object;  // ranges of one
  const auto call_for = [&](const AsyncRead& read) {
    const Extent::Kind kind = read.extent.kind;
    const bool is_range = kind == Extent::Kind::range;
    std::shared_ptr<Call>* open = nullptr;
    if (kind == Extent::Kind::whole) open = &objects;
    if (is_range && batch_size_ > 1) open = &by_object[read.key];
    if (open && *open && (is_range || (*open)->tickets.size() < batch_size_)) return *open;
    auto call = std::make_shared<Call>(store_, waiting, kind);
    calls.push_back(call);
    if (open) *open = call;
    return call;
  };
  for (AsyncRead* const read : reads) {
    bool is_mine = true;
    std::uint64_t ticket = 0;
    try {
      const std::shared_ptr<Call> call = call_for(*read);
      if (call->keys.empty() || call->kind == Extent::Kind::whole) call->keys.push_back(read->key);
      call->ranges.push_back({read->extent.offset, read->extent.nbytes});
      call->tickets.push_back(0);
      const bool is_first_deadline = waiting->add(*read);
      is_mine = false;
      // Until run() below nobody but who watches deadlines can end it.
      call->tickets.back() = ticket = read->ticket;
      if (is_first_deadline) watch(waiting);
    } catch (...) {
      if (!is_mine) {
        waiting->fail(ticket, std::current_exception());
        continue;
      }
      read->error = std::current_exception();
      read->done();
    }
  }
  for (const std::shared_ptr<Call>& call : calls) {
    try {
      threads_.run([call] { call->run(); });
    } catch (...) {
      call->fail(std::current_exception());
    }
  }
}

void BlockingReads::cancel(AsyncRead& read) noexcept {
  const std::shared_ptr<Waiting> waiting = shared_.get().waiting;
  waiting->fail(read.ticket,
                error_of(ErrorCode::cancelled,
                         store_->url() + ": the read of " + read.key + " was cancelled"));
}

}  // namespace headrace
