#pragma once

// The slabs of one read to a device on their way through it:
//  1. A source gives them one after another; it looks for the next while one is fetched.
//  2. Threads fetch them in order. One that finds nothing left to begin in a slab goes on to the
//     next, and the last to leave a slab submits it: nobody waits for the others at a slab's end.
//  3. So many are open at a time. Who would open one more waits for the device to be done with the
//     oldest.
//  4. The first error ends it: nothing more is begun.

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>

#include "base/mutex.h"
#include "engine/request/request.h"

namespace headrace {

class SlabsInFlight {
 public:
  class Slab {
   public:
    virtual ~Slab() = default;
    // How many threads find something to do in fetch().
    virtual std::size_t threads() const = 0;
    // By several threads at once, until nothing is left for one more to begin.
    virtual void fetch() = 0;
    // Gives the device what was fetched. Once, when no thread is inside fetch().
    virtual void submit() = 0;
    // Waits for the device. In the order of the slabs.
    virtual void finish() = 0;
  };

  class Source {
   public:
    virtual ~Source() = default;
    // Null: there are no more. By one thread at a time.
    virtual std::unique_ptr<Slab> next() = 0;
  };

  // Of 256 MiB four bring gzip at 48 GB/s and zstd at 78, three at 43 and 74; six at 51 and 78, for
  // half as much memory again (H100, files in memory, device-trials.json).
  static constexpr std::size_t kOpen = 4;

  // `looks_ahead`: whether the source is asked while something is fetched.
  SlabsInFlight(Source& source, Request& request, bool looks_ahead)
      : source_(source), request_(request), looks_ahead_(looks_ahead) {}

  // Until all are finished. By at most `threads`, of which one slab may need less.
  void run(std::size_t threads);

  // As Request::check(); ends the thread's fetch, too, when that of another has failed.
  void check();

 private:
  struct Open {
    std::unique_ptr<Slab> slab;
    std::size_t inside = 0;  // threads in fetch()
    bool handed_out = false;
    bool submitted = false;
  };

  // How many threads there is work for.
  std::size_t begin(std::size_t threads);
  void work();
  bool step() REQUIRES(mutex_);
  Open* fetchable() REQUIRES(mutex_);
  void look_ahead() REQUIRES(mutex_);
  void open_next() REQUIRES(mutex_);
  void fetch(Open& open) REQUIRES(mutex_);
  void finish_oldest() REQUIRES(mutex_);
  void wait_and_check() REQUIRES(mutex_);

  Source& source_;
  Request& request_;
  const bool looks_ahead_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Open> open_ GUARDED_BY(mutex_);  // each stays where it is until it is finished
  std::unique_ptr<Slab> next_ GUARDED_BY(mutex_);
  bool looking_ GUARDED_BY(mutex_) = false;  // a thread asks the source
  bool all_ GUARDED_BY(mutex_) = false;      // it has no more
  bool finishing_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> failed_{false};  // set under the lock
};

}  // namespace headrace
