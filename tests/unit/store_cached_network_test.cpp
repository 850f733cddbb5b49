// A cached store across a network: what is asked of the source, how many readers share an answer,
// and what they are told when they give up, the object changes, or the source or the disk fails.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "conformance/error_code.h"
#include "conformance/temp_folder.h"
#include "headrace/array.h"
#include "headrace/cached_store.h"
#include "support/noted_read.h"
#include "support/slow_store.h"

namespace headrace::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kBlock = 64;

std::string pattern(std::size_t nbytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(nbytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

ErrorCode code_of_error(const std::exception_ptr& error) {
  return code_of([&] { std::rethrow_exception(error); });
}

bool is_change(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& failure) {
    return is_changed(failure);
  }
  return false;
}

using Read = NotedRead;

// Holds up the source's answers until it is let go.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void wait_for_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

class CachedNetwork : public testing::TestWithParam<bool> {
 protected:
  bool has_disk() const { return GetParam(); }

  Store open(std::size_t memory_nbytes = 1 << 20, std::size_t block_nbytes = kBlock) {
    return cached_store(Store(slow_),
                        {.memory_nbytes = memory_nbytes,
                         .directory = has_disk() ? folder_ / "cache" : std::string(),
                         .block_nbytes = block_nbytes});
  }
  void put(const std::string& key, const std::string& text) { slow_->put(key, bytes_of(text)); }

  static void ask(const Store& store, Read& read) {
    AsyncRead* const one = &read;
    store.driver().async_reads()->submit({&one, 1});
  }
  static std::string get(const Store& store,
                         const std::string& key,
                         const Extent& extent = Extent::whole()) {
    Read read(key, extent);
    ask(store, read);
    read.wait();
    if (read.error) std::rethrow_exception(read.error);
    return read.found ? read.text() : "(none)";
  }

  const std::shared_ptr<SlowStore> slow_ = std::make_shared<SlowStore>();
  const TempFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(All, CachedNetwork, testing::Bool(), [](const auto& each) {
  return each.param ? "disk" : "memory";
});

// Larger than what is held of a range at a time.
constexpr std::size_t kLarge = std::size_t{100} << 20;

TEST_P(CachedNetwork, ALargeRangeIsHeldInSegments) {
  const std::string text = pattern(kLarge, 3);
  put("a", text);
  const Store store = open(4 << 20, 256 << 10);
  std::string found(kLarge - 1000, '\0');
  const auto read_into = [&](std::uint64_t offset) {
    Read read("a", Extent::range(offset, found.size()));
    read.into = std::as_writable_bytes(std::span(found));
    ask(store, read);
    read.wait();
    EXPECT_EQ(read.times(), 1);
    if (read.error) std::rethrow_exception(read.error);
    EXPECT_TRUE(read.found);
    EXPECT_EQ(read.object_nbytes, kLarge);
    EXPECT_FALSE(read.version.empty());
  };
  read_into(1000);
  EXPECT_TRUE(found == text.substr(1000));
  EXPECT_LE(slow_->counts().most_nbytes, std::size_t{64} << 20);
  EXPECT_LE(slow_->counts().requests, 14u);
  EXPECT_LE(cache_stats(store).memory_nbytes, 4 << 20);
  read_into(0);
  EXPECT_TRUE(found == text.substr(0, found.size()));
  // The caller's memory may be the read's own; what is kept is not fetched again.
  Read own("a", Extent::range(5, kLarge - 5));
  slow_->forget_counts();
  ask(store, own);
  own.wait();
  EXPECT_TRUE(own.text() == text.substr(5));
  if (has_disk()) {
    EXPECT_LE(slow_->counts().requests, 1u);
  }
  EXPECT_EQ(code_of([&] { read_into(2000); }), ErrorCode::corrupt);
  slow_->erase("a");
  Read gone("b", Extent::range(0, kLarge));
  ask(store, gone);
  gone.wait();
  EXPECT_FALSE(gone.found);
  EXPECT_FALSE(gone.error);
}

TEST_P(CachedNetwork, ALargeRangeIsOfOneVersion) {
  const std::string text = pattern(kLarge, 4);
  put("a", text);
  const Store store = open(4 << 20, 256 << 10);
  std::atomic<int> answers{0};
  slow_->before_answer([&](const AsyncRead&) {
    if (++answers == 3) slow_->replace_by_same("a");
  });
  Read read("a", Extent::range(0, kLarge));
  ask(store, read);
  read.wait();
  ASSERT_TRUE(read.error);
  EXPECT_TRUE(is_change(read.error));
  EXPECT_TRUE(get(store, "a", Extent::range(0, kLarge)) == text);

  // Where versions are not told all of it comes at once.
  slow_->before_answer(nullptr);
  slow_->set_manners({.tells_versions = false});
  put("b", text);
  for (int i = 0; i < 2; ++i) {
    slow_->forget_counts();
    EXPECT_TRUE(get(store, "b", Extent::range(0, kLarge)) == text);
    EXPECT_GE(slow_->counts().most_nbytes, has_disk() && i == 1 ? 0 : kLarge);
  }
}

TEST_P(CachedNetwork, ALargeRangeIsCancelled) {
  put("a", pattern(kLarge, 5));
  const Store store = open(4 << 20, 256 << 10);
  for (const std::size_t after : {0u, 1u, 5u}) {
    slow_->set_manners({.latency = 20ms});
    slow_->forget_counts();
    Read read("a", Extent::range(after, kLarge - after));
    ask(store, read);
    const auto begin = std::chrono::steady_clock::now();
    while (slow_->counts().requests < after && read.times() == 0) std::this_thread::sleep_for(1ms);
    slow_->set_manners({.latency = 60s});
    store.driver().async_reads()->cancel(read);
    read.wait();
    EXPECT_EQ(code_of_error(read.error), ErrorCode::cancelled);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
    store.driver().async_reads()->cancel(read);  // nothing happens
    EXPECT_EQ(read.times(), 1);
  }
}

TEST_P(CachedNetwork, AsksForWhatIsWantedAndForNothingTwice) {
  const std::string text = pattern(1000, 1);
  put("a", text);
  put("b", text);
  put("c", text);
  const Store store = open();
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(get(store, "a"), text);
    EXPECT_EQ(get(store, "b", Extent::range(100, 300)), text.substr(100, 300));
    EXPECT_EQ(get(store, "c", Extent::suffix(70)), text.substr(930));
    EXPECT_EQ(slow_->counts().asked, (std::vector<std::string>{"a whole", "b 100+300", "c -70"}));
  }
  slow_->forget_counts();
  // Of objects that are known now: of what is missing whole blocks, of one version.
  EXPECT_EQ(get(store, "a", Extent::range(7, 900)), text.substr(7, 900));
  EXPECT_EQ(get(store, "a", Extent::suffix(5000)), text);
  EXPECT_EQ(get(store, "b", Extent::range(64, 400)), text.substr(64, 400));
  EXPECT_EQ(get(store, "b", Extent::range(65, 390)), text.substr(65, 390));
  EXPECT_EQ(get(store, "c", Extent::range(999, 1)), text.substr(999));
  EXPECT_EQ(slow_->counts().asked, (std::vector<std::string>{"b 64+64", "b 384+128"}));
  EXPECT_EQ(get(store, "none"), "(none)");
  EXPECT_EQ(get(store, "c", Extent::range(960, 0)), "");
  EXPECT_EQ(code_of([&] { get(store, "a", Extent::range(990, 11)); }), ErrorCode::corrupt);
  const CacheStats stats = cache_stats(store);
  EXPECT_EQ(stats.fetched_nbytes, 1000 + 300 + 70 + 64 + 128);
  EXPECT_GT(stats.memory_hits, 16);
  EXPECT_EQ(stats.disk_hits, 0);
}

TEST_P(CachedNetwork, TheNextOneFindsTheCopiesOnTheDisk) {
  if (!has_disk()) GTEST_SKIP() << "without a disk";
  const std::string text = pattern(1000, 1);
  put("a", text);
  put("b", text);
  std::string told;
  {
    const Store store = open();
    EXPECT_EQ(get(store, "a"), text);
    Read read("b", Extent::suffix(70));
    ask(store, read);
    read.wait();
    told = read.version;
  }
  slow_->forget_counts();
  const Store store = open(0);
  EXPECT_EQ(get(store, "a", Extent::range(1, 998)), text.substr(1, 998));
  EXPECT_EQ(get(store, "a"), text);
  Read read("b", Extent::suffix(70));
  ask(store, read);
  read.wait();
  EXPECT_EQ(read.text(), text.substr(930));
  EXPECT_EQ(read.version, told);
  EXPECT_EQ(slow_->counts().requests, 0u);
  EXPECT_EQ(cache_stats(store).fetched_nbytes, 0);
  EXPECT_GT(cache_stats(store).disk_hits, 30);
}

TEST_P(CachedNetwork, ASubmitIsOneSubmitAndOneRoundTrip) {
  slow_->set_manners({.latency = 20ms});
  const std::string text = pattern(10'000, 2);
  put("a", text);
  const Store store = open();
  get(store, "a", Extent::suffix(10));
  slow_->forget_counts();
  std::deque<Read> reads;
  std::vector<AsyncRead*> all;
  std::string into(100, '\0');
  for (std::size_t i = 0; i < 20; ++i) {
    all.push_back(&reads.emplace_back("a", Extent::range(400 * i + 70, 100)));
  }
  reads[3].into = std::as_writable_bytes(std::span(into));
  store.driver().async_reads()->submit(all);
  for (Read& read : reads) read.wait();
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(i == 3 ? into : reads[i].text(), text.substr(400 * i + 70, 100));
  }
  EXPECT_EQ(slow_->counts().requests, 20u);
  EXPECT_EQ(slow_->counts().submits, 1u);
  EXPECT_EQ(slow_->counts().rounds, 1u);
}

// Of neighbours that share a block one fetches it.
TEST_P(CachedNetwork, NeighboursAskForNoByteTwice) {
  slow_->set_manners({.latency = 10ms});
  const std::string text = pattern(6400, 3);
  put("a", text);
  const Store store = open();
  get(store, "a", Extent::suffix(1));
  slow_->forget_counts();
  std::deque<Read> reads;
  std::vector<AsyncRead*> all;
  for (std::size_t at = 0; at < 6300; at += 100) {
    all.push_back(&reads.emplace_back("a", Extent::range(at, 100)));
  }
  store.driver().async_reads()->submit(all);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    reads[i].wait();
    EXPECT_EQ(reads[i].text(), text.substr(100 * i, 100));
  }
  EXPECT_EQ(slow_->counts().nbytes, 6336u);  // 63 ranges, in 99 blocks
  EXPECT_LE(slow_->counts().requests, 63u);
}

