// Faults that the shadow memory of the host run finds (simt/shadow.h). The kernels of
// tests/kernels, which are built into the same program, must be without.

#include "simt/shadow.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "headrace/error.h"
#include "simt/host_queue.h"
#include "simt/simt.h"

namespace headrace::host {
namespace {

constexpr unsigned kThreadsEach = 32;

template <class F>
struct EachThread {
  static constexpr unsigned kThreads = kThreadsEach;
  struct Shared {
    u32 words[kThreads];
  };
  F body;
  SIMT_DEVICE void operator()(Shared& shared) const { body(shared.words); }
};

// What is found, on every seed the same: "" for nothing.
template <class F>
std::string found(F body, std::size_t blocks = 8) {
  std::string first;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    std::string text;
    try {
      HostQueue queue(seed);
      simt::launch(queue, blocks, EachThread<F>{body});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::device);
      text = error.what();
    }
    if (seed == 0) first = text;
    EXPECT_EQ(first.empty(), text.empty()) << "seed " << seed << ": " << text;
  }
  return first;
}

void expect_found(const std::string& text, const std::string& wanted) {
  EXPECT_NE(text.find(wanted), std::string::npos) << '"' << text << '"';
  EXPECT_NE(text.find("EachThread"), std::string::npos) << "names no kernel: " << text;
}

u32 index() { return simt::block_index() * kThreadsEach + simt::thread_index(); }

TEST(Shadow, LetsBlocksTouchTheirOwn) {
  std::vector<u32> from(8 * kThreadsEach, 1), to(8 * kThreadsEach);
  const u32* const in = from.data();
  u32* const out = to.data();
  EXPECT_EQ(found([=](u32* words) {
              words[simt::thread_index()] = simt::load_constant(in + index()) + in[0];
              simt::sync_warp();
              out[index()] = words[kThreadsEach - 1 - simt::thread_index()];
              simt::sync_warp();
              out[index() ^ 1] += 1;  // of the same block
            }),
            "");
  EXPECT_EQ(to[5], 3u);
}

TEST(Shadow, FindsTwoBlocksThatWriteOneByte) {
  std::vector<u32> to(16);
  u32* const out = to.data();
  expect_found(found([=](u32*) { out[simt::block_index() / 2] = simt::block_index(); }),
               "writes a byte");
  // Though it is the same value.
  expect_found(found([=](u32*) { out[3] = 7; }), "another block writes");
  expect_found(found([=](u32*) { reinterpret_cast<u8*>(out)[simt::block_index() / 7] = 1; }),
               "another block writes");
}

TEST(Shadow, FindsAByteThatOverlaps) {
  std::vector<u64> to(16);
  auto* const bytes = reinterpret_cast<u8*>(to.data());
  EXPECT_EQ(found([=](u32*) {
              if (simt::thread_index() == 0) *(bytes + 4 * simt::block_index()) = 1;
            }),
            "");
  // The last byte of each is the next one's first.
  expect_found(found([=](u32*) {
                 if (simt::thread_index() < 5)
                   bytes[4 * simt::block_index() + simt::thread_index()] = 1;
               }),
               "another block writes");
}

TEST(Shadow, FindsABlockThatReadsWhatAnotherWrote) {
  std::vector<u32> to(9 * kThreadsEach);
  u32* const out = to.data();
  expect_found(found([=](u32*) { out[index()] = out[index() + kThreadsEach]; }), "another block");
  // Only one of many, after a barrier, through its stack.
  expect_found(found([=](u32*) {
                 out[index()] = 1;
                 simt::sync_block();
                 u32 local[2] = {out[index()], 0};
                 if (simt::block_index() == 5 && simt::thread_index() == 9) local[1] = out[3];
                 out[index()] = local[0] + local[1];
               }),
               "another block");
}

TEST(Shadow, FindsAnAsyncCopyOfWhatAnotherBlockWrites) {
  std::vector<simt::Quad> quads(9);
  simt::Quad* const data = quads.data();
  expect_found(found([=](u32* words) {
                 if (simt::thread_index() != 0) return;
                 simt::copy_async(words, data + simt::block_index() + 1);
                 simt::copy_commit();
                 simt::copy_wait();
                 data[simt::block_index()] = {words[0], 0, 0, 0};
               }),
               "another block");
}

TEST(Shadow, FindsACachedLoadOfWhatTheKernelWrites) {
  std::vector<u32> to(8 * kThreadsEach);
  u32* const out = to.data();
  // Of the same thread's, before or after.
  expect_found(found([=](u32*) {
                 out[index()] = 1;
                 out[index()] = simt::load_constant(out + index());
               }),
               "this launch");
  expect_found(found([=](u32*) { out[index()] = simt::load_constant(out + index()) + 1; }),
               "this launch");
  // Of another block's, though it writes by an atomic.
  expect_found(found([=](u32*) {
                 if (simt::block_index() == 0)
                   simt::atomic_add(out, 1u);
                 else if (simt::block_index() == 7)
                   simt::load_constant(out);
               }),
               "this launch");
}

TEST(Shadow, LetsBlocksShareByTheOperationsForIt) {
  std::vector<u32> to(16);
  u32* const out = to.data();
  EXPECT_EQ(found([=](u32*) {
              simt::atomic_add(out, 1u);
              simt::atomic_max(out + 1, simt::block_index());
              simt::store_shared_cache(out + 2, simt::load_shared_cache(out + 2) + 1);
              simt::atomic_compare_exchange(out + 3, 0u, 1u);
            }),
            "");
  EXPECT_EQ(to[0], 5 * 8 * kThreadsEach);
  // But not with plain ones.
  expect_found(found([=](u32*) {
                 if (simt::block_index() == 3)
                   out[0] = 1;
                 else
                   simt::atomic_add(out, 1u);
               }),
               "another block");
  expect_found(found([=](u32*) {
                 if (simt::block_index() == 3)
                   simt::store_shared_cache(out, 1u);
                 else if (out[0] == 77)
                   simt::atomic_add(out + 1, 1u);
               }),
               "another block");
}

TEST(Shadow, ForgetsWithTheLaunch) {
  std::vector<u32> to(kThreadsEach);
  u32* const out = to.data();
  EXPECT_EQ(found([=](u32*) { out[simt::thread_index()] += 1; }, 1), "");
  EXPECT_EQ(to[0], 5u);
  EXPECT_EQ(found([=](u32*) { simt::load_constant(out + simt::thread_index()); }), "");
}

}  // namespace
}  // namespace headrace::host
