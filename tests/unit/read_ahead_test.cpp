// What a file system is told of reads to come from parts of shards.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "base/fork_mutex.h"
#include "base/system.h"
#include "conformance/temp_folder.h"
#include "engine/fetch/plan.h"
#include "headrace/headrace.h"
#include "support/portable.h"
#include "unit/device_kit.h"

namespace headrace::test {
namespace {

constexpr std::int64_t kChunk = 50'000;  // elements: 195 KiB, which is a run by itself on the host
constexpr std::int64_t kInner = 256;     // chunks of a shard
constexpr std::int64_t kStored = 120;

struct Call {
  enum class Kind { random, expected, read };
  Kind kind;
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;
};

class ReadAheadTest : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_IF_PORTABLE("advice to a file system");
    calls_ = real_system_calls();
    calls_.fadvise = [](int fd, off_t offset, off_t nbytes, int advice) {
      note(advice == POSIX_FADV_RANDOM ? Call::Kind::random : Call::Kind::expected, offset, nbytes);
      return real_system_calls().fadvise(fd, offset, nbytes, advice);
    };
    calls_.pread = [](int fd, void* into, std::size_t nbytes, off_t offset) {
      note(Call::Kind::read, offset, nbytes);
      return real_system_calls().pread(fd, into, nbytes, offset);
    };
  }
  void TearDown() override {
    exchange_system_calls(nullptr);
    set_config(before_);
  }

  // Two shards, of each of which less than a half is stored, and what is in the first.
  std::vector<float> write(const std::vector<CodecSpec>& codecs) {
    const Array array = create(open_store(folder_ / "s", StoreMode::overwrite),
                               {"", {2 * kInner * kChunk}, {kChunk}, {kInner * kChunk}, codecs});
    std::vector<float> data(kStored * kChunk);
    std::mt19937 random(1);
    for (float& x : data) x = static_cast<float>(random());
    const TensorView view{data.data(), {kStored * kChunk}, {}, DType::float32, Device::cpu()};
    array.write({slice(0, kStored * kChunk)}, view);
    array.write({slice(kInner * kChunk, (kInner + kStored) * kChunk)}, view);
    return data;
  }

  // What a read asks for, in that order.
  std::vector<Call> calls_of(const std::function<void()>& read, int threads) {
    Config config = before_;
    config.threads = threads;
    config.device_min_decode_nbytes = 0;
    config.device_slab_nbytes = 4 << 20;
    set_config(config);
    seen.clear();
    exchange_system_calls(&calls_);
    read();
    exchange_system_calls(nullptr);
    return seen;
  }

  static std::size_t count(const std::vector<Call>& calls, Call::Kind kind) {
    return static_cast<std::size_t>(std::ranges::count(calls, kind, &Call::kind));
  }

  const TempFolder folder_;

 private:
  static void note(Call::Kind kind, off_t offset, std::size_t nbytes) {
    const ForkLock lock(mutex);
    seen.push_back({kind, static_cast<std::uint64_t>(offset), nbytes});
  }

  static inline ForkMutex mutex;
  static inline std::vector<Call> seen;

  const Config before_ = config();
  SystemCalls calls_{};
};

TEST_F(ReadAheadTest, PartsOfAShardAreAskedForBeforeTheyAreRead) {
  const std::vector<float> data = write({codec::bytes(), codec::zstd(1)});
  for (const Device& device : {Device::cpu(), Device::simt()}) {
    for (const int threads : {1, 4}) {
      SCOPED_TRACE(device.to_string() + ' ' + std::to_string(threads));
      const Array array = open_array(open_store(folder_ / "s"), "a").to(device);
      std::vector<Call> calls = calls_of(
          [&] {
            const auto found = bytes_of(array.read({slice(7, kStored * kChunk)}));
            ASSERT_EQ(std::memcmp(found.data(), data.data() + 7, found.size()), 0);
          },
          threads);
      EXPECT_EQ(count(calls, Call::Kind::random), 1) << "once a shard";
      EXPECT_GT(count(calls, Call::Kind::expected), 15);
      // What is asked for is what is read, never much more than there is room for.
      std::map<std::uint64_t, std::uint64_t> asked;
      std::uint64_t ahead = 0;
      for (const Call& call : calls) {
        if (call.kind == Call::Kind::expected) {
          EXPECT_TRUE(asked.emplace(call.offset, call.nbytes).second) << "once each";
          ahead += call.nbytes;
          EXPECT_LT(ahead, ReadAhead::kNbytes + (std::uint64_t{8} << 20));
        } else if (call.kind == Call::Kind::read && asked.contains(call.offset)) {
          const auto found = asked.find(call.offset);
          EXPECT_LE(call.nbytes, found->second) << "whole, or its first slice";
          ahead -= found->second;
          found->second = 0;
        }
      }
      EXPECT_TRUE(std::ranges::all_of(asked, [](const auto& range) { return range.second == 0; }))
          << "and all of it is read";
    }
  }
}

TEST_F(ReadAheadTest, WhatIsNotEncodedIsReadExactly) {
  write({codec::bytes()});
  const Array array = open_array(open_store(folder_ / "s"), "a");
  const auto calls = calls_of([&] { array.read({slice(0, 9 * kChunk)}); }, 2);
  EXPECT_EQ(count(calls, Call::Kind::random), 1);
  EXPECT_EQ(count(calls, Call::Kind::expected), 0) << "read where it is wanted, in long pieces";
}

TEST_F(ReadAheadTest, TheSystemReadsAheadOfAWholeShard) {
  write({codec::bytes(), codec::zstd(1)});
  const Array array = open_array(open_store(folder_ / "s"), "a");
  const auto calls = calls_of([&] { array.read({slice(0, kInner * kChunk)}); }, 2);
  EXPECT_GT(count(calls, Call::Kind::read), kStored / 2);
  EXPECT_EQ(count(calls, Call::Kind::random) + count(calls, Call::Kind::expected), 0);
}

TEST_F(ReadAheadTest, NothingIsSaidOfWhatGoesPastThePageCache) {
  write({codec::bytes(), codec::zstd(1)});
  try {
    const Store direct = open_store(folder_ / "s", StoreMode::read, {{"direct", "true"}});
    const Array array = open_array(direct, "a");
    const auto calls = calls_of([&] { array.read({slice(0, 9 * kChunk)}); }, 2);
    EXPECT_EQ(count(calls, Call::Kind::random) + count(calls, Call::Kind::expected), 0);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    GTEST_SKIP() << error.what();  // a tmpfs of older kernels
  }
}

TEST_F(ReadAheadTest, AnswersWhateverTheSystemSays) {
  const std::vector<float> data = write({codec::bytes(), codec::zstd(1)});
  SystemCalls refusing = real_system_calls();
  refusing.fadvise = [](int, off_t, off_t, int) { return ESPIPE; };
  exchange_system_calls(&refusing);
  const Tensor found =
      open_array(open_store(folder_ / "s"), "a").read({slice(0, kStored * kChunk)});
  EXPECT_EQ(std::memcmp(found.data(), data.data(), found.nbytes()), 0);
}

}  // namespace
}  // namespace headrace::test
