#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "conformance/error_code.h"
#include "headrace/array.h"
#include "headrace/error.h"
#include "headrace/store.h"
#include "store/store.h"

namespace headrace::test {
namespace {

using Bytes = std::vector<std::byte>;

// An application's store: a map that counts what is asked of it.
class MapStore : public CustomStore {
 public:
  std::map<std::string, std::shared_ptr<const Bytes>> objects;
  bool closed_for_writes = false;
  bool cuts_answers = false;
  bool ignores_ranges = false;
  std::size_t most_keys = 0;        // asked for at once
  std::uint64_t nbytes_ranged = 0;  // asked for by range
  std::vector<std::size_t> ranges_at_once;
  std::size_t ranges_alone = 0;
  std::optional<Coalescing> limits;
  bool removed = false;  // objects, after they were looked up

  std::string url() const override { return "map://test"; }
  bool read_only() const override { return closed_for_writes; }
  std::size_t batch_size() const override { return 8; }

  std::vector<std::optional<StoredBytes>> get(std::span<const std::string> keys) override {
    const std::lock_guard lock(mutex_);
    most_keys = std::max(most_keys, keys.size());
    std::vector<std::optional<StoredBytes>> found;
    for (const std::string& key : keys) {
      const auto it = objects.find(key);
      if (it == objects.end()) {
        found.push_back(std::nullopt);
      } else {
        found.push_back(StoredBytes{*it->second, it->second});
      }
    }
    return found;
  }

  std::optional<std::uint64_t> size(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto it = objects.find(key);
    if (it == objects.end()) return std::nullopt;
    return it->second->size();
  }

  std::optional<StoredBytes> get_range(const std::string& key, const ByteRange& range) override {
    const std::lock_guard lock(mutex_);
    const auto& [offset, nbytes] = range;
    ++ranges_alone;
    nbytes_ranged += nbytes;
    const auto it = removed ? objects.end() : objects.find(key);
    if (it == objects.end()) return std::nullopt;
    const auto& value = it->second;
    if (ignores_ranges) return StoredBytes{*value, value};
    return StoredBytes{std::span(*value).subspan(offset, cuts_answers ? nbytes - 1 : nbytes),
                       value};
  }

  std::optional<std::vector<StoredBytes>> get_ranges(const std::string& key,
                                                     std::span<const ByteRange> ranges) override {
    {
      const std::lock_guard lock(mutex_);
      ranges_at_once.push_back(ranges.size());
      ranges_alone -= ranges.size();  // each is counted when it comes
    }
    return CustomStore::get_ranges(key, ranges);
  }

  std::optional<Coalescing> coalescing() const override { return limits; }

  void set(const std::string& key, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    objects[key] = std::make_shared<const Bytes>(bytes.begin(), bytes.end());
  }

  void erase(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    objects.erase(key);
  }

  void erase_prefix(const std::string& prefix) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(objects, [&](const auto& object) { return object.first.starts_with(prefix); });
  }

  std::vector<std::string> list(const std::string& prefix) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> keys;
    for (const auto& [key, value] : objects) {
      if (key.starts_with(prefix)) keys.push_back(key);
    }
    return keys;
  }

  std::vector<std::string> list_dir(const std::string& prefix) override {
    std::set<std::string> names;
    for (const std::string& key : list(prefix)) {
      const std::string_view rest = std::string_view(key).substr(prefix.size());
      names.emplace(rest.substr(0, rest.find('/')));
    }
    return {names.begin(), names.end()};
  }

 private:
  std::mutex mutex_;
};

std::vector<std::int32_t> counted(std::size_t n) {
  std::vector<std::int32_t> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<std::int32_t>(i);
  return values;
}

TensorView view_of(std::vector<std::int32_t>& values) {
  return {values.data(), {static_cast<std::int64_t>(values.size())}, {}, DType::int32, {}};
}

Array counting_array(const Store& store, Shape shards = {}) {
  CreateOptions options;
  options.shape = {1000};
  options.dtype = DType::int32;
  options.chunks = {10};
  options.shards = std::move(shards);
  Array array = create_array(store, "a", options);
  auto values = counted(1000);
  array.write({}, view_of(values));
  return array;
}

