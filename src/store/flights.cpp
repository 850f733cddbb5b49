#include "store/flights.h"

#include "base/interrupt.h"

namespace headrace {

bool Flights::Claim::add(const std::string& name) {
  State& state = flights_.state_.get();
  if (names_.size() == names_.capacity()) names_.reserve(2 * names_.size() + 4);
  std::string kept = name;
  const MutexLock lock(state.mutex);
  if (!state.names.insert(name).second) return false;
  names_.push_back(std::move(kept));
  return true;
}

void Flights::Claim::release() {
  if (names_.empty()) return;
  State& state = flights_.state_.get();
  {
    const MutexLock lock(state.mutex);
    for (const std::string& name : names_) state.names.erase(name);
  }
  names_.clear();
  state.landed.notify_all();
}

void Flights::wait(const std::string& name) {
  State& state = state_.get();
  const MutexLock lock(state.mutex);
  while (state.names.contains(name)) {
    if (wait_or_interrupt(state.landed, state.mutex)) {
      const MutexUnlock free(state.mutex);
      (*current_interrupt())();
    }
  }
}

}  // namespace headrace
