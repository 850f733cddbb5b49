#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/queues.h"

namespace headrace::test {

using Bytes = std::vector<std::uint8_t>;

inline Bytes random_bytes(std::mt19937_64& random, std::size_t n) {
  Bytes bytes(n);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

// Gives run(queue, frames) a batch of sources and targets of the given sizes at random alignments;
// returns what is in the targets then. Bytes around each target must be untouched.
template <class Run>
std::vector<Bytes> run_frames(Queue& queue,
                              std::mt19937_64& random,
                              const std::vector<Bytes>& inputs,
                              const std::vector<std::size_t>& nbytes,
                              Run run) {
  constexpr std::size_t kGuard = 64;
  std::vector<Scratch<std::uint8_t>> memory;
  std::vector<Bytes> before;
  std::vector<Frame> frames;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::size_t n = inputs[i].size(), shift = kSourcePadding + random() % 16;
    Bytes source = random_bytes(random, shift + n + kSourcePadding);
    if (n > 0) std::memcpy(source.data() + shift, inputs[i].data(), n);
    // What is aligned takes other paths.
    const std::size_t target_shift = random() % 2 == 0 ? 0 : random() % 16;
    before.push_back(random_bytes(random, kGuard + target_shift + nbytes[i] + kGuard));
    memory.push_back(Scratch<std::uint8_t>::of(queue, source.data(), source.size()));
    memory.push_back(Scratch<std::uint8_t>::of(queue, before[i].data(), before[i].size()));
    frames.push_back({memory[2 * i].data() + shift,
                      n,
                      memory[2 * i + 1].data() + kGuard + target_shift,
                      nbytes[i],
                      static_cast<std::uint32_t>(i)});
  }
  run(queue, std::span<const Frame>(frames));
  std::vector<Bytes> results;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Bytes after(before[i].size());
    queue.download(after.data(), memory[2 * i + 1].data(), after.size());
    queue.synchronize();
    const std::size_t begin = after.size() - kGuard - nbytes[i], end = begin + nbytes[i];
    EXPECT_EQ(std::memcmp(after.data(), before[i].data(), begin), 0) << "before target " << i;
    EXPECT_EQ(std::memcmp(after.data() + end, before[i].data() + end, kGuard), 0)
        << "behind target " << i;
    results.emplace_back(after.begin() + static_cast<std::ptrdiff_t>(begin),
                         after.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return results;
}

}  // namespace headrace::test
