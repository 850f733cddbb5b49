// Faults that the shadow memory of the host run finds (simt/shadow.h). The kernels of
// tests/kernels, which are built into the same program, must be without.

#include "simt/shadow.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
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
std::string found(F body, std::size_t ctas = 8) {
  std::string first;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    std::string text;
    try {
      HostQueue queue(seed);
      simt::launch(queue, ctas, EachThread<F>{body});
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

u32 index() { return simt::cta_index() * kThreadsEach + simt::thread_index(); }

TEST(Shadow, LetsBlocksTouchTheirOwn) {
  std::vector<u32> from(8 * kThreadsEach, 1), to(8 * kThreadsEach);
  const u32* const in = from.data();
  u32* const out = to.data();
  EXPECT_EQ(found([=](u32* words) {
              words[simt::thread_index()] = simt::load_constant(in + index()) + in[0];
              simt::sync_warp();
              out[index()] = words[kThreadsEach - 1 - simt::thread_index()];
              simt::sync_warp();
              out[index() ^ 1] += 1;  // of the same CTA
            }),
            "");
  EXPECT_EQ(to[5], 3u);
}

TEST(Shadow, FindsTwoBlocksThatWriteOneByte) {
  std::vector<u32> to(16);
  u32* const out = to.data();
  expect_found(found([=](u32*) { out[simt::cta_index() / 2] = simt::cta_index(); }),
               "writes a byte");
  // Though it is the same value.
  expect_found(found([=](u32*) { out[3] = 7; }), "another CTA writes");
  expect_found(found([=](u32*) { reinterpret_cast<u8*>(out)[simt::cta_index() / 7] = 1; }),
               "another CTA writes");
}

TEST(Shadow, FindsAByteThatOverlaps) {
  std::vector<u64> to(16);
  auto* const bytes = reinterpret_cast<u8*>(to.data());
  EXPECT_EQ(found([=](u32*) {
              if (simt::thread_index() == 0) *(bytes + 4 * simt::cta_index()) = 1;
            }),
            "");
  // The last byte of each is the next one's first.
  expect_found(found([=](u32*) {
                 if (simt::thread_index() < 5)
                   bytes[4 * simt::cta_index() + simt::thread_index()] = 1;
               }),
               "another CTA writes");
}

TEST(Shadow, FindsABlockThatReadsWhatAnotherWrote) {
  std::vector<u32> to(9 * kThreadsEach);
  u32* const out = to.data();
  expect_found(found([=](u32*) { out[index()] = out[index() + kThreadsEach]; }), "another CTA");
  // Only one of many, after a barrier, through its stack.
  expect_found(found([=](u32*) {
                 out[index()] = 1;
                 simt::sync_cta();
                 u32 local[2] = {out[index()], 0};
                 if (simt::cta_index() == 5 && simt::thread_index() == 9) local[1] = out[3];
                 out[index()] = local[0] + local[1];
               }),
               "another CTA");
}

TEST(Shadow, FindsAnAsyncCopyOfWhatAnotherBlockWrites) {
  std::vector<simt::Quad> quads(9);
  simt::Quad* const data = quads.data();
  expect_found(found([=](u32* words) {
                 if (simt::thread_index() != 0) return;
                 simt::copy_async(words, data + simt::cta_index() + 1);
                 simt::copy_commit();
                 simt::copy_wait();
                 data[simt::cta_index()] = {words[0], 0, 0, 0};
               }),
               "another CTA");
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
  // Of another CTA's, though it writes by an atomic.
  expect_found(found([=](u32*) {
                 if (simt::cta_index() == 0)
                   simt::atomic_add(out, 1u);
                 else if (simt::cta_index() == 7)
                   simt::load_constant(out);
               }),
               "this launch");
}

TEST(Shadow, LetsBlocksShareByTheOperationsForIt) {
  std::vector<u32> to(16);
  u32* const out = to.data();
  EXPECT_EQ(found([=](u32*) {
              simt::atomic_add(out, 1u);
              simt::atomic_max(out + 1, simt::cta_index());
              simt::store_shared_cache(out + 2, simt::load_shared_cache(out + 2) + 1);
              simt::atomic_compare_exchange(out + 3, 0u, 1u);
            }),
            "");
  EXPECT_EQ(to[0], 5 * 8 * kThreadsEach);
  // But not with plain ones.
  expect_found(found([=](u32*) {
                 if (simt::cta_index() == 3)
                   out[0] = 1;
                 else
                   simt::atomic_add(out, 1u);
               }),
               "another CTA");
  expect_found(found([=](u32*) {
                 if (simt::cta_index() == 3)
                   simt::store_shared_cache(out, 1u);
                 else if (out[0] == 77)
                   simt::atomic_add(out + 1, 1u);
               }),
               "another CTA");
}

TEST(Shadow, ForgetsWithTheLaunch) {
  std::vector<u32> to(kThreadsEach);
  u32* const out = to.data();
  EXPECT_EQ(found([=](u32*) { out[simt::thread_index()] += 1; }, 1), "");
  EXPECT_EQ(to[0], 5u);
  EXPECT_EQ(found([=](u32*) { simt::load_constant(out + simt::thread_index()); }), "");
}

struct [[gnu::packed]] Unaligned {
  u64 word;
};

TEST(Shadow, FindsAByteOfAWordAcrossPages) {
  constexpr std::size_t kPage = simt::ShadowPage::kMask + 1;
  std::vector<u8> memory(2 * kPage);
  u8* const end = memory.data() + (kPage - reinterpret_cast<std::uintptr_t>(memory.data()) % kPage);
  for (int at = -4; at < 5; ++at) {
    const std::string text = found([=](u32*) {
      if (simt::thread_index() != 0) return;
      if (simt::cta_index() == 2) reinterpret_cast<Unaligned*>(end - 4)->word = 1;
      if (simt::cta_index() == 4) end[at] = 1;
    });
    if (at < 4)
      expect_found(text, "another CTA writes");
    else
      EXPECT_EQ(text, "");
  }
}

// Threads keep the last pages that they used, of some distances in the same place.
TEST(Shadow, KeepsPagesApart) {
  constexpr std::size_t kApart = simt::kLastPages * (simt::ShadowPage::kMask + 1);
  const std::unique_ptr<u8[]> memory(new u8[4 * kApart + 64]);
  u8* const out = memory.get();
  const auto touch = [=](u32 place_of_last) {
    return found([=](u32*) {
      if (simt::thread_index() != 0) return;
      const u32 cta = simt::cta_index();
      for (u32 round = 0; round < 3; ++round)
        for (u32 k = 0; k < 4; ++k) out[k * kApart + cta] = 1;
      if (cta == 7) out[place_of_last] = 1;
    });
  };
  EXPECT_EQ(touch(8), "");
  expect_found(touch(3 * kApart + 6), "another CTA writes");
}

// What two accesses may not be to one byte, as the header says it.
bool is_race(unsigned cta_a, simt::Access a, unsigned cta_b, simt::Access b) {
  using simt::Access;
  const auto writes = [](Access x) { return x == Access::write || x == Access::shared_write; };
  const auto is_shared = [](Access x) {
    return x == Access::shared_read || x == Access::shared_write;
  };
  if (!writes(a) && !writes(b)) return false;
  if (a == Access::constant || b == Access::constant) return true;
  return cta_a != cta_b && !(is_shared(a) && is_shared(b));
}

// All sequences of accesses by three CTAs, each up to its first race.
class AllAccesses {
 public:
  void go_on(simt::Cell cell, unsigned left) {
    for (unsigned cta = 0; cta < 3; ++cta) {
      for (unsigned kind = 0; kind < 5; ++kind) {
        const auto access = static_cast<simt::Access>(kind);
        const simt::Cell owner = simt::owner(7, cta);
        bool race = false;
        for (const auto& [other, before] : so_far_) race |= is_race(other, before, cta, access);
        const simt::Noted now = simt::noted(cell, owner, access);
        const bool skipped = simt::are_noted(cell ^ owner, cell, access);
        wrong_ += (now.conflict != nullptr) != race || (skipped && race);
        ++tried_;
        if (race || left == 1) continue;
        so_far_.emplace_back(cta, access);
        go_on(skipped ? cell : now.cell, left - 1);
        so_far_.pop_back();
      }
    }
  }
  long wrong() const { return wrong_; }
  long tried() const { return tried_; }

 private:
  std::vector<std::pair<unsigned, simt::Access>> so_far_;
  long wrong_ = 0, tried_ = 0;
};

TEST(Shadow, ACellForgetsNothingThatCounts) {
  for (const simt::Cell left_over : {simt::Cell{0}, simt::owner(6, 1) | simt::kFlags}) {
    AllAccesses accesses;
    accesses.go_on(left_over, 5);
    EXPECT_EQ(accesses.wrong(), 0);
    EXPECT_GT(accesses.tried(), 50'000);
  }
}

}  // namespace
}  // namespace headrace::host
