// What a file system is told of reads to come from parts of shards.

#include "store/read_ahead.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/fork_mutex.h"
#include "base/system.h"
#include "conformance/temp_folder.h"
#include "engine/fetch/ahead.h"
#include "headrace/headrace.h"
#include "store/posix.h"
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
    calls_.preadv2 = [](int, const iovec*, int, off_t, int) -> ssize_t {
      if (preadv2_error == 0) return 1;
      errno = preadv2_error;
      return -1;
    };
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
    preadv2_error = 0;
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
    {
      const ForkLock lock(mutex);
      seen.clear();
    }
    exchange_system_calls(&calls_);
    read();
    const ForkLock lock(mutex);
    return seen;
  }

  static std::size_t count(const std::vector<Call>& calls, Call::Kind kind) {
    return static_cast<std::size_t>(std::ranges::count(calls, kind, &Call::kind));
  }

  // The same with what was asked for ahead, once it is.
  std::vector<Call> calls_with(std::size_t expected, const std::function<void()>& read) {
    calls_of(read, 2);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      {
        const ForkLock lock(mutex);
        const bool is_late = std::chrono::steady_clock::now() > end;
        if (count(seen, Call::Kind::expected) >= expected || is_late) return seen;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const TempFolder folder_;
  // Threads that read ahead may have it for longer than a test takes.
  static inline SystemCalls calls_ = real_system_calls();
  static inline std::atomic<int> preadv2_error{0};  // 0: what is asked for is in memory

 private:
  static void note(Call::Kind kind, off_t offset, std::size_t nbytes) {
    const ForkLock lock(mutex);
    seen.push_back({kind, static_cast<std::uint64_t>(offset), nbytes});
  }

  static inline ForkMutex mutex;
  static inline std::vector<Call> seen;

  const Config before_ = config();
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
      std::set<std::uint64_t> begun;  // by another thread before it was asked for, some
      std::uint64_t ahead = 0;
      for (const Call& call : calls) {
        if (call.kind == Call::Kind::expected) {
          EXPECT_TRUE(asked.emplace(call.offset, call.nbytes).second) << "once each";
          if (!begun.contains(call.offset)) ahead += call.nbytes;
          EXPECT_LT(ahead, RunsAhead::kNbytes + (std::uint64_t{8} << 20));
        } else if (call.kind == Call::Kind::read && begun.insert(call.offset).second &&
                   asked.contains(call.offset)) {
          EXPECT_LE(call.nbytes, asked[call.offset]) << "whole, or its first slice";
          ahead -= asked[call.offset];
        }
      }
      EXPECT_TRUE(std::ranges::all_of(asked, [&](const auto& range) {
        return begun.contains(range.first);
      })) << "and all of it is read";
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

constexpr std::int64_t kObjects = 70;

Layout small_objects(const std::vector<CodecSpec>& codecs) {
  return {"", {kObjects * 3, 1000}, {3, 1000}, {}, codecs};
}

TEST_F(ReadAheadTest, ObjectsOnADiskAreAskedForBeforeTheyAreRead) {
  const std::vector<CodecSpec> zstd{codec::bytes(), codec::zstd(1)};
  const Array array = create(open_store(folder_ / "s", StoreMode::overwrite), small_objects(zstd));
  std::vector<float> data(kObjects * 3000);
  std::iota(data.begin(), data.end(), 1.0F);
  array.write({}, TensorView{data.data(), {kObjects * 3, 1000}, {}, DType::float32, Device::cpu()});
  for (const Device& device : {Device::cpu(), Device::simt()}) {
    SCOPED_TRACE(device.to_string());
    const Array there = open_array(open_store(folder_ / "s"), "a").to(device);
    const auto read = [&] {
      const auto found = bytes_of(there.read());
      ASSERT_EQ(std::memcmp(found.data(), data.data(), found.size()), 0);
    };
    preadv2_error = 0;
    EXPECT_EQ(count(calls_of(read, 2), Call::Kind::expected), 0) << "they are in memory";
    preadv2_error = EAGAIN;
    const auto calls = calls_with(kObjects - 1, read);
    EXPECT_EQ(count(calls, Call::Kind::expected), kObjects - 1) << "but the first, which is read";
    std::multiset<std::uint64_t> asked, sizes;
    for (const Call& call : calls) {
      if (call.kind == Call::Kind::expected) asked.insert(call.nbytes);
      EXPECT_EQ(call.offset, 0);
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "s/a/c"))
      if (entry.is_regular_file()) sizes.insert(entry.file_size());
    EXPECT_TRUE(std::ranges::includes(sizes, asked)) << "whole";
  }
}

TEST_F(ReadAheadTest, ReadsOfManyObjectsAreAskedForTogether) {
  const Array array = filled(open_store(folder_ / "s", StoreMode::overwrite),
                             small_objects({codec::bytes(), codec::zstd(1)}));
  preadv2_error = EAGAIN;
  std::vector<std::vector<float>> found(kObjects / 2, std::vector<float>(3000));
  std::vector<ReadRequest> requests;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto row = static_cast<std::int64_t>(3 * i);
    const TensorView out{found[i].data(), {3, 1000}, {}, DType::float32, Device::cpu()};
    requests.push_back({array, {slice(row, row + 3)}, out, {}});
  }
  const auto calls = calls_with(found.size() - 1, [&] { read_many(requests); });
  EXPECT_EQ(count(calls, Call::Kind::expected), found.size() - 1);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto row = static_cast<std::int64_t>(3 * i);
    const auto wanted = bytes_of(array.read({slice(row, row + 3)}));
    EXPECT_EQ(std::memcmp(found[i].data(), wanted.data(), wanted.size()), 0) << i;
  }
  read_many({});
}

