#pragma once

// What is under way of one read of a store across a network (store/async.h):
//  1. A source gives the reads that are wanted, one after another, as soon as there is room for
//     one: so many at a time, and so many bytes of them.
//  2. Threads inside work() submit them, and use the answers in whatever order they come. To use
//     one may be to add a source: the index of a shard says what is wanted of the shard.
//  3. The first error ends it: what is on its way is cancelled, and work() returns when nothing of
//     it is the store's any more.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>

#include "base/function_ref.h"
#include "base/mutex.h"
#include "store/async.h"

namespace headrace {

class ReadsInFlight {
 public:
  class Read : public AsyncRead {
   public:
    // Into how many parts the answer comes apart, each of which is used by itself; at least one.
    // Asked once, when the answer is there.
    virtual std::size_t parts() { return 1; }
    // On a thread inside work(), parts of one answer on several at once. What it throws is what the
    // read ends with.
    virtual void use(std::size_t part) = 0;

    // Of the memory that the answer will take, from now until it is used; where it is not known,
    // what is to be expected.
    std::uint64_t held_nbytes = 0;
    // Nothing is asked for: it is to be used as it is.
    bool ready = false;

   private:
    friend class ReadsInFlight;
    void done() noexcept final { flight_->answered(*this); }

    // Under the lock of the flight.
    ReadsInFlight* flight_ = nullptr;
    AsyncReads* store_ = nullptr;
    std::list<std::unique_ptr<Read>>::iterator place_{};
    bool submitted_ = false;  // and not only about to be
    bool cancelled_ = false;
    std::size_t parts_ = 0;  // 0: not asked yet
    std::size_t next_part_ = 0;
    std::size_t used_parts_ = 0;
  };

  class Source {
   public:
    virtual ~Source() = default;
    // Null: there is nothing more. Called by one thread at a time.
    virtual std::unique_ptr<Read> next() = 0;

    // Where its reads go, which outlives the flight; null: the flight's store.
    AsyncReads* store = nullptr;
  };

  struct Limits {
    std::size_t reads = 1;
    std::uint64_t nbytes = 0;  // one read goes out however large it is
  };

  // `check` is called at short intervals, and may throw. `store` and what `check` refers to must
  // outlive it.
  ReadsInFlight(AsyncReads& store, const Limits& limits, FunctionRef<void()> check);
  // Cancels and waits for what is under way.
  ~ReadsInFlight();
  ReadsInFlight(const ReadsInFlight&) = delete;
  ReadsInFlight& operator=(const ReadsInFlight&) = delete;

  // What was added last is asked for first: what was begun is brought to its end.
  void add(std::unique_ptr<Source> source);
  // Several threads do this until nothing is left.
  void work();

 private:
  using Reads = std::list<std::unique_ptr<Read>>;

  bool step() REQUIRES(mutex_);
  bool has_room() const REQUIRES(mutex_);
  bool is_under_way() const REQUIRES(mutex_);
  void submit_more() REQUIRES(mutex_);
  bool pull() REQUIRES(mutex_);
  void use_next() REQUIRES(mutex_);
  void wait_and_check() REQUIRES(mutex_);
  std::exception_ptr fail() noexcept REQUIRES(mutex_);
  void cancel_all() noexcept REQUIRES(mutex_);
  void answered(Read& read) noexcept;

  AsyncReads& store_;
  const Limits limits_;
  const FunctionRef<void()> check_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::list<std::unique_ptr<Source>> sources_ GUARDED_BY(mutex_);
  // Each read is in one of these on its way, and none is freed between an error and the end.
  Reads next_ GUARDED_BY(mutex_);        // given by a source; there was no room for it
  Reads submitting_ GUARDED_BY(mutex_);  // the store's as soon as submit() has it
  Reads in_flight_ GUARDED_BY(mutex_);
  Reads answers_ GUARDED_BY(mutex_);         // parts of the first one may be in use
  Reads in_use_ GUARDED_BY(mutex_);          // all their parts are
  bool submits_ GUARDED_BY(mutex_) = false;  // one thread at a time
  std::size_t users_ GUARDED_BY(mutex_) = 0;
  std::uint64_t held_nbytes_ GUARDED_BY(mutex_) = 0;
  bool failed_ GUARDED_BY(mutex_) = false;
};

}  // namespace headrace
