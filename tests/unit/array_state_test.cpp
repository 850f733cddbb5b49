#include "engine/request/array_state.h"

#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <thread>
#include <vector>

#include "headrace/array.h"

namespace headrace {
namespace {

// Reads that were given another one would not be joined: each would ask for a shard's index.
TEST(ArrayState, ThreadsThatAreTheFirstToAskAreGivenOneLayout) {
  constexpr int kThreads = 4, kRounds = 100;
  const Store store = memory_store();
  CreateOptions options;
  options.shape = {64};
  options.dtype = DType::float32;
  options.chunks = {8};
  options.shards = {32};
  options.codecs = {codec::bytes(), codec::zstd(1)};
  create_array(store, "a", options);
  for (int round = 0; round < kRounds; ++round) {
    const Array array = open_array(store, "a");
    std::vector<std::shared_ptr<const ArrayLayout>> first(kThreads), second(kThreads);
    std::barrier start(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        first[t] = array.state()->layout();
        second[t] = array.state()->layout();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int t = 0; t < kThreads; ++t) {
      ASSERT_EQ(first[t], first[0]) << "round " << round;
      ASSERT_EQ(second[t], first[0]) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace headrace