TEST_F(ReadAheadTest, NotWhereTooLittleIsWantedOfThem) {
  filled(open_store(folder_ / "s", StoreMode::overwrite), small_objects({codec::bytes()}));
  preadv2_error = EAGAIN;
  const Array array = open_array(open_store(folder_ / "s"), "a");
  EXPECT_EQ(count(calls_of([&] { array.read({all, slice(0, 9)}); }, 2), Call::Kind::expected), 0);
  EXPECT_EQ(count(calls_of([&] { array.read({slice(0, 9)}); }, 2), Call::Kind::expected), 0);
}

TEST_F(ReadAheadTest, IndicesOfShardsAreAskedFor) {
  const std::vector<CodecSpec> zstd{codec::bytes(), codec::zstd(1)};
  const Layout layout{"", {kObjects * 4, 100}, {1, 100}, {4, 100}, zstd};
  const Array array = filled(open_store(folder_ / "s", StoreMode::overwrite), layout);
  constexpr std::size_t kIndexNbytes = 4 * 16 + 4;
  preadv2_error = EAGAIN;
  for (const Device& device : {Device::cpu(), Device::simt()}) {
    const Array there = open_array(open_store(folder_ / "s"), "a").to(device);
    std::size_t asked = 0;
    const auto calls = calls_with(kObjects / 2, [&] { there.read({all, slice(3, 4)}); });
    for (const Call& call : calls)
      asked += call.kind == Call::Kind::expected && call.nbytes == kIndexNbytes ? 1 : 0;
    EXPECT_GE(asked, kObjects / 2) << device.to_string();
  }
}

TEST_F(ReadAheadTest, WhereTheSystemDoesNotTellFilesAreOnADiskUnlessTheyCannotBe) {
  filled(open_store(folder_ / "s", StoreMode::overwrite), small_objects({codec::bytes()}));
  const std::string path = folder_ / "s/a/c/0/0";
  exchange_system_calls(&calls_);
  const FileDescriptor file(open_retrying(path.c_str(), O_RDONLY));
  preadv2_error = EOPNOTSUPP;
  const bool is_in_memory = std::filesystem::exists("/dev/shm") && path.starts_with("/dev/shm");
  EXPECT_EQ(waits_for_disk(file.get()), !is_in_memory);
  const FileDescriptor memory(os().memfd_create("headrace test", 0));
  EXPECT_FALSE(waits_for_disk(memory.get()));
  preadv2_error = ENOSYS;
  EXPECT_FALSE(waits_for_disk(file.get()));
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
