#include "engine/key_lock.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <functional>

namespace headrace {
namespace {

using Stripes = std::array<std::mutex, 256>;
std::atomic<Stripes*> g_stripes{nullptr};

Stripes& stripes() {
  static const bool registered = [] {
    g_stripes.store(new Stripes);
    pthread_atfork(nullptr, nullptr, [] { g_stripes.store(new Stripes); });
    return true;
  }();
  static_cast<void>(registered);
  return *g_stripes.load();
}

}  // namespace

std::unique_lock<std::mutex> lock_key(std::string_view store_url, std::string_view key) {
  const std::hash<std::string_view> hash;
  Stripes& all = stripes();
  return std::unique_lock(all[(hash(store_url) * 31 + hash(key)) % all.size()]);
}

}  // namespace headrace
