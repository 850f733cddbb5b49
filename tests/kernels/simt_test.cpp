#include "simt/simt.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "headrace/error.h"
#include "simt/host_queue.h"
#include "support/fork.h"

namespace headrace::host {
namespace {

// Sums 256 numbers a CTA.
struct Sum {
  static constexpr unsigned kThreads = 256;
  struct Shared {
    u32 of_warp[8];
  };
  const u32* numbers;
  u32* sums;
  bool with_barrier;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const u32 sum =
        simt::inclusive_sum(numbers[simt::cta_index() * kThreads + simt::thread_index()]);
    if (simt::lane_index() == 31) shared.of_warp[simt::warp_index()] = sum;
    if (with_barrier) simt::sync_cta();
    if (simt::thread_index() != 0) return;
    u32 total = 0;
    for (u32 part : shared.of_warp) total += part;
    sums[simt::cta_index()] = total;
  }
};

std::vector<u32> sums(std::uint64_t seed, bool with_barrier) {
  std::vector<u32> numbers(256 * 8);
  std::iota(numbers.begin(), numbers.end(), 1u);
  std::vector<u32> result(8);
  HostQueue queue(seed);
  simt::launch(queue, result.size(), Sum{numbers.data(), result.data(), with_barrier});
  return result;
}

TEST(Simt, ABarrierOrdersACta) {
  std::vector<u32> expected(8);
  for (u32 b = 0; b < 8; ++b)
    for (u32 i = 0; i < 256; ++i) expected[b] += b * 256 + i + 1;
  for (std::uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(sums(seed, true), expected) << seed;
}

TEST(Simt, AMissingBarrierShowsOnEverySeed) {
  const std::vector<u32> expected = sums(0, true);
  for (std::uint64_t seed = 0; seed < 20; ++seed) EXPECT_NE(sums(seed, false), expected) << seed;
}

TEST(Simt, TheSameSeedGivesTheSameRun) { EXPECT_EQ(sums(7, false), sums(7, false)); }

template <class F>
struct EachThread {
  static constexpr unsigned kThreads = 64;
  using Shared = simt::NoShared;
  F body;
  SIMT_DEVICE void operator()(Shared&) const { body(); }
};

template <class F>
void run(F body, std::uint64_t seed = 1) {
  HostQueue queue(seed);
  simt::launch(queue, 1, EachThread<F>{body});
}

TEST(Simt, WarpOperations) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    run(
        [] {
          const unsigned lane = simt::lane_index(), warp = simt::warp_index();
          for (int round = 0; round < 3; ++round) {
            EXPECT_EQ(simt::shuffle(lane + 100 * warp, 5), 5 + 100 * warp);
            EXPECT_EQ(simt::shuffle(lane, lane + 1, 8), (lane & 24) | ((lane + 1) & 7));
            EXPECT_EQ(simt::shuffle_up(lane, 3), lane < 3 ? lane : lane - 3);
            EXPECT_EQ(simt::shuffle_up(lane, 1, 16), lane % 16 ? lane - 1 : lane);
            EXPECT_EQ(simt::shuffle_down(u64{lane} << 40, 4),
                      u64{lane < 28 ? lane + 4 : lane} << 40);
            EXPECT_EQ(simt::shuffle_xor(lane, 9), lane ^ 9);
            EXPECT_EQ(simt::ballot(lane % 3 == 0), 0x49249249u);
            EXPECT_TRUE(simt::any(lane == 31));
            EXPECT_FALSE(simt::all(lane != 31));
            EXPECT_EQ(simt::match(lane / 8), 0xffu << lane / 8 * 8);
            EXPECT_EQ(simt::reduce_add(lane), 496u);
            EXPECT_EQ(simt::reduce_min(lane + 2), 2u);
            EXPECT_EQ(simt::reduce_max(lane), 31u);
            EXPECT_EQ(simt::reduce_or(1u << lane), ~0u);
            EXPECT_EQ(simt::inclusive_sum(lane), lane * (lane + 1) / 2);
          }
        },
        seed);
  }
}

