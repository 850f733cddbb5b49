#pragma once

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "base/function_ref.h"

namespace headrace {

// Of a change that others may forestall by one of their own: waits longer each time, by chance, so
// that those who met once do not meet again, and ends.
class Attempts {
 public:
  // Each one that is lost was won by somebody: of that many writers the last one gets through.
  static constexpr int kMost = 20;

  // Whether there is to be another one, after wait().
  bool next(FunctionRef<void()> check) {
    if (lost_ + 1 >= kMost) return false;
    wait(check);
    return true;
  }

  // `check` is called meanwhile, and may throw.
  void wait(FunctionRef<void()> check) {
    using std::chrono::milliseconds;
    const int most = std::min(1 << std::min(++lost_ + 2, 9), 300);
    const auto until = std::chrono::steady_clock::now() +
                       milliseconds(std::uniform_int_distribution<int>(0, most)(random_));
    for (auto now = std::chrono::steady_clock::now(); now < until;
         now = std::chrono::steady_clock::now()) {
      std::this_thread::sleep_for(
          std::min<std::chrono::steady_clock::duration>(until - now, milliseconds(50)));
      check();
    }
  }

 private:
  int lost_ = 0;
  std::minstd_rand random_{std::random_device()()};
};

}  // namespace headrace
