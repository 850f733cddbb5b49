#pragma once

// What a test tells the fake cuFile, and what it was asked for: `fake_cufile` of the library.

#include <atomic>
#include <cstddef>

struct FakeCufile {
  std::atomic<long> files{0};    // that were registered
  std::atomic<long> refused{0};  // that were not
  std::atomic<long> open{0};     // that are registered now
  std::atomic<long> reads{0};    // calls
  std::atomic<long> nbytes{0};   // that they gave

  // How it fails.
  std::atomic<int> refuse{0};               // files, with this error
  std::atomic<long> most_nbytes{1L << 40};  // of a read, which is short then
  std::atomic<long> failing_read{0};        // the how many-th from now on; 0: none
  std::atomic<long> failure{0};             // what it returns: 0 (no more), -1 (EIO) or -error
};
