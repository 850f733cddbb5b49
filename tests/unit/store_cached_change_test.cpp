// A cached store whose objects others replace: no read has old and new bytes. And what it asks of
// the store behind: once, and at once.

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "conformance/error_code.h"
#include "conformance/inject.h"
#include "conformance/temp_folder.h"
#include "headrace/cached_store.h"

namespace headrace::test {
namespace {

constexpr std::size_t kBlock = 64;
constexpr std::size_t kSize = 5 * kBlock;

std::string all(char c) { return std::string(kSize, c); }

std::string whole(const Store& store) {
  Buffer buffer;
  return store.driver().get("k", buffer) ? std::string(text_of(buffer)) : "(none)";
}

std::string many(const Store& store) {
  Buffer buffer, other;
  GetRequest requests[] = {{"k", &buffer}, {"none", &other}};
  store.driver().get_many(requests);
  if (requests[0].error) std::rethrow_exception(requests[0].error);
  EXPECT_FALSE(requests[1].found);
  return std::string(text_of(buffer));
}

std::string range(const Store& store, std::size_t offset = 0, std::size_t nbytes = kSize) {
  std::string text(nbytes, '\0');
  store.open("k").value().read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string ranges(const Store& store) {
  std::string text(kSize, '\0');
  const auto bytes = std::as_writable_bytes(std::span(text));
  const RangeRead reads[] = {{kSize / 2, bytes.subspan(kSize / 2)}, {0, bytes.first(kSize / 2)}};
  store.driver().open("k")->read_ranges(reads);
  return text;
}

// Ranges that share no block.
std::string apart(const Store& store) {
  std::string text(kSize, '\0');
  const auto bytes = std::as_writable_bytes(std::span(text));
  const RangeRead reads[] = {{3 * kBlock, bytes.subspan(3 * kBlock)},
                             {0, bytes.first(2 * kBlock)},
                             {2 * kBlock, bytes.subspan(2 * kBlock, kBlock)}};
  store.driver().open("k")->read_ranges(reads);
  return text;
}

std::string scattered(const Store& store) {
  std::string text(kSize, '\0');
  const auto bytes = std::as_writable_bytes(std::span(text));
  const MutableBytes parts[] = {bytes.first(10), bytes.subspan(10, 200), bytes.subspan(210)};
  store.driver().open("k")->read_scattered(0, parts);
  return text;
}

// A store that cannot tell versions, and counts what it is asked for.
class Unversioned final : public CustomStore {
 public:
  explicit Unversioned(Store store, bool is_local = false)
      : store_(std::move(store)), is_local_(is_local) {}
  bool local() const override { return is_local_; }
  std::string url() const override { return "unversioned"; }
  bool read_only() const override { return false; }
  std::size_t batch_size() const override { return 8; }
  std::optional<Coalescing> coalescing() const override { return Coalescing{17, 4096}; }
  std::vector<std::optional<StoredBytes>> get(std::span<const std::string> keys) override {
    std::vector<std::optional<StoredBytes>> found;
    for (const std::string& key : keys) {
      ++gets;
      if (before_get) before_get();
      found.push_back(bytes(key, 0, UINT64_MAX));
    }
    return found;
  }
  std::optional<std::uint64_t> size(const std::string& key) override {
    ++sizes;
    const auto object = store_.open(key);
    return object ? std::optional(object->size()) : std::nullopt;
  }
  std::optional<StoredBytes> get_range(const std::string& key, const ByteRange& range) override {
    ++range_gets;
    if (before_get) before_get();
    return bytes(key, range.offset, range.nbytes);
  }
  std::optional<std::vector<StoredBytes>> get_ranges(const std::string& key,
                                                     std::span<const ByteRange> ranges) override {
    ++ranges_gets;
    std::vector<StoredBytes> found;
    for (const ByteRange& range : ranges) {
      auto one = bytes(key, range.offset, range.nbytes);
      if (!one) return std::nullopt;
      found.push_back(*one);
    }
    return found;
  }
  void set(const std::string& key, ConstBytes bytes) override { store_.set(key, bytes); }
  void erase(const std::string& key) override { store_.erase(key); }
  void erase_prefix(const std::string& prefix) override { store_.erase_prefix(prefix); }
  std::vector<std::string> list(const std::string& prefix) override { return store_.list(prefix); }
  std::vector<std::string> list_dir(const std::string& prefix) override {
    return store_.list_dir(prefix);
  }

  std::atomic<int> gets{0}, sizes{0}, range_gets{0}, ranges_gets{0};
  std::function<void()> before_get;

 private:
  std::optional<StoredBytes> bytes(const std::string& key, std::uint64_t at, std::uint64_t nbytes) {
    const auto object = store_.open(key);
    if (!object) return std::nullopt;
    auto copy = std::make_shared<Buffer>(std::min(nbytes, object->size() - at));
    object->read(at, copy->bytes());
    const ConstBytes all = copy->bytes();
    return StoredBytes{all, copy};
  }

  Store store_;
  const bool is_local_;
};

// What is behind the cache, and how others replace its object.
struct Kind {
  const char* name;
  std::function<Store(const TempFolder&)> open;
  std::function<void(const Store&, const TempFolder&, const std::string&)> replace;
};

void set_behind(const Store& store, const TempFolder&, const std::string& text) {
  store.set("k", bytes_of(text));
}

const Kind kKinds[] = {
    {"memory", [](const TempFolder&) { return memory_store(); }, set_behind},
    {"file",
     [](const TempFolder& folder) { return open_store(folder / "s", StoreMode::append); },
     set_behind},
    {"file in place",
     [](const TempFolder& folder) { return open_store(folder / "s", StoreMode::append); },
     [](const Store&, const TempFolder& folder, const std::string& text) {
       namespace fs = std::filesystem;
       const fs::path path = folder / "s/k";
       std::ofstream(path, std::ios::binary) << text;
       // A clock that has moved on since: its steps are longer than this test.
       static int seconds = 0;
       fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(++seconds));
     }},
    {"unversioned",
     [](const TempFolder&) { return make_store(std::make_shared<Unversioned>(memory_store())); },
     set_behind},
    {"unversioned, local",
     [](const TempFolder&) {
       return make_store(std::make_shared<Unversioned>(memory_store(), true));
     },
     set_behind},
};

TEST(CachedStoreChanges, NoReadHasOldAndNewBytes) {
  using Read = std::function<std::string(const Store&)>;
  const std::pair<const char*, Read> reads[] = {{"whole", whole},
                                                {"many", many},
                                                {"range", [](const Store& s) { return range(s); }},
                                                {"ranges", ranges},
                                                {"ranges apart", apart},
                                                {"scattered", scattered}};
  for (const Kind& kind : kKinds) {
    for (const auto& [how, read] : reads) {
      for (const bool across : {false, true}) {
        SCOPED_TRACE(std::string(kind.name) + ", " + how + (across ? ", across processes" : ""));
        const TempFolder folder;
        const Store behind = kind.open(folder);
        const auto open = [&] {
          return cached_store(behind,
                              {.directory = folder / "cache", .block_nbytes = kBlock, .name = "s"});
        };
        Store store = open();
        kind.replace(behind, folder, all('a'));
        EXPECT_EQ(range(store, 2 * kBlock, 10), std::string(10, 'a'));
        kind.replace(behind, folder, all('b'));
        if (across) store = open();
        EXPECT_EQ(read(store), all('b'));
        // Once more: now of blocks that were kept in the middle of it all.
        EXPECT_EQ(range(store, 0, 10), std::string(10, 'b'));
        EXPECT_EQ(range(open()), all('b'));
        EXPECT_EQ(whole(open()), all('b'));
      }
    }
  }
}

// What is kept whole is served as it was: the store is not asked.
TEST(CachedStoreChanges, WhatIsKeptWholeIsOfOneVersion) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const TempFolder folder;
    const Store behind = kind.open(folder);
    kind.replace(behind, folder, all('a'));
    const Store store = cached_store(behind, {.block_nbytes = kBlock});
    EXPECT_EQ(whole(store), all('a'));
    kind.replace(behind, folder, all('b'));
    EXPECT_EQ(range(store), all('a'));
    EXPECT_EQ(whole(store), all('a'));
  }
}

