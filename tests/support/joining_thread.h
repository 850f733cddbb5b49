#pragma once

#include <thread>
#include <utility>

namespace headrace {

// std::jthread, which libc++ before 20 keeps among what is experimental.
class JoiningThread {
 public:
  JoiningThread() = default;
  template <typename Body>
  explicit JoiningThread(Body body) : thread_(std::move(body)) {}
  ~JoiningThread() { join(); }
  JoiningThread(JoiningThread&&) = default;
  JoiningThread& operator=(JoiningThread&& other) noexcept {
    join();
    thread_ = std::move(other.thread_);
    return *this;
  }

  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
};

}  // namespace headrace
