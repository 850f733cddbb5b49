#pragma once

// How files are read while arrays go to a device.

#include <atomic>
#include <cstddef>

#include "base/system.h"
#include "unit/device_kit.h"

namespace headrace::test {

class WatchedReads : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    reads = 0;
    largest_read = 0;
    calls_ = real_system_calls();
    calls_.pread = watched_pread;
    exchange_system_calls(&calls_);
  }
  void TearDown() override {
    exchange_system_calls(nullptr);
    DeviceTest::TearDown();
  }

  // By pread(), of the process.
  static inline std::atomic<int> reads{0};
  static inline std::atomic<std::size_t> largest_read{0};

 private:
  static ssize_t watched_pread(int fd, void* into, std::size_t nbytes, off_t offset) {
    ++reads;
    std::size_t seen = largest_read;
    while (nbytes > seen && !largest_read.compare_exchange_weak(seen, nbytes)) {
    }
    return real_system_calls().pread(fd, into, nbytes, offset);
  }

  SystemCalls calls_;
};

}  // namespace headrace::test
