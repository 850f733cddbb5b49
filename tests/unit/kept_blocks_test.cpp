#include "base/kept_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <new>
#include <vector>

namespace headrace {
namespace {

constexpr std::size_t kMostEach = 32, kMost = 64;

// A pool of addresses that are not memory. The one that was freed last is given first, whatever its
// size was: as a driver's pool does that cuts its blocks anew.
struct Pool {
  std::map<void*, std::size_t> used;
  std::vector<void*> freed;
  std::uintptr_t next = 0x1000;
  bool full = false;

  void* allocate(std::size_t nbytes) {
    if (full) throw std::bad_alloc();
    void* memory = nullptr;
    if (freed.empty()) {
      memory = reinterpret_cast<void*>(next += 0x1000);
    } else {
      memory = freed.back();
      freed.pop_back();
    }
    used[memory] = nbytes;
    return memory;
  }
  void free(void* memory) {
    ASSERT_EQ(used.erase(memory), 1u) << "was not in use";
    freed.push_back(memory);
  }
  std::size_t nbytes() const {
    std::size_t sum = 0;
    for (const auto& [memory, size] : used) sum += size;
    return sum;
  }
};

struct Fixture {
  Pool pool;
  KeptBlocks blocks{kMostEach, kMost};

  void* allocate(std::size_t nbytes) {
    return blocks.allocate(
        nbytes, [&](std::size_t n) { return pool.allocate(n); }, [&](void* p) { pool.free(p); });
  }
  void* allocate_unkept(std::size_t nbytes) {
    return blocks.allocate_unkept(nbytes, [&](std::size_t n) { return pool.allocate(n); });
  }
  void free(void* memory) {
    blocks.free(memory, [&](void* p) { pool.free(p); });
  }
};

TEST(KeptBlocks, GiveAFreedBlockToTheNext) {
  Fixture f;
  void* const a = f.allocate(20);
  f.free(a);
  EXPECT_EQ(f.blocks.kept_nbytes(), 20u);
  EXPECT_EQ(f.pool.nbytes(), 20u);
  EXPECT_EQ(f.allocate(11), a);
  EXPECT_EQ(f.blocks.kept_nbytes(), 0u);
  f.free(a);
  EXPECT_NE(f.allocate(9), a) << "less than half of it";
  EXPECT_NE(f.allocate(21), a);
}

// A result that its owner frees past the stream, and large scratch memory at its address.
TEST(KeptBlocks, ForgetASizeWhenTheAddressIsOfAnotherBlock) {
  Fixture f;
  void* const result = f.allocate(8);
  f.pool.free(result);
  void* const large = f.allocate(1000);
  ASSERT_EQ(large, result) << "the pool of this test gives addresses again";
  f.free(large);
  EXPECT_EQ(f.blocks.kept_nbytes(), 0u);
  EXPECT_EQ(f.pool.nbytes(), 0u) << "kept as a block of 8 bytes";
}

TEST(KeptBlocks, ForgetASizeWhenAResultTakesTheAddress) {
  Fixture f;
  f.pool.free(f.allocate(8));
  void* const result = f.allocate_unkept(30);
  f.free(result);
  EXPECT_EQ(f.blocks.kept_nbytes(), 0u);
  EXPECT_EQ(f.pool.nbytes(), 0u);
}

TEST(KeptBlocks, KnowTheLastSizeOfAnAddress) {
  Fixture f;
  f.pool.free(f.allocate(8));
  void* const again = f.allocate(32);
  f.free(again);
  EXPECT_EQ(f.blocks.kept_nbytes(), 32u);
  EXPECT_NE(f.allocate(8), again);
}

TEST(KeptBlocks, KeepWhatFits) {
  Fixture f;
  std::vector<void*> all;
  for (int i = 0; i < 5; ++i) all.push_back(f.allocate(30));
  for (void* memory : all) f.free(memory);
  EXPECT_EQ(f.blocks.kept_nbytes(), 60u);
  EXPECT_EQ(f.pool.nbytes(), 60u);
  EXPECT_EQ(f.allocate(30), all[3]) << "the oldest go first";
}

TEST(KeptBlocks, GiveBlocksOfOthersBack) {
  Fixture f;
  void* const others = f.pool.allocate(8);
  f.free(others);
  EXPECT_EQ(f.pool.nbytes(), 0u);
  EXPECT_EQ(f.blocks.kept_nbytes(), 0u);
}

TEST(KeptBlocks, StayAsTheyAreWhenThereIsNoMemory) {
  Fixture f;
  void* const a = f.allocate(20);
  f.pool.full = true;
  EXPECT_THROW(f.allocate(20), std::bad_alloc);
  EXPECT_THROW(f.allocate(200), std::bad_alloc);
  EXPECT_THROW(f.allocate_unkept(20), std::bad_alloc);
  f.free(a);
  EXPECT_EQ(f.allocate(20), a);
}

}  // namespace
}  // namespace headrace
