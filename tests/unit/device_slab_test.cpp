// Memory on its way to a device: many threads fill blocks, and none of them waits for another's
// wait.

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/device/slab.h"
#include "headrace/error.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

constexpr std::size_t kBlock = 4096;

// Calls what the test gives before it has pinned memory, as a driver takes its time for it.
class SlowDevice final : public test::SimtDevice {
 public:
  std::function<void(int nth)> before;
  std::shared_ptr<std::byte> allocate_pinned(int index, std::size_t nbytes) override {
    if (before) before(++calls_);
    return test::SimtDevice::allocate_pinned(index, nbytes);
  }

 private:
  std::atomic<int> calls_{0};
};

void fill(const SlabMemory::Piece& piece, std::size_t nbytes, int value) {
  std::memset(piece.host, value, nbytes);
}
bool holds(const SlabMemory::Piece& piece, std::size_t nbytes, int value) {
  for (std::size_t i = 0; i < nbytes; ++i)
    if (piece.device[i] != static_cast<std::uint8_t>(value)) return false;
  return true;
}

TEST(DeviceSlab, FillsBlocksWhileAnotherThreadWaitsForOne) {
  for (const std::size_t second : {std::size_t{200}, 2 * kBlock}) {  // in a new block, in its own
    SlowDevice device;
    const auto queue = device.make_queue(0);
    PinnedBlocks pinned(device, 0);
    SlabMemory memory(pinned, *queue, kBlock);
    const SlabMemory::Piece first = memory.reserve(kBlock - 200);
    bool filled = false;
    std::future<void> other;
    device.before = [&](int nth) {
      if (nth > 1) return;
      other = std::async(std::launch::async, [&] {
        fill(first, kBlock - 200, 5);
        memory.filled(first);
      });
      filled = other.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    };
    const SlabMemory::Piece next = memory.reserve(second);
    EXPECT_TRUE(filled) << "filled() waited for reserve()";
    other.get();
    fill(next, second, 6);
    memory.filled(next);
    memory.finish();
    EXPECT_TRUE(holds(first, kBlock - 200, 5));
    EXPECT_TRUE(holds(next, second, 6));
  }
}

TEST(DeviceSlab, OneThreadTakesABlockForAll) {
  constexpr int kThreads = 8, kPieces = 100;
  SlowDevice device;
  std::atomic<int> taken{0};
  device.before = [&](int) { ++taken; };
  const auto queue = device.make_queue(0);
  PinnedBlocks pinned(device, 0);
  SlabMemory memory(pinned, *queue, kBlock);
  std::vector<std::vector<SlabMemory::Piece>> pieces(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPieces; ++i) {
        pieces[t].push_back(memory.reserve(100));
        fill(pieces[t].back(), 100, 10 * t + i);
        memory.filled(pieces[t].back());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  memory.finish();
  for (int t = 0; t < kThreads; ++t)
    for (int i = 0; i < kPieces; ++i)
      EXPECT_TRUE(holds(pieces[t][i], 100, 10 * t + i)) << t << ' ' << i;
  // 144 bytes with what pads them: 28 a block.
  EXPECT_LE(taken, kThreads * kPieces / 28 + 1);
}

TEST(DeviceSlab, GoesOnAfterABlockThatCouldNotBeHad) {
  SlowDevice device;
  const auto queue = device.make_queue(0);
  PinnedBlocks pinned(device, 0);
  SlabMemory memory(pinned, *queue, kBlock);
  const SlabMemory::Piece first = memory.reserve(kBlock - 200);
  fill(first, kBlock - 200, 5);
  memory.filled(first);
  device.before = [&](int nth) {
    if (nth <= 2) throw Error(ErrorCode::out_of_memory, "test");
  };
  EXPECT_THROW(memory.reserve(200), Error);
  EXPECT_THROW(memory.reserve(3 * kBlock), Error);
  const SlabMemory::Piece next = memory.reserve(200);
  fill(next, 200, 6);
  memory.filled(next);
  memory.finish();
  EXPECT_TRUE(holds(first, kBlock - 200, 5));
  EXPECT_TRUE(holds(next, 200, 6));
}

}  // namespace
}  // namespace headrace
