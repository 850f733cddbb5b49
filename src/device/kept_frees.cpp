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
using FreesOfStreams = std::map<void*, Frees>;

struct State {
  ForkMutex mutex;
  std::map<std::pair<Device::Type, int>, FreesOfStreams> kept GUARDED_BY(mutex);

  static State& get() {
    static auto* state = new State;  // never destroyed: results may outlive statics
    return *state;
  }
};

// Before those of the stream that came meanwhile, or behind them.
void keep(const Device& device, void* stream, Frees& frees, bool first) {
  State& state = State::get();
  ForkLock lock(state.mutex);
  Frees& kept = state.kept[{device.type, device.index}][stream];
  kept.splice(first ? kept.begin() : kept.end(), frees);
}

bool is_done(const std::function<void()>& free) {
  try {
    free();
  } catch (const Error& e) {
    return e.code() != ErrorCode::unsupported;
  } catch (...) {
    return false;
  }
  return true;
}

}  // namespace

void free_or_keep(const Device& device, Stream stream, std::function<void()> free) noexcept {
  if (is_done(free)) return free_kept(device);
  Frees one;
  one.push_back(std::move(free));
  keep(device, stream.raw(), one, false);
}

void free_behind(const Device& device, Stream stream, std::function<void()> free) noexcept {
  free_or_keep(device, stream, [device, stream, free = std::move(free)] {
    Backend& devices = backend(device.type);
    const auto last = devices.wrap_stream(device.index, stream.raw());
    devices.wrap_stream(device.index, nullptr)->wait_for(*last);
    free();
  });
}

// Without the lock: what goes with a free, an object of Python's say, may come here again.
void free_kept(const Device& device) noexcept {
  State& state = State::get();
  FreesOfStreams streams;
  {
    ForkLock lock(state.mutex);
    const auto found = state.kept.find({device.type, device.index});
    if (found == state.kept.end()) return;
    streams.swap(found->second);
  }
  for (auto& [stream, frees] : streams) {
    while (!frees.empty() && is_done(frees.front())) frees.pop_front();
    if (!frees.empty()) keep(device, stream, frees, true);
  }
}

}  // namespace headrace