// The index of a shard was looked at: what follows is of the same object, or an error.
TEST(CachedStoreChanges, AReaderThatToldItsVersionKeepsIt) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const TempFolder folder;
    const Store behind = kind.open(folder);
    kind.replace(behind, folder, all('a'));
    const Store store = cached_store(behind, {.block_nbytes = kBlock});
    EXPECT_EQ(range(store, 0, 10), std::string(10, 'a'));
    const auto reader = store.driver().open("k");
    EXPECT_NE(reader->version(), 0u);
    kind.replace(behind, folder, all('b'));
    std::string text(kSize, '\0');
    try {
      reader->read(0, std::as_writable_bytes(std::span(text)));
      EXPECT_EQ(text, all('a'));
    } catch (const Error& error) {
      EXPECT_TRUE(is_changed(error)) << error.what();
      EXPECT_NE(std::string(error.what()).find("has changed in the store"), std::string::npos);
    }
    const auto anew = store.driver().open("k");
    EXPECT_NE(anew->version(), reader->version());
    EXPECT_EQ(range(store), all('b'));
  }
}

TEST(CachedStoreChanges, AnObjectThatIsGoneIsMissingNotOld) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const TempFolder folder;
    const Store behind = kind.open(folder);
    kind.replace(behind, folder, all('a'));
    const Store store = cached_store(behind, {.block_nbytes = kBlock});
    EXPECT_EQ(range(store, 0, 10), std::string(10, 'a'));
    behind.erase("k");
    EXPECT_EQ(code_of([&] { range(store); }), ErrorCode::not_found);
    EXPECT_FALSE(store.open("k"));
    EXPECT_EQ(whole(store), "(none)");
  }
}

