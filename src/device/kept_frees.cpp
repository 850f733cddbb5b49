#include "device/kept_frees.h"

#include <list>
#include <map>
#include <utility>

#include "base/fork_mutex.h"
#include "device/backend.h"
#include "headrace/error.h"

namespace headrace {
namespace {

using Frees = std::list<std::function<void()>>;

struct State {
  ForkMutex mutex;
  std::map<std::pair<Device::Type, int>, Frees> kept GUARDED_BY(mutex);

  static State& get() {
    static auto* state = new State;  // never destroyed: results may outlive statics
    return *state;
  }
};

// Puts frees behind the others, or before them.
void keep(const Device& device, Frees& frees, bool first) {
  State& state = State::get();
  ForkLock lock(state.mutex);
  Frees& kept = state.kept[{device.type, device.index}];
  kept.splice(first ? kept.begin() : kept.end(), frees);
}

bool is_done(const std::function<void()>& free) {
  try {
    free();
  } catch (const Error& e) {
    return e.code() != ErrorCode::unsupported;
  }
  return true;
}

}  // namespace

void free_or_keep(const Device& device, std::function<void()> free) noexcept {
  if (is_done(free)) return free_kept(device);
  Frees one;
  one.push_back(std::move(free));
  keep(device, one, false);
}

void free_behind(const Device& device, Stream stream, std::function<void()> free) noexcept {
  free_or_keep(device, [device, stream, free = std::move(free)] {
    Backend& devices = backend(device.type);
    const auto last = devices.wrap_stream(device.index, stream.raw());
    devices.wrap_stream(device.index, nullptr)->wait_for(*last);
    free();
  });
}

// Without the lock: what goes with a free, an object of Python's say, may come here again.
void free_kept(const Device& device) noexcept {
  State& state = State::get();
  Frees frees;
  {
    ForkLock lock(state.mutex);
    const auto found = state.kept.find({device.type, device.index});
    if (found == state.kept.end() || found->second.empty()) return;
    frees.swap(found->second);
  }
  while (!frees.empty() && is_done(frees.front())) frees.pop_front();
  if (frees.empty()) return;
  Frees waits;
  waits.splice(waits.begin(), frees, frees.begin());
  keep(device, frees, true);
  keep(device, waits, false);
}

}  // namespace headrace
