#include "engine/node/lock.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "engine/node/catalog.h"
#include "engine/request/config.h"
#include "engine/request/request.h"
#include "headrace/error.h"

namespace headrace {
namespace {

// Of another process nothing tells when it is done. Short, as most changes are; the longest keeps a
// wait for a long append from taking the processor.
constexpr auto kFirstWait = std::chrono::microseconds(50);
constexpr auto kLongestWait = std::chrono::milliseconds(5);

KeyLocks& node_locks() {
  static auto* locks = new KeyLocks;  // never destroyed: threads may outlive statics
  return *locks;
}

}  // namespace

NodeLock::NodeLock(const Store& store,
                   const std::string& path,
                   const std::function<void()>& poll,
                   MissingFolder missing) {
  StoreDriver& driver = store.driver();
  Poll due(poll);
  const std::size_t most_seconds = current_config()->lock_timeout;
  auto wait = std::chrono::steady_clock::duration(kFirstWait);
  for (;;) {
    const std::string identity = driver.identity(path);
    in_process_ = node_locks().lock(identity, poll);
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      LockAttempt attempt = driver.try_lock(path, missing);
      // A folder that came into being, or was made anew, has another identity than before: those
      // who come now lock that one.
      if (driver.identity(path) != identity) break;
      if (attempt.state != LockAttempt::State::busy) {
        between_processes_ = std::move(attempt.lock);
        excludes_processes_ = attempt.state == LockAttempt::State::held;
        return;
      }
      if (std::chrono::steady_clock::now() - begin >= std::chrono::seconds(most_seconds)) {
        throw Error(ErrorCode::conflict,
                    place_of(store, path) +
                        ": another process has held the lock of the folder "
                        "(flock) for " +
                        std::to_string(most_seconds) + " s (lock_timeout)");
      }
      std::this_thread::sleep_for(wait);
      wait = std::min<std::chrono::steady_clock::duration>(wait * 2, kLongestWait);
      due.check();
    }
    in_process_ = {};
    due.check();
  }
}

}  // namespace headrace
