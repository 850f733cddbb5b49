#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "store/async.h"

namespace headrace::test {

// A read that counts how often it was done: once, if all is right.
class NotedRead final : public AsyncRead {
 public:
  NotedRead() = default;
  NotedRead(std::string its_key, const Extent& its_extent, std::string its_version = {}) {
    key = std::move(its_key);
    extent = its_extent;
    if_version = std::move(its_version);
  }

  void done() noexcept override {
    const std::lock_guard lock(mutex_);
    ++times_;
    done_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return times_ > 0; });
  }
  int times() {
    const std::lock_guard lock(mutex_);
    return times_;
  }
  std::string text() const { return std::string(text_of(bytes)); }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int times_ = 0;
};

}  // namespace headrace::test
