#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace headrace::shm {

// Sleeps while `word` is `value`, for at most `timeout`. False: the time ran out. True: somebody
// woke this thread, or it woke by itself.
bool futex_wait(std::atomic<std::uint32_t>& word,
                std::uint32_t value,
                std::chrono::nanoseconds timeout);
// Wakes at most `count` threads of any process.
void futex_wake(std::atomic<std::uint32_t>& word, int count);

}  // namespace headrace::shm
