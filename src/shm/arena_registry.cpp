#include "shm/arena_registry.h"

#include <pthread.h>

#include <utility>

namespace headrace::shm {

ArenaRegistry& ArenaRegistry::get() {
  static auto* registry = new ArenaRegistry;  // never destroyed: arenas may outlive statics
  return *registry;
}

ArenaRegistry::ArenaRegistry() {
  pthread_atfork([] { get().before_fork(); },
                 [] { get().after_fork(&ArenaState::after_fork_in_parent); },
                 [] { get().after_fork(&ArenaState::after_fork_in_child); });
}

void ArenaRegistry::add(const std::shared_ptr<ArenaState>& state) {
  const MutexLock lock(mutex_);
  std::erase_if(states_, [](const std::weak_ptr<ArenaState>& known) { return known.expired(); });
  states_.push_back(state);
}

std::shared_ptr<ArenaState> ArenaRegistry::find(const std::array<std::byte, 16>& id) {
  const MutexLock lock(mutex_);
  for (const std::weak_ptr<ArenaState>& known : states_) {
    if (auto state = known.lock(); state && state->ledger().header().id == id) return state;
  }
  return nullptr;
}

void ArenaRegistry::before_fork() {
  mutex_.lock();
  for (const std::weak_ptr<ArenaState>& known : states_) {
    if (auto state = known.lock()) {
      state->before_fork();
      forking_.push_back(std::move(state));
    }
  }
}

void ArenaRegistry::after_fork(void (ArenaState::*step)()) {
  for (const std::shared_ptr<ArenaState>& state : forking_) ((*state).*step)();
  const std::vector<std::shared_ptr<ArenaState>> forked = std::exchange(forking_, {});
  mutex_.unlock();
}

}  // namespace headrace::shm