TEST(CustomStore, KeepsArrays) {
  auto map = std::make_shared<MapStore>();
  const Store store = make_store(map);
  counting_array(store);
  EXPECT_EQ(map->objects.size(), 102u);  // chunks, and the documents of array and group

  const Array array = open_array(store, "a");
  std::vector<std::int32_t> out(1000);
  array.read_into({}, view_of(out));
  EXPECT_EQ(out, counted(1000));
  EXPECT_GT(map->most_keys, 1u);
  EXPECT_LE(map->most_keys, 8u);

  map->erase("a/c/3");
  array.read_into({}, view_of(out));
  EXPECT_EQ(out[30], 0);
  EXPECT_EQ(out[40], 40);
  EXPECT_EQ(open_group(make_store(map), "").members().size(), 1u);
}

TEST(CustomStore, ReadsPartsOfShards) {
  auto map = std::make_shared<MapStore>();
  const Store store = make_store(map);
  const Array array = counting_array(store, {1000});
  map->nbytes_ranged = 0;
  std::vector<std::int32_t> out(10);
  array.read_into({slice(500, 510)}, view_of(out));
  EXPECT_EQ(out.front(), 500);
  EXPECT_EQ(out.back(), 509);
  EXPECT_LT(map->nbytes_ranged, 3000u);  // the index has 1604 bytes, all chunks 4000 and more
}

// Chunks 0, 3, 6, ..., each of 40 bytes and what zstd adds.
std::vector<std::int32_t> every_third_chunk(const Array& array) {
  std::vector<std::int32_t> out(34);
  array.read_into({slice(0, 1000, 30)}, view_of(out));
  return out;
}

TEST(CustomStore, AsksForTheRangesOfAShardAtOnce) {
  auto map = std::make_shared<MapStore>();
  const Store store = make_store(map);
  const Array array = counting_array(store, {1000});
  map->limits = {0, 1 << 20};
  const std::vector<std::int32_t> apart = every_third_chunk(array);
  EXPECT_EQ(map->ranges_at_once, std::vector<std::size_t>{34});
  map->limits = {150, 1 << 20};
  EXPECT_EQ(every_third_chunk(array), apart);
  EXPECT_EQ(map->ranges_at_once, std::vector<std::size_t>{34});  // one range, by get_range()
  map->limits = {150, 560};  // four chunks, and what lies between them
  EXPECT_EQ(every_third_chunk(array), apart);
  EXPECT_EQ(map->ranges_at_once, (std::vector<std::size_t>{34, 9}));
  for (std::size_t i = 0; i < apart.size(); ++i)
    EXPECT_EQ(apart[i], static_cast<std::int32_t>(30 * i));
}

TEST(CustomStore, AsksForNoMoreThanTheBudgetHoldsAtOnce) {
  auto map = std::make_shared<MapStore>();
  const Store store = make_store(map);
  const Array array = counting_array(store, {1000});
  map->limits = {0, 1 << 20};
  std::vector<std::int32_t> out(34);
  ReadOptions options;
  options.memory_budget = 400;
  array.read_into({slice(0, 1000, 30)}, view_of(out), options);
  std::size_t ranges = map->ranges_alone;
  for (const std::size_t n : map->ranges_at_once) {
    ranges += n;
    EXPECT_LE(n * 40, 200u);
  }
  EXPECT_EQ(ranges, 35u);  // with the index of the shard
}

// Answers reads from a thread of its own, the last one first.
class LateStore final : public MapStore {
 public:
  ~LateStore() override {
    for (std::thread& thread : threads_) thread.join();
  }

  std::atomic<int> reads{0}, cancels{0};
  std::atomic<bool> answers{true};
  std::atomic<bool> refuses{false};

  std::size_t depth() const override { return 16; }