TEST(Simt, LastAtOrBefore) {
  for (const u32 count : {1u, 2u, 31u, 32u, 33u, 1000u, 5000u}) {
    std::vector<u32> keys(count);
    for (u32 i = 0; i < count; ++i) keys[i] = i / 3 * 10;  // equal ones too
    for (const u32 key : {0u, 9u, 10u, 11u, 500u, 100000u}) {
      const auto end = std::upper_bound(keys.begin(), keys.end(), key);
      const auto expected = static_cast<u32>(end - keys.begin()) - 1;
      run([&] {
        EXPECT_EQ(simt::last_at_or_before(count, key, [&](u32 i) { return keys[i]; }), expected);
      });
    }
  }
}

TEST(Simt, LanesThatReturnedTakeNoPart) {
  run([] {
    if (simt::lane_index() >= 20) return;
    EXPECT_EQ(simt::ballot(true), 0xfffffu);
    EXPECT_EQ(simt::reduce_max(simt::lane_index()), 19u);
    simt::sync_cta();
  });
}

struct Count {
  static constexpr unsigned kThreads = 96;
  using Shared = simt::NoShared;
  u32 *count, *bits;
  SIMT_DEVICE void operator()(Shared&) const {
    simt::atomic_add(count, 1u);
    simt::atomic_or(bits, 1u << simt::cta_index());
  }
};

TEST(Simt, AtomicsOfAllCtasAddUp) {
  u32 count = 0, bits = 0;
  HostQueue queue(3);
  simt::launch(queue, 32, Count{&count, &bits});
  EXPECT_EQ(count, 32u * 96);
  EXPECT_EQ(bits, ~0u);
}

void expect_error(const std::function<void()>& body, const std::string& text) {
  try {
    body();
    FAIL() << "expected: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device);
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

// Each CTA adds to what the one before has written, in the order in which they begin.
struct AddInTurns {
  static constexpr unsigned kThreads = 64;
  struct Shared {
    u32 turn;
  };
  u32* next;
  u32* done;
  u32* sums;  // kThreads a turn, behind those of a turn before the first

  SIMT_DEVICE void operator()(Shared& shared) const {
    if (simt::thread_index() == 0) shared.turn = simt::atomic_add(next, 1u);
    simt::sync_cta();
    const u32 turn = shared.turn;
    if (simt::thread_index() == 0) simt::wait_for(done, turn);
    simt::sync_cta();
    u32* const sum = sums + kThreads * turn + simt::thread_index();
    simt::store_shared_cache(sum + kThreads, simt::load_shared_cache(sum) + turn);
    simt::sync_cta();
    if (simt::thread_index() == 0) simt::signal(done, turn + 1);
  }
};

TEST(Simt, CtasWaitForThoseThatBegan) {
  constexpr u32 kTurns = 200, kThreads = AddInTurns::kThreads;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    u32 next = 0, done = 0;
    std::vector<u32> sums(kThreads * (kTurns + 1));
    HostQueue queue(seed);
    simt::launch(queue, kTurns, AddInTurns{&next, &done, sums.data()});
    queue.synchronize();
    for (u32 i = 0; i < kThreads; ++i)
      EXPECT_EQ(sums[kThreads * kTurns + i], kTurns * (kTurns - 1) / 2);
  }
}

TEST(Simt, SyncsThatNotAllReachAreErrors) {
  expect_error(
      [] {
        run([] {
          if (simt::lane_index() < 7)
            simt::ballot(true);
          else
            simt::sync_warp();
        });
      },
      "different operations");
  expect_error(
      [] {
        run([] {
          if (simt::lane_index() < 7)
            simt::sync_cta();
          else
            simt::sync_warp();
        });
      },
      "wait for each other");
  run([] { simt::sync_cta(); });  // the next run is whole
}

struct StageQuads {
  static constexpr unsigned kThreads = 32;
  struct Shared {
    simt::Quad quads[32];
  };
  const simt::Quad* from;
  simt::Quad* to;
  bool waits;
  SIMT_DEVICE void operator()(Shared& shared) const {
    const unsigned lane = simt::lane_index();
    simt::copy_async(&shared.quads[lane], from + lane);
    simt::copy_commit();
    if (waits) simt::copy_wait();
    simt::sync_warp();
    to[lane] = shared.quads[31 - lane];
    simt::copy_wait();
  }
};

TEST(Simt, AnAsyncCopyArrivesWhenItIsWaitedFor) {
  std::vector<simt::Quad> from(32), to(32);
  for (u32 i = 0; i < 32; ++i) from[i] = {i, i + 1, i + 2, i + 3};
  HostQueue queue(1);
  simt::launch(queue, 1, StageQuads{from.data(), to.data(), true});
  EXPECT_EQ(to[3].x, 28u);
  simt::launch(queue, 1, StageQuads{from.data(), to.data(), false});
  EXPECT_NE(to[3].x, 28u);
}

// As a GPU has it: the rest of the number would be lost without a word.
TEST(Simt, AGridHasALimit) {
  HostQueue queue(1);
  u32 count = 0, bits = 0;
  for (const std::size_t ctas :
       {std::size_t{1} << 31, std::size_t{1} << 32, (std::size_t{1} << 32) + 1}) {
    try {
      simt::launch(queue, ctas, Count{&count, &bits});
      FAIL() << ctas;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(error.what()).find(std::to_string(ctas)), std::string::npos);
    }
  }
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(grid_ctas((std::size_t{1} << 31) - 1), 0x7fffffffu);
}