TEST(CachedStoreChanges, ReadersOutliveTheStore) {
  const Store behind = memory_store();
  behind.set("k", bytes_of(all('a')));
  std::optional<StoredObject> object;
  {
    const Store store = cached_store(behind, {.block_nbytes = kBlock});
    object = store.open("k");
  }
  std::string text(kSize, '\0');
  object->read(0, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, all('a'));
}

TEST(CachedStoreChanges, AWriterThatNeverRestsGivesWholeObjects) {
  const Store behind = memory_store();
  behind.set("k", bytes_of(all('a')));
  const Store store = cached_store(behind, {.memory_nbytes = 2000, .block_nbytes = kBlock});
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int i = 0; !done; ++i) behind.set("k", bytes_of(all(static_cast<char>('a' + i % 26))));
  });
  std::vector<std::thread> readers;
  for (unsigned t = 0; t < 2; ++t) {
    readers.emplace_back([&, t] {
      for (unsigned i = 0; i < 2000; ++i) {
        try {
          const std::string text = (i + t) % 2 == 0 ? range(store) : whole(store);
          EXPECT_EQ(text, all(text[0]));
          range(store, i % 5 * kBlock, 5);
        } catch (const Error& error) {
          EXPECT_TRUE(is_changed(error)) << error.what();
        }
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  done = true;
  writer.join();
}

TEST(CachedStoreChanges, AsksForAllRangesAtOnce) {
  for (const bool is_local : {false, true}) {
    const Store inner = memory_store();
    std::string text;
    for (int i = 0; i < 4096; ++i) text += static_cast<char>(i * 7 % 251);
    inner.set("k", bytes_of(text));
    const auto behind = std::make_shared<Unversioned>(inner, is_local);
    const Store store = cached_store(make_store(behind), {.block_nbytes = kBlock});
    ASSERT_TRUE(store.driver().coalescing());
    EXPECT_EQ(store.driver().coalescing()->gap, 17u);
    // Known, so that the reader opens what is behind only when it must.
    EXPECT_EQ(range(store, 0, 1), text.substr(0, 1));
    behind->sizes = behind->range_gets = behind->ranges_gets = 0;
    const auto reader = store.driver().open("k");
    std::string got(80, '\0');
    std::vector<RangeRead> reads;
    for (std::size_t i = 0; i < 8; ++i) {
      reads.push_back({100 + 400 * i, std::as_writable_bytes(std::span(got)).subspan(10 * i, 10)});
    }
    reader->read_ranges(reads);
    for (std::size_t i = 0; i < 8; ++i)
      EXPECT_EQ(got.substr(10 * i, 10), text.substr(100 + 400 * i, 10));
    EXPECT_EQ(behind->ranges_gets, 1);
    EXPECT_EQ(behind->range_gets, 0);
    // Who opens an object looks at its size; across a network an answer tells when it has changed.
    EXPECT_EQ(behind->sizes, is_local ? 1 : 0);
    reader->read(3500, std::as_writable_bytes(std::span(got)));
    EXPECT_EQ(got, text.substr(3500, 80));
    EXPECT_EQ(behind->sizes, is_local ? 1 : 0);  // opened once
    EXPECT_EQ(behind->range_gets, 1);
  }
}

// Two threads that miss the same at the same time: the store answers the first only when the second
// has asked as well, or surely will not.
TEST(CachedStoreChanges, OneOfTwoThreadsFetchesWhatBothMiss) {
  for (const auto& [is_whole, is_local] : {std::pair(false, false),
                                           std::pair(true, false),
                                           std::pair(false, true),
                                           std::pair(true, true)}) {
    SCOPED_TRACE(std::to_string(is_whole) + std::to_string(is_local));
    const Store inner = memory_store();
    inner.set("k", bytes_of(all('a')));
    const auto behind = std::make_shared<Unversioned>(inner, is_local);
    std::mutex mutex;
    std::condition_variable asked;
    int askers = 0;
    behind->before_get = [&] {
      std::unique_lock lock(mutex);
      ++askers;
      asked.notify_all();
      asked.wait_for(lock, std::chrono::milliseconds(300), [&] { return askers > 1; });
    };
    const Store store = cached_store(make_store(behind), {.block_nbytes = kBlock});
    if (!is_whole) store.open("k");
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        EXPECT_EQ(is_whole ? whole(store) : range(store, 70, 50),
                  is_whole ? all('a') : std::string(50, 'a'));
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(askers, 1);
    EXPECT_EQ(cache_stats(store).fetched_nbytes, is_whole ? kSize : kBlock);
  }
}

// Who fetches of a local store fails: the others try it themselves.
TEST(CachedStoreChanges, AFailureIsNoAnswerForOthers) {
  const Store inner = memory_store();
  inner.set("k", bytes_of(all('a')));
  const auto behind = std::make_shared<Unversioned>(inner, true);
  std::mutex mutex;
  std::condition_variable asked;
  int askers = 0;
  behind->before_get = [&] {
    std::unique_lock lock(mutex);
    if (++askers > 1) return;
    asked.wait_for(lock, std::chrono::milliseconds(50));
    throw Error(ErrorCode::io, "no answer");
  };
  const Store store = cached_store(make_store(behind), {.block_nbytes = kBlock});
  std::atomic<int> good{0}, bad{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      try {
        EXPECT_EQ(whole(store), all('a'));
        ++good;
      } catch (const Error&) {
        ++bad;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 3);
  EXPECT_EQ(bad, 1);
}

}  // namespace
}  // namespace headrace::test
