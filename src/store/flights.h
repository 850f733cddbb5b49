#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "base/per_process.h"

namespace headrace {

// Who fetches what: of several threads that want the same, one fetches it and the others wait. Who
// has claimed something lets go of it before it waits for others, so none wait for each other.
class Flights {
 public:
  // Names that are this thread's to fetch, until it is destroyed or released.
  class Claim {
   public:
    explicit Claim(Flights& flights) : flights_(flights) {}
    ~Claim() { release(); }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

    // False: another thread fetches it.
    bool add(const std::string& name);
    void release();

   private:
    Flights& flights_;
    std::vector<std::string> names_;
  };

  // Until nobody fetches it, however that ended, or the caller wants no more
  // (headrace/interrupt.h).
  void wait(const std::string& name);

 private:
  struct State {
    Mutex mutex;
    ConditionVariable landed;
    std::unordered_set<std::string> names GUARDED_BY(mutex);
  };

  // A child of fork has none of the threads that fetch.
  PerProcess<State> state_;
};

}  // namespace headrace
