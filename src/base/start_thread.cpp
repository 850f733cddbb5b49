#include "base/start_thread.h"

#include <utility>

#include "base/fork_mutex.h"

namespace headrace {

std::thread start_thread(std::function<void()> body) {
  static auto* mutex = new ForkMutex;  // never destroyed: static destructors may start threads
  const ForkLock lock(*mutex);
  return std::thread(std::move(body));
}

}  // namespace headrace
