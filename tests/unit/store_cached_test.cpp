#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "conformance/error_code.h"
#include "conformance/inject.h"
#include "conformance/temp_folder.h"
#include "headrace/cached_store.h"

namespace headrace::test {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = 64;

std::string pattern(std::size_t nbytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(nbytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// The object, "(none)" when there is none.
std::string text_of(const Store& store, const std::string& key) {
  Buffer buffer;
  if (!store.driver().get(key, buffer)) return "(none)";
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

// A store behind a cache, which counts what it is asked for.
struct Behind {
  std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  std::shared_ptr<StoreCounts> counts = std::make_shared<StoreCounts>();
  Store store{
      make_counting_store(make_faulty_store(memory_store().shared_driver(), faults), counts)};

  void set(const std::string& key, const std::string& text) const {
    store.set(key, std::as_bytes(std::span(text)));
  }
  Store cached(const std::string& directory = {}, std::size_t memory_nbytes = 1 << 20) const {
    return cached_store(store,
                        {.memory_nbytes = memory_nbytes,
                         .directory = directory,
                         .disk_nbytes = 1 << 20,
                         .block_nbytes = kBlock});
  }
};

std::string range_of(const Store& store,
                     const std::string& key,
                     std::size_t offset,
                     std::size_t nbytes) {
  std::string text(nbytes, '\0');
  store.open(key).value().read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

// Copies, without the marker.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename() != "CACHEDIR.TAG")
      files.push_back(entry.path());
  return files;
}

TEST(CachedStore, AsksForNoBlockTwice) {
  const Behind behind;
  const std::string text = pattern(1000, 1);
  behind.set("a", text);
  const Store store = behind.cached();
  EXPECT_EQ(range_of(store, "a", 130, 100), text.substr(130, 100));
  EXPECT_EQ(behind.counts->bytes_read, 2 * kBlock);
  EXPECT_EQ(range_of(store, "a", 128, 128), text.substr(128, 128));
  EXPECT_EQ(behind.counts->bytes_read, 2 * kBlock);
  EXPECT_EQ(behind.counts->opens, 1);
  EXPECT_EQ(range_of(store, "a", 0, 1000), text);
  EXPECT_EQ(behind.counts->bytes_read, 1000);
  EXPECT_EQ(behind.counts->range_reads, 3);  // before what was there, and after it
  EXPECT_EQ(text_of(store, "a"), text);
  EXPECT_EQ(behind.counts->bytes_read, 1000);
  const CacheStats stats = cache_stats(store);
  EXPECT_EQ(stats.misses, 16);
  EXPECT_EQ(stats.fetched_nbytes, 1000);
  EXPECT_GT(stats.memory_hits, 16);
  EXPECT_EQ(stats.disk_hits, 0);
}

TEST(CachedStore, GivesWhatTheStoreHasHoweverItIsRead) {
  const Behind behind;
  const TempFolder folder;
  std::mt19937 random(1);
  std::vector<std::string> objects;
  for (int i = 0; i < 20; ++i) {
    objects.push_back(pattern(random() % 600, random()));
    behind.set(std::to_string(i), objects.back());
  }
  // Memory for a few blocks: what is let go comes from the folder.
  const Store store = behind.cached(folder / "cache", 2000);
  for (int round = 0; round < 600; ++round) {
    const std::size_t i = random() % objects.size();
    const std::string& text = objects[i];
    if (random() % 4 == 0) {
      ASSERT_EQ(text_of(store, std::to_string(i)), text);
    } else {
      const std::size_t offset = random() % (text.size() + 1);
      const std::size_t nbytes = random() % (text.size() - offset + 1);
      ASSERT_EQ(range_of(store, std::to_string(i), offset, nbytes), text.substr(offset, nbytes));
    }
  }
  EXPECT_GT(cache_stats(store).disk_hits, 50);
  EXPECT_LE(cache_stats(store).memory_nbytes, 2000);
  EXPECT_EQ(text_of(store, "none"), "(none)");
  EXPECT_FALSE(store.open("none"));
}

TEST(CachedStore, SeesWhatIsWrittenThroughIt) {
  const Behind behind;
  const TempFolder folder;
  const Store store = behind.cached(folder / "cache");
  const auto set = [&](const std::string& key, const std::string& text) {
    store.set(key, std::as_bytes(std::span(text)));
  };
  for (int round = 0; round < 3; ++round) {
    const std::string text = pattern(200, static_cast<unsigned>(round));  // of one size
    set("a/b", text);
    EXPECT_EQ(text_of(store, "a/b"), text);
    EXPECT_EQ(range_of(store, "a/b", 100, 50), text.substr(100, 50));
    EXPECT_EQ(range_of(behind.cached(folder / "cache"), "a/b", 0, 200), text);
  }
  store.erase("a/b");
  EXPECT_EQ(text_of(store, "a/b"), "(none)");
  set("a/b", "1");
  EXPECT_EQ(text_of(store, "a/b"), "1");
  store.erase_prefix("a/");
  EXPECT_FALSE(store.open("a/b"));
}

TEST(CachedStore, ForgetsAnObjectWhoseWriteFailed) {
  const Behind behind;
  const Store store = behind.cached();
  behind.set("a", "old");
  EXPECT_EQ(text_of(store, "a"), "old");
  behind.faults->fail_write(1, EIO);
  EXPECT_EQ(code_of([&] { store.set("a", {}); }), ErrorCode::io);
  behind.set("a", "new");
  EXPECT_EQ(text_of(store, "a"), "new");
}

TEST(CachedStore, SaysOnceThatAnObjectHasAnotherSizeNow) {
  const Behind behind;
  const Store store = behind.cached();
  behind.set("a", pattern(200, 1));
  EXPECT_EQ(range_of(store, "a", 0, 10), pattern(200, 1).substr(0, 10));
  behind.set("a", "short");
  std::string message;
  EXPECT_EQ(code_of([&] { range_of(store, "a", 100, 10); }, &message), ErrorCode::io);
  EXPECT_NE(message.find("has changed in the store"), std::string::npos) << message;
  EXPECT_EQ(range_of(store, "a", 0, 5), "short");
}

TEST(CachedStore, KeepsCopiesForTheNextProcess) {
  const Behind behind;
  const TempFolder folder;
  const std::string text = pattern(500, 3);
  behind.set("a", text);
  EXPECT_EQ(text_of(behind.cached(folder / "cache"), "a"), text);
  behind.counts->reset();
  const Store store = behind.cached(folder / "cache");
  EXPECT_EQ(text_of(store, "a"), text);
  EXPECT_EQ(range_of(store, "a", 70, 400), text.substr(70, 400));
  EXPECT_EQ(behind.counts->gets + behind.counts->opens, 0);
  EXPECT_EQ(cache_stats(store).disk_hits, 8);
}

TEST(CachedStore, PassesOverDamagedFiles) {
  const Behind behind;
  const TempFolder folder;
  const std::string text = pattern(500, 3);
  behind.set("a", text);
  for (int round = 0; round < 18; ++round) {
    fs::remove_all(folder / "cache");
    EXPECT_EQ(text_of(behind.cached(folder / "cache"), "a"), text);
    std::vector<fs::path> files = files_below(folder / "cache");
    ASSERT_EQ(files.size(), 9u);
    std::sort(files.begin(), files.end());
    const fs::path& file = files[static_cast<std::size_t>(round) % files.size()];
    const auto size = static_cast<std::streamoff>(fs::file_size(file));
    if (round % 3 == 0) {
      fs::resize_file(file, static_cast<std::uintmax_t>(size * (round % 10) / 10));
    } else {
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekg(round * 31 % size);
      const char byte = static_cast<char>(stream.get() ^ 0x40);
      stream.seekp(round * 31 % size);
      stream.put(byte);
    }
    const Store store = behind.cached(folder / "cache");
    EXPECT_EQ(text_of(store, "a"), text);
    EXPECT_EQ(cache_stats(store).damaged_files, 1) << round;
  }
}

TEST(CachedStore, ReadsOnWhenTheFolderIsFullOrGone) {
  const Behind behind;
  const TempFolder folder;
  const std::string text = pattern(300, 4);
  behind.set("a", text);
  const Store store = behind.cached(folder / "cache", 0);
  fs::remove_all(folder / "cache");
  std::ofstream(folder / "cache") << "no folder";
  EXPECT_EQ(text_of(store, "a"), text);
  EXPECT_EQ(range_of(store, "a", 10, 200), text.substr(10, 200));
  EXPECT_GT(cache_stats(store).failures, 0);
  EXPECT_NE(cache_stats(store).last_failure, "");
}

TEST(CachedStore, KeepsTheFolderWithinItsLimit) {
  const Behind behind;
  const TempFolder folder;
  constexpr std::uint64_t kLimit = 64 << 10;
  const Store store = cached_store(behind.store,
                                   {.memory_nbytes = 0,
                                    .directory = folder / "cache",
                                    .disk_nbytes = kLimit,
                                    .block_nbytes = 1000});
  for (int i = 0; i < 150; ++i) {
    const std::string key = std::to_string(i);
    behind.set(key, pattern(1000, static_cast<unsigned>(i)));
    EXPECT_EQ(text_of(store, key), pattern(1000, static_cast<unsigned>(i)));
    std::uint64_t total = 0;
    for (const fs::path& file : files_below(folder / "cache")) total += fs::file_size(file);
    ASSERT_LE(total, kLimit + kLimit / 16 + 2000);
  }
  EXPECT_GT(files_below(folder / "cache").size(), 40u);
}

TEST(CachedStore, IsReadAndWrittenByManyThreads) {
  const Behind behind;
  const TempFolder folder;
  const Store store = behind.cached(folder / "cache", 3000);
  // Each byte of an object is the same.
  const auto write = [&](int key, int value) {
    const std::string text(200, static_cast<char>('a' + value % 26));
    store.set(std::to_string(key), std::as_bytes(std::span(text)));
  };
  for (int key = 0; key < 8; ++key) write(key, 0);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      while (!done) {
        const std::string text = text_of(store, std::to_string(random() % 8));
        EXPECT_EQ(text, std::string(200, text[0]));
      }
    });
  }
  for (int round = 1; round < 200; ++round) {
    write(round % 8, round);
    const std::string wanted(200, static_cast<char>('a' + round % 26));
    EXPECT_EQ(text_of(store, std::to_string(round % 8)), wanted);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  for (int key = 0; key < 8; ++key)
    EXPECT_EQ(text_of(store, std::to_string(key)), text_of(behind.store, std::to_string(key)));
}

TEST(CachedStore, ProcessesShareAFolder) {
  const Behind behind;
  const TempFolder folder;
  for (int i = 0; i < 40; ++i)
    behind.set(std::to_string(i), pattern(300, static_cast<unsigned>(i)));
  const auto read_all = [&](unsigned seed) {
    const Store store = behind.cached(folder / "cache", 0);
    std::mt19937 random(seed);
    for (int round = 0; round < 200; ++round) {
      const auto i = static_cast<unsigned>(random() % 40);
      if (text_of(store, std::to_string(i)) != pattern(300, i)) return 1;
    }
    return cache_stats(store).damaged_files + cache_stats(store).failures == 0 ? 0 : 2;
  };
  std::vector<pid_t> children;
  for (unsigned child = 0; child < 4; ++child) {
    children.push_back(::fork());
    if (children.back() == 0) ::_exit(read_all(child));
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST(CachedStore, TellsOtherStoresApart) {
  EXPECT_EQ(code_of([] { cache_stats(memory_store()); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { cached_store(memory_store(), {.block_nbytes = 0}); }),
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace headrace::test
