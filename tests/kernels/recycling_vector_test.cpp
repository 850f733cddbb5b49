#include "simt/recycling_vector.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

namespace headrace {
namespace {

TEST(RecyclingVector, TakesTheMemoryOfOneOfItsSize) {
  const void* memory = nullptr;
  {
    const RecyclingVector<std::uint32_t> numbers(50'000);
    memory = numbers.data();
  }
  EXPECT_EQ(RecyclingVector<std::uint64_t>(20'000).data(), memory);  // both in 256 KiB
}

TEST(RecyclingVector, KeepsWhatItHoldsAsItGrows) {
  for (const std::size_t n : {1u, 8191u, 8192u, 8193u, 3'000'000u}) {
    RecyclingVector<std::uint32_t> numbers;
    for (std::size_t i = 0; i < n; ++i) numbers.push_back(static_cast<std::uint32_t>(i));
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(numbers[i], i);
  }
}

TEST(RecyclingVector, ThreadsShareNoMemory) {
  std::vector<std::thread> threads;
  std::vector<std::uint64_t> sums(8);
  for (std::size_t t = 0; t < sums.size(); ++t)
    threads.emplace_back([t, &sums] {
      for (std::size_t round = 0; round < 200; ++round) {
        const RecyclingVector<std::uint64_t> numbers(5'000 + 1'000 * (round % 30), t);
        sums[t] +=
            std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0}) / numbers.size();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < sums.size(); ++t) EXPECT_EQ(sums[t], 200 * t);
}

}  // namespace
}  // namespace headrace