  void submit(std::vector<StoreRead> wanted, std::shared_ptr<StoreAnswers> to) override {
    if (refuses) throw Error(ErrorCode::io, "no more");
    reads += static_cast<int>(wanted.size());
    if (!answers) return;
    const std::lock_guard lock(threads_mutex_);
    threads_.emplace_back([this, wanted = std::move(wanted), to] {
      for (auto read = wanted.rbegin(); read != wanted.rend(); ++read) answer(*read, *to);
    });
  }

  void cancel(std::uint64_t) override { ++cancels; }

 private:
  void answer(const StoreRead& read, StoreAnswers& to) {
    const auto object = get({&read.key, 1}).front();
    if (!object) return to.missing(read.id);
    auto bytes = object->bytes;
    const std::uint64_t nbytes = bytes.size();
    if (read.kind == StoreRead::Kind::range)
      bytes = bytes.subspan(read.range.offset, read.range.nbytes);
    if (read.kind == StoreRead::Kind::suffix)
      bytes = bytes.last(std::min<std::size_t>(read.range.nbytes, nbytes));
    to.found(read.id, {bytes, object->owner}, "1", nbytes);
    to.missing(read.id);  // a second answer is none
  }

  std::mutex threads_mutex_;
  std::vector<std::thread> threads_;
};

TEST(CustomStore, AnswersLater) {
  for (const Shape& shards : {Shape{}, Shape{100}}) {
    const auto late = std::make_shared<LateStore>();
    const Store store = make_store(late);
    const Array array = counting_array(store, shards);
    late->erase(shards.empty() ? "a/c/7" : "a/c/2");
    const auto values = [&] {
      const Tensor tensor = array.read();
      const auto* first = static_cast<const std::int32_t*>(tensor.data());
      return std::vector<std::int32_t>(first, first + 1000);
    };
    auto wanted = counted(1000);
    const std::ptrdiff_t first = shards.empty() ? 70 : 200;
    std::fill_n(wanted.begin() + first, shards.empty() ? 10 : 100, 0);
    EXPECT_EQ(values(), wanted);
    // Shards come whole, and by the versions that it tells their indices are kept.
    EXPECT_EQ(late->reads, shards.empty() ? 100 : 10);
    late->reads = 0;
    EXPECT_EQ(values(), wanted);
    EXPECT_EQ(late->reads, shards.empty() ? 100 : 1 + 9);
    late->refuses = true;
    EXPECT_EQ(code_of([&] { array.read(); }), ErrorCode::io);
    late->refuses = false;
    late->answers = false;
    late->reads = 0;
    Future<Tensor> future = array.read_async();
    while (late->reads == 0) std::this_thread::yield();
    EXPECT_TRUE(future.cancel());
    EXPECT_EQ(code_of([&] { future.get(); }), ErrorCode::cancelled);
    EXPECT_GT(late->cancels, 0);
  }
}

TEST(CustomStore, WhatIsRemovedWhileItIsReadIsMissing) {
  auto map = std::make_shared<MapStore>();
  const Store store = make_store(map);
  const Array array = counting_array(store, {500});
  map->removed = true;
  EXPECT_EQ(every_third_chunk(array), std::vector<std::int32_t>(34));
  Bytes read(1);
  EXPECT_EQ(code_of([&] { store.open("a/c/0")->read(0, read); }), ErrorCode::not_found);
}

TEST(CustomStore, RefusesAnswersThatAreTooShort) {
  auto map = std::make_shared<MapStore>();
  const Store store = make_store(map);
  const Array array = counting_array(store, {1000});
  map->cuts_answers = true;
  std::vector<std::int32_t> out(10);
  EXPECT_EQ(code_of([&] { array.read_into({slice(0, 10)}, view_of(out)); }), ErrorCode::corrupt);
}

// The whole object in place of a range begins with other bytes.
TEST(CustomStore, RefusesAnswersThatAreTooLong) {
  auto map = std::make_shared<MapStore>();
  const Store store = make_store(map);
  const Array array = counting_array(store, {1000});
  map->ignores_ranges = true;
  std::vector<std::int32_t> out(10);
  EXPECT_EQ(code_of([&] { array.read_into({slice(500, 510)}, view_of(out)); }), ErrorCode::corrupt);
  store.set("k", Bytes(100, std::byte{7}));
  Bytes read(3);
  EXPECT_EQ(code_of([&] { store.open("k")->read(50, read); }), ErrorCode::corrupt);
}

