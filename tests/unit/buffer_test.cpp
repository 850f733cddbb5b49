#include "base/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace headrace {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(Buffer, SharedMemoryIsAlignedWhateverItsSize) {
  for (const std::size_t nbytes :
       {std::size_t{0}, std::size_t{1}, kMiB - 1, kMiB, 2 * kMiB - 1, 2 * kMiB, 21 * kMiB}) {
    const auto block = allocate_shared(nbytes);
    std::memset(block.get(), 0x5a, nbytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.get()) % 64, 0u) << nbytes;
    if (nbytes >= 2 * kMiB) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.get()) % (2 * kMiB), 0u) << nbytes;
    }
  }
}

TEST(Buffer, FreedBlockServesTheNextOfAboutItsSize) {
  for (const std::size_t nbytes : {kMiB + 1000, 2 * kMiB - 1000, 9 * kMiB - 1000}) {
    auto block = allocate_shared(nbytes);
    const std::byte* const first = block.get();
    block.reset();
    block = allocate_shared(nbytes - 500);
    EXPECT_EQ(block.get(), first) << nbytes;
  }
}

TEST(Buffer, KeepsItsContentsWhenItGrows) {
  Buffer buffer(3);
  std::memcpy(buffer.data(), "abc", 3);
  buffer.resize_keep(3 * kMiB);
  EXPECT_EQ(std::memcmp(buffer.data(), "abc", 3), 0);
  EXPECT_GE(buffer.capacity(), 3 * kMiB);
  buffer.reset();
  EXPECT_EQ(buffer.capacity(), 0u);
}

}  // namespace
}  // namespace headrace