TEST_P(CachedNetwork, ManyThreadsThatWantTheSameAreOneRequest) {
  slow_->set_manners({.latency = 30ms});
  const std::string text = pattern(3000, 4);
  put("a", text);
  const Store store = open();
  const auto all_at_once = [&](const Extent& extent, const std::string& wanted) {
    slow_->forget_counts();
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; ++t) {
      threads.emplace_back([&] {
        ++ready;
        while (ready < 16) std::this_thread::yield();
        EXPECT_EQ(get(store, "a", extent), wanted);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(slow_->counts().requests, 1u);
  };
  all_at_once(Extent::suffix(100), text.substr(2900));
  all_at_once(Extent::range(200, 900), text.substr(200, 900));
  all_at_once(Extent::whole(), text);
}

// Also where nothing is kept: who waits for an answer has it.
TEST_P(CachedNetwork, WhereNothingIsKeptAnAnswerIsShared) {
  if (has_disk()) GTEST_SKIP() << "all is kept";
  const std::string text = pattern(3000, 4);
  put("a", text);
  const Store store = open(0);
  Gate gate;
  slow_->before_answer([&](const AsyncRead&) { gate.pass(); });
  Read one("a", Extent::whole()), other("a", Extent::whole());
  ask(store, one);
  gate.wait_for_one();
  ask(store, other);
  gate.open();
  one.wait();
  other.wait();
  EXPECT_EQ(one.text(), text);
  EXPECT_EQ(other.text(), text);
  EXPECT_EQ(slow_->counts().requests, 1u);
  // And a reader that was told a version goes on with it.
  Read part("a", Extent::range(100, 900), one.version);
  ask(store, part);
  part.wait();
  EXPECT_EQ(part.error, nullptr);
  EXPECT_EQ(part.text(), text.substr(100, 900));
}

TEST_P(CachedNetwork, WhoGivesUpTakesNothingFromOthers) {
  const std::string text = pattern(500, 5);
  put("a", text);
  const Store store = open();
  AsyncReads& reads = *store.driver().async_reads();
  for (const bool is_known : {false, true}) {
    SCOPED_TRACE(is_known);
    slow_->set_manners({.latency = 60s});
    slow_->forget_counts();
    const Extent extent = is_known ? Extent::range(128, 100) : Extent::suffix(40);
    Read first("a", extent), second("a", extent);
    ask(store, first);
    ask(store, second);
    while (slow_->counts().requests == 0) std::this_thread::yield();
    std::this_thread::sleep_for(20ms);  // the second one has joined, by its thread
    reads.cancel(first);
    first.wait();
    EXPECT_EQ(code_of_error(first.error), ErrorCode::cancelled);
    EXPECT_EQ(slow_->counts().cancelled, 0u);
    EXPECT_EQ(second.times(), 0);
    reads.cancel(second);  // the last one
    second.wait();
    EXPECT_EQ(code_of_error(second.error), ErrorCode::cancelled);
    while (slow_->counts().cancelled == 0) std::this_thread::yield();
    reads.cancel(second);  // nothing happens
    EXPECT_EQ(first.times(), 1);
    EXPECT_EQ(second.times(), 1);
    slow_->set_manners({});
    EXPECT_EQ(get(store, "a", extent), is_known ? text.substr(128, 100) : text.substr(460));
    EXPECT_EQ(slow_->counts().requests, 2u);
  }
}

TEST_P(CachedNetwork, AnErrorIsEverybodysAndIsNotKept) {
  const std::string text = pattern(500, 6);
  put("a", text);
  const Store store = open();
  Gate gate;
  slow_->before_answer([&](const AsyncRead&) { gate.pass(); });
  slow_->fail_key("a", std::make_exception_ptr(Error(ErrorCode::permission_denied, "no")));
  Read first("a", Extent::whole()), second("a", Extent::whole());
  ask(store, first);
  gate.wait_for_one();
  ask(store, second);
  std::this_thread::sleep_for(20ms);
  gate.open();
  for (Read* const read : {&first, &second}) {
    read->wait();
    EXPECT_EQ(code_of_error(read->error), ErrorCode::permission_denied);
  }
  EXPECT_EQ(slow_->counts().requests, 1u);
  EXPECT_EQ(code_of([&] { get(store, "a"); }), ErrorCode::permission_denied);
  EXPECT_EQ(slow_->counts().requests, 2u);
  EXPECT_EQ(cache_stats(store).fetched_nbytes, 0);
}

TEST_P(CachedNetwork, AnObjectThatIsReplacedIsReadAnewOrNotAtAll) {
  const std::string old_text = pattern(1000, 7), new_text = pattern(1000, 8);
  put("a", old_text);
  const Store store = open();
  Read index("a", Extent::suffix(40));
  ask(store, index);
  index.wait();
  ASSERT_FALSE(index.version.empty());
  EXPECT_EQ(get(store, "a", Extent::range(0, 128)), old_text.substr(0, 128));
  put("a", new_text);
  // What is kept is of one version and served.
  EXPECT_EQ(get(store, "a", Extent::range(64, 64)), old_text.substr(64, 64));
  // Who had seen the old one is told.
  Read more("a", Extent::range(300, 100), index.version);
  ask(store, more);
  more.wait();
  ASSERT_NE(more.error, nullptr);
  EXPECT_TRUE(is_change(more.error));
  // All others have the new one from then on.
  EXPECT_EQ(get(store, "a", Extent::range(64, 64)), new_text.substr(64, 64));
  EXPECT_EQ(get(store, "a"), new_text);
  Read late("a", Extent::range(0, 10), index.version);
  ask(store, late);
  late.wait();
  ASSERT_NE(late.error, nullptr);
  EXPECT_TRUE(is_change(late.error));
}

TEST_P(CachedNetwork, WhoHasSeenNothingIsGivenWhatThereIsNow) {
  const std::string old_text = pattern(1000, 7), new_text = pattern(1000, 8);
  put("a", old_text);
  const Store store = open();
  EXPECT_EQ(get(store, "a", Extent::suffix(640)), old_text.substr(360));
  put("a", new_text);
  slow_->forget_counts();
  EXPECT_EQ(get(store, "a", Extent::range(0, 500)), new_text.substr(0, 500));
  EXPECT_EQ(get(store, "a", Extent::suffix(64)), new_text.substr(936));
  slow_->erase("a");
  EXPECT_EQ(get(store, "a", Extent::range(0, 500)), new_text.substr(0, 500));
  EXPECT_EQ(get(store, "a", Extent::range(600, 30)), "(none)");
  EXPECT_EQ(get(store, "a", Extent::range(0, 500)), "(none)");
}

// Replaced while its answer is on the way, as often as anybody asks.
TEST_P(CachedNetwork, AnObjectThatNeverRestsIsAnError) {
  put("a", pattern(1000, 7));
  const Store store = open();
  get(store, "a", Extent::suffix(1));
  slow_->before_answer([&](const AsyncRead& read) {
    if (read.extent.kind == Extent::Kind::range) slow_->replace_by_same("a");
  });
  Read index("a", Extent::suffix(1));
  ask(store, index);
  index.wait();
  Read read("a", Extent::range(0, 300), index.version);
  ask(store, read);
  read.wait();
  ASSERT_NE(read.error, nullptr);
  EXPECT_TRUE(is_change(read.error));
}

// Without versions: by the bytes of what is kept in part.
TEST_P(CachedNetwork, WhatCannotTellItsVersionsIsCompared) {
  slow_->set_manners({.tells_versions = false});
  const std::string old_text = pattern(1000, 7), new_text = pattern(1000, 8);
  for (const bool tells_size : {false, true}) {
    SCOPED_TRACE(tells_size);
    slow_->set_manners({.tells_versions = false, .tells_object_nbytes = tells_size});
    const std::string key = tells_size ? "sized" : "unsized";
    put(key, old_text);
    const Store store = open();
    EXPECT_EQ(get(store, key, Extent::suffix(40)), old_text.substr(960));
    EXPECT_EQ(get(store, key, Extent::range(0, 128)), old_text.substr(0, 128));
    Read index(key, Extent::suffix(40));
    ask(store, index);
    index.wait();
    EXPECT_FALSE(index.version.empty());
    put(key, new_text);
    EXPECT_EQ(get(store, key, Extent::range(0, 128)), old_text.substr(0, 128));
    // Asked for together, one of them kept.
    Read kept(key, Extent::range(0, 64), index.version);
    Read missing(key, Extent::range(640, 64), index.version);
    AsyncRead* const both[] = {&kept, &missing};
    store.driver().async_reads()->submit(both);
    for (Read* const read : {&kept, &missing}) {
      read->wait();
      ASSERT_NE(read->error, nullptr);
      EXPECT_TRUE(is_change(read->error));
    }
    EXPECT_EQ(get(store, key, Extent::range(32, 300)), new_text.substr(32, 300));
    EXPECT_EQ(get(store, key, Extent::suffix(40)), new_text.substr(960));
    EXPECT_EQ(get(store, key), new_text);
  }
}

// A write ends what others would share of before it.
TEST_P(CachedNetwork, ReadsBehindAWriteSeeIt) {
  const std::string old_text = pattern(1000, 7), new_text = pattern(1000, 8);
  put("a", old_text);
  const Store store = open();
  slow_->set_manners({.latency = 50ms});
  for (const Extent& extent : {Extent::whole(), Extent::range(100, 200), Extent::suffix(100)}) {
    slow_->put("a", bytes_of(old_text));
    store.set("a", bytes_of(old_text));
    Read before("a", extent);
    ask(store, before);
    std::this_thread::sleep_for(10ms);
    store.set("a", bytes_of(new_text));
    Read behind("a", extent);
    ask(store, behind);
    behind.wait();
    before.wait();
    Read whole("a", extent);
    EXPECT_EQ(behind.text(), get(store, "a", extent));
    slow_->set_manners({});
    EXPECT_EQ(behind.text(), get(Store(slow_), "a", extent));
    slow_->set_manners({.latency = 50ms});
  }
}

TEST_P(CachedNetwork, ADeadlineIsTheReadersOwn) {
  const std::string text = pattern(1000, 7);
  put("a", text);
  const Store store = open();
  slow_->set_manners({.latency = 60ms});
  Read hurried("a", Extent::whole()), patient("a", Extent::whole());
  hurried.deadline = std::chrono::steady_clock::now() + 20ms;
  ask(store, hurried);
  std::this_thread::sleep_for(5ms);
  ask(store, patient);
  hurried.wait();
  patient.wait();
  ASSERT_NE(hurried.error, nullptr);
  EXPECT_EQ(code_of_error(hurried.error), ErrorCode::io);
  EXPECT_EQ(patient.error, nullptr);
  EXPECT_EQ(patient.text(), text);
}

TEST_P(CachedNetwork, AChildOfForkHasNothingUnderWay) {
  const std::string text = pattern(1000, 7);
  put("a", text);
  const Store store = open();
  EXPECT_EQ(get(store, "a", Extent::range(0, 128)), text.substr(0, 128));
  slow_->set_manners({.latency = 100ms});
  Read read("a", Extent::range(256, 500));
  ask(store, read);
  const pid_t child = ::fork();
  if (child == 0) {
    // Kept, so that the store, which has no thread here, is not asked.
    const bool kept = get(store, "a", Extent::range(10, 100)) == text.substr(10, 100);
    Read other("a", Extent::range(256, 500));
    store.driver().async_reads()->cancel(other);
    ::_exit(kept ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  read.wait();
  EXPECT_EQ(read.text(), text.substr(256, 500));
}

TEST_P(CachedNetwork, ADiskThatFailsFailsNoRead) {
  if (!has_disk()) GTEST_SKIP() << "without a disk";
  namespace fs = std::filesystem;
  const std::string text = pattern(1000, 7);
  put("a", text);
  const Store store = open(0);
  fs::remove_all(folder_ / "cache");
  std::ofstream(folder_ / "cache") << "no folder";
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(get(store, "a"), text);
    EXPECT_EQ(get(store, "a", Extent::range(10, 500)), text.substr(10, 500));
    EXPECT_EQ(get(store, "a", Extent::suffix(10)), text.substr(990));
  }
  EXPECT_GT(cache_stats(store).failures, 0);
}

TEST_P(CachedNetwork, GivesWhatTheSourceHasHoweverItIsRead) {
  for (const bool tells_versions : {true, false}) {
    for (const bool tells_size : {true, false}) {
      SCOPED_TRACE(std::to_string(tells_versions) + std::to_string(tells_size));
      slow_->set_manners({.seed = 5,
                          .replace_rate = tells_versions ? 0.02 : 0,
                          .tells_versions = tells_versions,
                          .tells_object_nbytes = tells_size});
      const std::string prefix = std::to_string(tells_versions) + std::to_string(tells_size) + '/';
      std::mt19937 random(1);
      std::vector<std::string> objects;
      for (int i = 0; i < 12; ++i) {
        objects.push_back(pattern(random() % 900, random()));
        put(prefix + std::to_string(i), objects.back());
      }
      const Store store = open(3000);  // for some blocks
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          std::mt19937 mine(t);
          for (int round = 0; round < 150; ++round) {
            const std::size_t i = mine() % objects.size();
            const std::string& text = objects[i];
            const std::string key = prefix + std::to_string(i);
            const std::size_t offset = mine() % (text.size() + 1);
            const std::size_t nbytes = mine() % (text.size() - offset + 1);
            switch (mine() % 4) {
              case 0:
                EXPECT_EQ(get(store, key), text);
                break;
              case 1:
                EXPECT_EQ(get(store, key, Extent::suffix(nbytes + 1)),
                          text.substr(text.size() - std::min(text.size(), nbytes + 1)));
                break;
              case 2:
                EXPECT_EQ(get(store, key, Extent::range(offset, nbytes)),
                          text.substr(offset, nbytes));
                break;
              default: {
                const auto object = store.open(key);
                std::string got(nbytes, '\0');
                try {
                  object->read(offset, std::as_writable_bytes(std::span(got)));
                  EXPECT_EQ(got, text.substr(offset, nbytes));
                } catch (const Error& error) {
                  EXPECT_TRUE(is_changed(error)) << error.what();
                }
              }
            }
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  }
}

// Arrays: the first read asks for no more than without the cache, the second for nothing.
TEST_P(CachedNetwork, AnArrayIsReadByNoMoreRequests) {
  for (const Shape& shards : {Shape{}, Shape{16, 64}, Shape{4, 32}}) {
    const std::string name = shards.empty() ? "chunks" : "shards" + std::to_string(shards[0]);
    SCOPED_TRACE(name);
    const Store inner = memory_store();
    CreateOptions options;
    options.shape = {64, 64};
    options.dtype = DType::float32;
    options.chunks = {4, 16};
    options.shards = shards;
    std::vector<float> values(64 * 64);
    std::mt19937 random(1);
    for (float& value : values) value = static_cast<float>(random());
    create_array(inner, name, options)
        .write({}, {values.data(), options.shape, {}, DType::float32, {}});
    for (const std::string& key : inner.list("")) {
      const auto object = inner.open(key);
      std::vector<std::byte> bytes(object->size());
      object->read(0, bytes);
      slow_->put(key, bytes);
    }
    const auto read = [&](const Array& array, const Selection& selection) {
      slow_->forget_counts();
      const Tensor tensor = array.read(selection);
      const auto* const first = static_cast<const float*>(tensor.data());
      return std::vector<float>(first, first + tensor.nbytes() / sizeof(float));
    };
    slow_->set_manners({.latency = 2ms});
    const Selection part = {slice(5, 9), slice(3, 40)};
    for (const Selection& selection : {Selection{}, part}) {
      const Array plain = open_array(Store(slow_), name);
      const std::vector<float> wanted = read(plain, selection);
      const std::size_t requests = slow_->counts().requests;
      for (const std::size_t block_nbytes : {kBlock, std::size_t{4096}, std::size_t{256} << 10}) {
        if (has_disk()) std::filesystem::remove_all(folder_ / "cache");
        const Store store = open(1 << 20, block_nbytes);
        const Array cached = open_array(store, name);
        EXPECT_EQ(read(cached, selection), wanted);
        EXPECT_LE(slow_->counts().requests, requests);
        EXPECT_EQ(read(cached, selection), wanted);
        EXPECT_EQ(slow_->counts().requests, 0u);
        EXPECT_EQ(read(open_array(store, name), selection), wanted);
        EXPECT_EQ(slow_->counts().requests, 0u);
        // Replaced, by other bytes of the same size.
        for (const std::string& key : slow_->keys()) slow_->replace_by_same(key);
        EXPECT_EQ(read(cached, {}), read(plain, {}));
      }
    }
    slow_->set_manners({});
  }
}

}  // namespace
}  // namespace headrace::test