// One that has its objects in memory.
class HeldMap : public MapStore {
 public:
  std::size_t gets = 0, sizes = 0;

  bool local() const override { return true; }
  bool in_memory() const override { return true; }

  std::vector<std::optional<StoredBytes>> get(std::span<const std::string> keys) override {
    ++gets;
    return MapStore::get(keys);
  }
  std::optional<std::uint64_t> size(const std::string& key) override {
    ++sizes;
    return MapStore::size(key);
  }
};

TEST(CustomStore, InMemoryIsAskedOnceForWhateverIsWanted) {
  const auto map = std::make_shared<HeldMap>();
  const Array array = counting_array(make_store(map), {100});
  std::vector<std::int32_t> values(3);
  map->gets = map->sizes = 0;
  array.read_into({slice(48, 51)}, view_of(values));
  EXPECT_EQ(values, (std::vector<std::int32_t>{48, 49, 50}));
  EXPECT_EQ(map->gets, 1u);
  EXPECT_EQ(map->sizes, 0u);
  EXPECT_EQ(map->ranges_alone, 0u);
}

TEST(CustomStore, InMemoryMayHaveNothingOrTooLittle) {
  const auto map = std::make_shared<HeldMap>();
  const Array array = counting_array(make_store(map), {100});
  std::vector<std::int32_t> values(3);
  map->objects["a/c/0"] = std::make_shared<const Bytes>(Bytes(3));
  EXPECT_EQ(code_of([&] { array.read_into({slice(48, 51)}, view_of(values)); }),
            ErrorCode::corrupt);
  map->objects.erase("a/c/0");
  array.read_into({slice(48, 51)}, view_of(values));
  EXPECT_EQ(values, (std::vector<std::int32_t>{0, 0, 0}));
}

TEST(CustomStore, IsReadOnlyWhenItSaysSo) {
  auto map = std::make_shared<MapStore>();
  map->closed_for_writes = true;
  const Store store = make_store(map);
  EXPECT_EQ(code_of([&] { store.set("a", {}); }), ErrorCode::permission_denied);
  EXPECT_EQ(code_of([&] { store.erase("a"); }), ErrorCode::permission_denied);
  EXPECT_EQ(code_of([&] { store.erase_prefix(""); }), ErrorCode::permission_denied);
}

TEST(CustomStore, GivesBytesByKey) {
  const Store store = make_store(std::make_shared<MapStore>());
  const Bytes value(5, std::byte{7});
  store.set("a/b", value);
  EXPECT_TRUE(store.exists("a/b"));
  EXPECT_FALSE(store.open("a/c"));
  Bytes read(3);
  store.open("a/b")->read(1, read);
  EXPECT_EQ(read, Bytes(3, std::byte{7}));
  EXPECT_EQ(code_of([&] { store.open("a/b")->read(3, read); }), ErrorCode::corrupt);
  EXPECT_EQ(store.list(""), std::vector<std::string>{"a/b"});
  EXPECT_EQ(store.list_dir(""), std::vector<std::string>{"a"});
  EXPECT_EQ(code_of([&] { store.set("../x", value); }), ErrorCode::invalid_argument);
  store.erase("a/b");
  EXPECT_FALSE(store.exists("a/b"));
}

TEST(OpenArray, TakesMetadataOfTheCallers) {
  auto map = std::make_shared<MapStore>();
  const Store store = make_store(map);
  OpenOptions options;
  options.metadata_json = counting_array(store).metadata_json();
  map->erase("a/zarr.json");
  std::vector<std::int32_t> out(1000);
  open_array(store, "a", options).read_into({}, view_of(out));
  EXPECT_EQ(out, counted(1000));
}

}  // namespace
}  // namespace headrace::test