struct CountThreads {
  static constexpr unsigned kThreads = 1024;
  using Shared = simt::NoShared;
  u32* count;
  SIMT_DEVICE void operator()(Shared&) const {
    simt::sync_cta();
    simt::atomic_add(count, 1u);
  }
};

// Were all of these stacks there at once, they would be more than a process can map.
TEST(Simt, MoreThreadsThanHaveStacksTakeTurns) {
  std::vector<u32> counts(40);
  std::vector<std::thread> threads;
  for (u32& count : counts) {
    threads.emplace_back([&count] {
      HostQueue queue(1);
      simt::launch(queue, 3, CountThreads{&count});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const u32 count : counts) EXPECT_EQ(count, 3u * 1024);
}

struct Hold {
  static constexpr unsigned kThreads = 1;
  using Shared = simt::NoShared;
  std::atomic<int>* held;
  const std::atomic<bool>* over;
  SIMT_DEVICE void operator()(Shared&) const {
    ++*held;
    while (!*over) std::this_thread::yield();
  }
};

TEST(Simt, AChildOfForkWaitsForNoThreadOfItsParent) {
  HEADRACE_SKIP_WHERE_CHILDREN_START_NO_THREADS();
  const std::vector<u32> expected = sums(0, true);
  std::atomic<int> held{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      HostQueue queue(1);
      simt::launch(queue, 1, Hold{&held, &over});
    });
  }
  while (held < 16) std::this_thread::yield();  // all turns are taken
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(sums(0, true) == expected ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  over = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(Simt, BitOperations) {
  EXPECT_EQ(simt::reverse_bits(0x00000180u), 0x01800000u);
  EXPECT_EQ(simt::funnel_right(0x89abcdefu, 0x01234567u, 4), 0x789abcdeu);
  EXPECT_EQ(simt::funnel_right(0x89abcdefu, 0x01234567u, 32), 0x89abcdefu);
  EXPECT_EQ(simt::funnel_left(0x89abcdefu, 0x01234567u, 4), 0x12345678u);
  EXPECT_EQ(simt::funnel_left(0x89abcdefu, 0x01234567u, 36), 0x12345678u);
  EXPECT_EQ(simt::permute_bytes(0x33221100u, 0x77665544u, 0x7051), 0x77005511u);
  EXPECT_EQ(simt::dot_bytes(0xff000201u, 0xff050403u, 7), 255u * 255 + 2 * 4 + 1 * 3 + 7);
  EXPECT_EQ(simt::multiply_high(1ull << 63, 6), 3u);
  EXPECT_EQ(simt::trailing_zeros(0u), 32u);
  EXPECT_EQ(simt::trailing_zeros(u64{0}), 64u);
}

}  // namespace
}  // namespace headrace::host
