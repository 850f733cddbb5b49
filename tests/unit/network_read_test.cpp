// Reads of a store across a network, to the host's memory and to a device's: how many requests, how
// many of them one after another, and what comes of answers in any order, late, wrong or never.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "conformance/config_guard.h"
#include "conformance/error_code.h"
#include "conformance/random_selection.h"
#include "headrace/array.h"
#include "headrace/error.h"
#include "support/slow_store.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;

using test::Layout;
using test::SlowManners;
using test::SlowStore;

const CodecSpec little = codec::bytes();
const CodecSpec zstd = codec::zstd(1);

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all_of_them = {
      {"plain", {60, 60}, {8, 8}, {}, {little}},
      {"encoded", {60, 60}, {8, 8}, {}, {little, zstd}},
      {"plain-shards", {60, 60}, {8, 8}, {16, 32}, {little}},
      {"encoded-shards", {60, 60}, {8, 8}, {16, 32}, {little, zstd}},
      {"checked-shards", {60, 60}, {8, 8}, {16, 32}, {little, codec::crc32c()}},
      {"nested-shards",
       {60, 60},
       {16, 32},
       {32, 64},
       {codec::sharding({8, 8}, {little, zstd}, {little, codec::crc32c()})}},
      {"plain-nested-shards",
       {60, 60},
       {16, 32},
       {32, 64},
       {codec::sharding({8, 8}, {little}, {little, codec::crc32c()})}},
      {"v2", {60, 60}, {8, 8}, {}, {little, zstd}, DType::float32, 2},
  };
  return all_of_them;
}

void copy_objects(const Store& from, SlowStore& to) {
  for (const std::string& key : from.list("")) {
    const auto object = from.open(key);
    std::vector<std::byte> bytes(object->size());
    object->read(0, bytes);
    to.put(key, bytes);
  }
}

using test::bytes_of;

// Small slabs; decoded on the device.
void configure_device(std::size_t slab_nbytes = 4096) {
  Config changed = config();
  changed.device_min_decode_nbytes = 0;
  changed.device_slab_nbytes = slab_nbytes;
  changed.io_depth = 64;
  set_config(changed);
}

// `n` rows, each a chunk of 256 bytes; all elements are `value`, or count up from 1 where it is 0.
Store rows(std::int64_t n, const Shape& shards, const std::vector<CodecSpec>& codecs, float value) {
  const Store store = memory_store();
  CreateOptions options;
  options.shape = {n, 64};
  options.dtype = DType::float32;
  options.chunks = {1, 64};
  options.shards = shards;
  options.codecs = codecs;
  const Array array = create_array(store, "a", options);
  std::vector<float> values(static_cast<std::size_t>(n) * 64, value);
  if (value == 0) std::iota(values.begin(), values.end(), 1.0F);
  array.write({}, {values.data(), options.shape, {}, DType::float32, {}});
  return store;
}

class NetworkRead : public testing::Test {
 protected:
  // What a memory store has, behind a network.
  Array open_slow(const Store& store) {
    copy_objects(store, *slow_);
    truth_.emplace(open_array(store, "a"));
    const Array array = open_array(Store(slow_), "a");
    slow_->forget_counts();
    return array;
  }

  Array open_slow(const Layout& layout) {
    const Store store = memory_store();
    test::filled(store, layout);
    return open_slow(store);
  }

  Array many_chunks(const Shape& shards = {},
                    const std::vector<CodecSpec>& codecs = {little, zstd}) {
    return open_slow(rows(256, shards, codecs, 0));
  }

  void expect_truth(const Array& array, const Selection& selection = {}) {
    EXPECT_EQ(test::bytes_of(array.read(selection)), test::bytes_of(truth_->read(selection)));
  }

  void set_manners(const SlowManners& manners) { slow_->set_manners(manners); }

  const test::ConfigGuard guard_;
  const std::shared_ptr<SlowStore> slow_ = std::make_shared<SlowStore>();
  std::optional<Array> truth_;
};

TEST_F(NetworkRead, KeepsAsManyRequestsUnderWayAsTheDepthSays) {
  const Array array = many_chunks();
  for (const Device device : {Device::cpu(), Device::simt()}) {
    configure_device(1 << 20);
    set_manners({.latency = 100ms});
    slow_->forget_counts();
    const auto begin = std::chrono::steady_clock::now();
    const Tensor found = array.to(device).read();
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(bytes_of(found), bytes_of(truth_->read()));
    const test::SlowCounts counts = slow_->counts();
    EXPECT_EQ(counts.requests, 256u);
    EXPECT_EQ(counts.most_given, 64u);
    EXPECT_EQ(counts.rounds, 4u);
    EXPECT_GE(took, 400ms);
    EXPECT_LT(took, 10s);  // one after the other: 25 s; the rounds say more
  }
}

TEST_F(NetworkRead, GivesNoMoreThanTwiceWhatTheStoreSends) {
  const Array array = many_chunks();
  set_manners({.latency = 1ms, .depth = 5});
  expect_truth(array);
  EXPECT_EQ(slow_->counts().most_given, 10u);
  EXPECT_EQ(slow_->counts().most_on_wire, 5u);
}

TEST_F(NetworkRead, ReadsShardsInTwoRoundTripsAndThenInOne) {
  for (const auto& codecs : {std::vector{little, zstd}, std::vector{little}}) {
    const Array array = many_chunks({64, 64}, codecs);
    for (const Device device : {Device::cpu(), Device::simt()}) {
      configure_device(1 << 20);
      const Array fresh = open_array(Store(slow_), "a").to(device);
      set_manners({.latency = 50ms});
      for (const std::size_t rounds : {2u, 1u}) {
        slow_->forget_counts();
        expect_truth(fresh, {slice(0, 256, 2)});
        EXPECT_EQ(slow_->counts().rounds, rounds);
        EXPECT_EQ(slow_->counts().requests, 4 * rounds);
      }
    }
  }
}

TEST_F(NetworkRead, ReadsAllOfAShardInOneRoundTrip) {
  // The last shard reaches over the edge of the array.
  for (const std::int64_t n : {256, 250}) {
    const Array array = open_slow(rows(n, {64, 64}, {little, zstd}, 0));
    set_manners({.latency = 50ms});
    for (int i = 0; i < 2; ++i) {
      slow_->forget_counts();
      expect_truth(array);
      EXPECT_EQ(slow_->counts().rounds, 1u);
      EXPECT_EQ(slow_->counts().requests, 4u);
    }
    // By one request where what is configured would make two of it.
    Config narrow = config();
    narrow.coalesce_run = 10000;
    set_config(narrow);
    slow_->forget_counts();
    expect_truth(array);
    EXPECT_EQ(slow_->counts().requests, 4u);
    // The indices are known now.
    slow_->forget_counts();
    expect_truth(array, {slice(100, 102)});
    EXPECT_EQ(slow_->counts().requests, 1u);
  }
}

TEST_F(NetworkRead, AsksForAShardByItsIndexWhereItIsTooLargeToBeHeld) {
  const Array array = many_chunks({64, 64});
  Config small = config();
  small.coalesce_run = 16000;  // a shard has 64 chunks of 256 bytes
  small.io_nbytes = 40000;
  set_config(small);
  expect_truth(array);
  for (const std::string& asked : slow_->counts().asked) EXPECT_FALSE(asked.ends_with("whole"));
  // Two would be too few to come side by side.
  small.io_nbytes = std::size_t{1} << 30;
  set_config(small);
  const Array half = open_array(Store(slow_), "a");
  slow_->forget_counts();
  expect_truth(half, {slice(0, 128)});
  for (const std::string& asked : slow_->counts().asked) EXPECT_FALSE(asked.ends_with("whole"));
  const Array fresh = open_array(Store(slow_), "a");
  slow_->forget_counts();
  expect_truth(fresh);
  EXPECT_EQ(slow_->counts().requests, 4u);
}

TEST_F(NetworkRead, ReadsAShardWithMoreInItThanItsChunks) {
  const Store store = rows(256, {64, 64}, {little, zstd}, 0);
  // As writers leave it that append what is new and then the index.
  Buffer shard;
  ASSERT_TRUE(store.driver().get("a/c/1/0", shard));
  const std::size_t index = 64 * 16 + 4;
  std::vector<std::byte> longer(shard.bytes().begin(), shard.bytes().end() - index);
  longer.resize(longer.size() + (1 << 20), std::byte{7});
  longer.insert(longer.end(), shard.bytes().end() - index, shard.bytes().end());
  store.set("a/c/1/0", longer);
  const Array array = open_slow(store);
  expect_truth(array);
  const std::vector<std::string> asked = slow_->counts().asked;
  EXPECT_EQ(std::ranges::count(asked, "a/c/1/0 whole"), 1);
  EXPECT_EQ(std::ranges::count(asked, "a/c/1/0 -1028"), 1);
  // One that lost its chunks, and one that is gone.
  store.set("a/c/1/0", std::span(longer).last(index));
  store.set("a/c/2/0", std::span(longer).last(index / 2));
  store.erase("a/c/3/0");
  const Array broken = open_slow(store);
  EXPECT_EQ(code_of([&] { broken.read({slice(64, 128)}); }), ErrorCode::corrupt);
  std::string message;
  EXPECT_EQ(code_of([&] { broken.read({slice(128, 192)}); }, &message), ErrorCode::corrupt);
  EXPECT_NE(message.find("a chunk c/2/0"), std::string::npos) << message;
  slow_->erase("a/c/3/0");
  expect_truth(broken, {slice(192, 256)});
}

// A store compares a whole object with its checksum. By its index the same shard would be read
// without one, and what is wrong in it be taken for what was written.
TEST_F(NetworkRead, ReadsAShardOfWrongBytesByNoOtherWay) {
  const Array array = many_chunks({64, 64});
  slow_->before_answer([this](const AsyncRead& read) {
    if (read.key != "a/c/1/0") return;
    const bool is_whole = read.extent.kind == Extent::Kind::whole;
    slow_->fail_key(read.key,
                    is_whole ? std::make_exception_ptr(
                                   Error(ErrorCode::corrupt, "do not match its Content-MD5"))
                             : nullptr);
  });
  std::string message;
  EXPECT_EQ(code_of([&] { array.read(); }, &message), ErrorCode::corrupt);
  EXPECT_NE(message.find("a chunk c/1/0: do not match its Content-MD5"), std::string::npos)
      << message;
}

TEST_F(NetworkRead, ReadsShardsInShardsInThreeRoundTripsAndThenInOne) {
  const Array array = open_slow(layouts()[5]);
  set_manners({.latency = 50ms});
  for (const std::size_t rounds : {3u, 1u}) {
    slow_->forget_counts();
    expect_truth(array, {slice(0, 32)});
    EXPECT_EQ(slow_->counts().rounds, rounds);
  }
}

TEST_F(NetworkRead, AsksForWhatIsWantedAlone) {
  const Array array = many_chunks({64, 64}, {little});
  // Four bytes of each of three chunks, of a shard whose index has 64 entries and a checksum.
  Config far_apart = config();
  far_apart.coalesce_gap = 0;
  set_config(far_apart);
  expect_truth(array, {slice(0, 6, 2), slice(3, 4)});
  std::vector<std::string> asked = slow_->counts().asked;
  ASSERT_EQ(asked.size(), 4u);
  EXPECT_EQ(asked[0], "a/c/0/0 -1028");
  std::ranges::sort(asked);
  EXPECT_EQ(asked[1], "a/c/0/0 1036+4");
  EXPECT_EQ(asked[2], "a/c/0/0 12+4");
  EXPECT_EQ(asked[3], "a/c/0/0 524+4");
}

TEST_F(NetworkRead, IsWhatAStoreInMemoryGives) {
  std::mt19937 random(7);
  for (const Layout& layout : layouts()) {
    const Store memory = memory_store();
    const Array truth = test::filled(memory, layout);
    for (const bool odd : {false, true}) {
      const auto slow = std::make_shared<SlowStore>();
      copy_objects(memory, *slow);
      SlowManners manners{.latency = 50us, .seed = 3};
      if (odd) {
        manners = {
            .answers_in_submit = true, .tells_versions = false, .tells_object_nbytes = false};
      }
      slow->set_manners(manners);
      for (int i = 0; i < 40; ++i) {
        Config changed = config();
        changed.coalesce_gap = std::size_t{1} << random() % 12;
        changed.coalesce_run = i % 2 == 0 ? 600 : 10000;
        changed.device_min_decode_nbytes = i % 3 == 0 ? std::size_t{1} << 40 : 0;
        changed.device_slab_nbytes = 3000;
        changed.io_nbytes = std::size_t{1} << (7 + random() % 8);
        changed.io_depth = 1 + random() % 9;
        set_config(changed);
        const Selection selection =
            i == 0 ? Selection() : test::random_selection(layout.shape, random);
        const Array there = open_array(Store(slow), "a");
        const auto wanted = bytes_of(truth.read(selection));
        EXPECT_EQ(bytes_of(there.read(selection)), wanted) << layout.name << ' ' << i;
        EXPECT_EQ(bytes_of(there.to(Device::simt()).read(selection)), wanted)
            << layout.name << ' ' << i << " to a device";
      }
      const Selection points =
          Selection::coordinate({IndexArray{{1, 1, 50, 9}, {4}}, IndexArray{{2, 40, 3, 9}, {4}}});
      const Array there = open_array(Store(slow), "a");
      EXPECT_EQ(bytes_of(there.read(points)), bytes_of(truth.read(points))) << layout.name;
      EXPECT_EQ(bytes_of(there.to(Device::simt()).read(points)), bytes_of(truth.read(points)));
    }
  }
}

TEST_F(NetworkRead, ReadManySharesWhatIsUnderWay) {
  const Array array = many_chunks();
  // A second store of the same objects, and an array on the way that is in memory.
  const auto other = std::make_shared<SlowStore>();
  copy_objects(truth_->store(), *other);
  const Array far = open_array(Store(other), "a");
  for (SlowStore* const store : {slow_.get(), other.get()}) {
    store->set_manners({.latency = 50ms});
    store->forget_counts();
  }
  std::vector<Tensor> found;
  std::vector<ReadRequest> requests;
  const Array arrays[] = {array, far, *truth_};
  for (std::int64_t i = 0; i < 90; ++i) {
    found.push_back(Tensor::empty({1, 64}, DType::float32, Device::cpu()));
    requests.push_back({arrays[i % 3], Selection{slice(i, i + 1)}, found.back().view()});
  }
  read_many(requests);
  for (std::int64_t i = 0; i < 90; ++i) {
    EXPECT_EQ(bytes_of(found[static_cast<std::size_t>(i)]),
              bytes_of(truth_->read(Selection{slice(i, i + 1)})));
  }
  for (const SlowStore* const store : {slow_.get(), other.get()}) {
    EXPECT_EQ(store->counts().requests, 30u);
    EXPECT_EQ(store->counts().rounds, 1u);
  }
  slow_->fail_key("a/c/30/0", std::make_exception_ptr(Error(ErrorCode::io, "no such luck")));
  EXPECT_EQ(code_of([&] { read_many(requests); }), ErrorCode::io);
}

// What `step` has of 256 rows in shards of 64, by as many selections, the shards in turn.
TEST_F(NetworkRead, ReadManyAsksForEachShardOnce) {
  for (const auto& codecs : {std::vector{little, zstd}, std::vector{little}}) {
    many_chunks({64, 64}, codecs);
    set_manners({.latency = 50ms});
    for (const Device device : {Device::cpu(), Device::simt()}) {
      configure_device(1 << 20);
      const Array fresh = open_array(Store(slow_), "a").to(device);
      for (const std::size_t rounds : {2u, 1u}) {
        slow_->forget_counts();
        std::vector<Tensor> found;
        std::vector<ReadRequest> requests;
        std::vector<Selection> selections;
        for (std::int64_t i = 0; i < 64; i += 2) {
          for (std::int64_t shard = 0; shard < 4; ++shard) {
            const std::int64_t row = 64 * shard + i;
            selections.push_back({slice(row, row + 1)});
            found.push_back(Tensor::empty({1, 64}, DType::float32, device));
            requests.push_back({fresh, selections.back(), found.back().view()});
          }
        }
        read_many(requests);
        EXPECT_EQ(slow_->counts().rounds, rounds);
        EXPECT_EQ(slow_->counts().requests, 4 * rounds);
        for (std::size_t i = 0; i < found.size(); ++i)
          ASSERT_EQ(bytes_of(found[i]), bytes_of(truth_->read(selections[i])));
      }
    }
  }
}

// All of a shard by many selections, some of which meet, and of one that is not there.
TEST_F(NetworkRead, ReadManyAsksForAllOfAShardByOneRequest) {
  const Store store = rows(256, {64, 64}, {little, zstd}, 0);
  store.erase("a/c/3/0");
  for (const Device device : {Device::cpu(), Device::simt()}) {
    const Array array = open_slow(store).to(device);
    std::vector<Tensor> found;
    std::vector<ReadRequest> requests;
    std::vector<Selection> selections;
    for (std::int64_t row = 0; row < 256; row += 8) {
      const std::int64_t end = std::min<std::int64_t>(row + 12, 256);
      selections.push_back({slice(row, end), slice(0, 64, 3)});
      found.push_back(Tensor::empty({end - row, 22}, DType::float32, device));
      requests.push_back({array, selections.back(), found.back().view()});
    }
    read_many(requests);
    if (device.is_cpu()) {
      EXPECT_EQ(slow_->counts().requests, 4u);
    }
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(bytes_of(found[i]), bytes_of(truth_->read(selections[i])));
    // An error names the chunk that the selection wants.
    slow_->put("a/c/1/0", std::vector<std::byte>(100));
    EXPECT_EQ(code_of([&] { read_many(requests); }), ErrorCode::corrupt);
  }
}

TEST_F(NetworkRead, ReadsRectilinearGridsInOneRoundTrip) {
  CreateOptions options;
  options.shape = {60, 60};
  options.dtype = DType::float32;
  options.edges = {Shape{20, 20, 8, 12}, std::int64_t{16}};
  options.codecs = {little, zstd};
  const Store memory = memory_store();
  const Array truth = create_array(memory, "a", options);
  Tensor data = Tensor::empty({40, 60}, DType::float32);
  std::memset(data.data(), 1, data.nbytes());
  truth.write({slice(0, 40)}, data.view());
  const Array there = open_slow(memory);
  set_manners({.latency = 20ms});
  EXPECT_EQ(bytes_of(there.read()), bytes_of(truth.read()));
  EXPECT_EQ(slow_->counts().rounds, 1u);
  EXPECT_EQ(slow_->counts().requests, 16u);
}

TEST_F(NetworkRead, HoldsNoMoreThanItsBudget) {
  const Array array = many_chunks();
  Config small = config();
  small.io_nbytes = 10 * 256;
  set_config(small);
  set_manners({.latency = 1ms});
  expect_truth(array);
  // What objects take in the store is less than what is expected of them.
  EXPECT_LE(slow_->counts().most_given, 12u);
  EXPECT_LE(slow_->counts().most_nbytes, small.io_nbytes);

  slow_->forget_counts();
  ReadOptions options;
  options.memory_budget = 1;
  EXPECT_EQ(bytes_of(array.read({}, options)), bytes_of(truth_->read()));
  EXPECT_EQ(slow_->counts().most_given, 1u);
}

TEST_F(NetworkRead, EndsSoonWhenItIsCancelled) {
  const Array array = many_chunks();
  set_manners({.latency = 60s});
  const auto begin = std::chrono::steady_clock::now();
  Future<Tensor> future = array.read_async();
  while (slow_->counts().most_given < 64) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(future.cancel());
  EXPECT_EQ(code_of([&] { future.get(); }), ErrorCode::cancelled);
  ReadOptions options;
  options.poll = [] { throw std::runtime_error("stop"); };
  EXPECT_THROW(array.read({}, options), std::runtime_error);
  EXPECT_THROW(array.to(Device::simt()).read({}, options), std::runtime_error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_EQ(slow_->counts().cancelled, slow_->counts().requests);
}

// Else the read that is tried again, as the object was replaced, goes on as if nobody had been
// there.
TEST_F(NetworkRead, AnInterruptGoesBeforeAnErrorThatIsTriedAgain) {
  const Array array = many_chunks();
  Config alone = config();
  alone.threads = 1;
  set_config(alone);
  set_manners({.hears_cancel = false});
  std::exception_ptr changed;
  try {
    throw_changed("a/c/0/0");
  } catch (...) {
    changed = std::current_exception();
  }
  slow_->fail_key("a/c/0/0", changed);
  std::atomic<bool> is_stuck{false}, is_let_go{false};
  slow_->before_answer([&](const AsyncRead& read) {
    if (read.key == "a/c/0/0" || is_let_go) return;
    is_stuck = true;
    while (!is_let_go) std::this_thread::sleep_for(1ms);
  });
  ReadOptions options;
  options.poll = [&] {
    if (!is_stuck || is_let_go.exchange(true)) return;
    throw std::runtime_error("interrupted");
  };
  EXPECT_THROW(array.read({}, options), std::runtime_error);
  EXPECT_LE(slow_->counts().requests, 256u);
}

TEST_F(NetworkRead, NamesTheChunkOfAnErrorAndCancelsTheOthers) {
  for (const Shape& shards : {Shape{}, Shape{64, 64}}) {
    const Array array = many_chunks(shards);
    slow_->fail_key(shards.empty() ? "a/c/9/0" : "a/c/2/0",
                    std::make_exception_ptr(Error(ErrorCode::io, "no such luck", EIO)));
    for (const Device device : {Device::cpu(), Device::simt()}) {
      configure_device(1 << 20);
      const std::string text = test::error_of([&] { array.to(device).read(); }, ErrorCode::io);
      EXPECT_NE(text.find(shards.empty() ? "a chunk c/9/0" : "a chunk c/2/0"), std::string::npos)
          << text;
      EXPECT_NE(text.find("no such luck"), std::string::npos) << text;
    }
  }
}

TEST_F(NetworkRead, RefusesObjectsOfWrongLengths) {
  const Array plain = many_chunks({}, {little});
  std::vector<std::byte> bytes(300);
  for (const std::size_t nbytes : {300u, 200u}) {
    slow_->put("a/c/3/0", ConstBytes(bytes).first(nbytes));
    EXPECT_EQ(code_of([&] { plain.read(); }), ErrorCode::corrupt) << nbytes;
    EXPECT_EQ(code_of([&] { plain.to(Device::simt()).read(); }), ErrorCode::corrupt) << nbytes;
  }
  slow_->put("a/c/3/0", ConstBytes(bytes).first(300));
  EXPECT_EQ(code_of([&] { plain.read({3, slice(5, 9)}); }), ErrorCode::corrupt);
  const Array shards = many_chunks({64, 64});
  slow_->put("a/c/1/0", ConstBytes(bytes).first(300));
  EXPECT_EQ(code_of([&] { shards.read(); }), ErrorCode::corrupt);
}

TEST_F(NetworkRead, SeesShardsThatWereReplaced) {
  const std::vector<CodecSpec> codecs = {little, zstd};
  const Array array = many_chunks({64, 64}, codecs);
  const Store before = rows(256, {64, 64}, codecs, 0);
  const Store after = rows(256, {64, 64}, codecs, 3);
  for (const Device device : {Device::cpu(), Device::simt()}) {
    configure_device();
    expect_truth(array.to(device));
    // All of them at once: whatever is kept of one is wrong, and so is what is kept of the others.
    copy_objects(after, *slow_);
    EXPECT_EQ(bytes_of(array.to(device).read()), bytes_of(open_array(after, "a").read()));
    slow_->erase("a/c/2/0");
    EXPECT_EQ(bytes_of(array.to(device).read({slice(128, 192)})), std::vector<std::byte>(64 * 256));
    copy_objects(before, *slow_);
  }
}

// Of a chunk that the index had not no range is asked for, which would tell that the shard is
// another by now.
TEST_F(NetworkRead, SeesChunksThatWereAddedToAShard) {
  const Store store = memory_store();
  const Array truth = test::create(store, {"", {64, 64}, {8, 64}, {64, 64}, {little, zstd}});
  std::vector<float> row(64, 5);
  const TensorView view{row.data(), {1, 64}, {}, DType::float32, {}};
  truth.write({slice(0, 1)}, view);
  const Array array = open_slow(store);
  expect_truth(array, {slice(40, 41)});
  expect_truth(array, {slice(0, 1)});
  truth.write({slice(40, 41)}, view);
  copy_objects(store, *slow_);
  expect_truth(array, {slice(40, 41)});
}

// Every element of one version of its object, or an error.
TEST_F(NetworkRead, IsRightOrRaisesWhateverHappensMeanwhile) {
  struct Case {
    Shape shards;
    std::vector<CodecSpec> codecs;
  };
  const std::vector<Case> cases = {
      {{}, {little, zstd}}, {{}, {little}}, {{8, 64}, {little, zstd}}, {{8, 64}, {little}}};
  int raised = 0, right = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const Case& one = cases[seed % cases.size()];
    const Store versions[] = {rows(32, one.shards, one.codecs, 1),
                              rows(32, one.shards, one.codecs, 2)};
    const auto slow = std::make_shared<SlowStore>();
    copy_objects(versions[0], *slow);
    const Array array = open_array(Store(slow), "a");
    std::mt19937_64 random(seed);
    slow->before_answer([&](const AsyncRead& read) {
      if (random() % 8 != 0) return;
      const auto what = random() % 5;
      if (what == 0) return slow->erase(read.key);
      const auto object = versions[what % 2].open(read.key);
      std::vector<std::byte> bytes(object->size());
      object->read(0, bytes);
      slow->put(read.key, bytes);
    });
    Config changed = config();
    changed.io_depth = 1 + seed % 7;
    changed.coalesce_gap = 100;
    changed.coalesce_run = 1 << (8 + seed % 4);
    changed.device_min_decode_nbytes = 0;
    changed.device_slab_nbytes = 4096;
    set_config(changed);
    slow->set_manners({.latency = 20us,
                       .answers_in_submit = seed % 5 == 0,
                       .seed = seed,
                       .error_rate = seed % 2 == 0 ? 0.005 : 0,
                       .replace_rate = 0.01});
    const std::int64_t object_rows = one.shards.empty() ? 1 : 8;
    const std::int64_t step = seed % 3 == 0 ? 1 : 2;
    const Device device = seed / 4 % 2 == 0 ? Device::cpu() : Device::simt();
    for (int i = 0; i < 3; ++i) {
      std::vector<std::byte> bytes;
      try {
        bytes = bytes_of(array.to(device).read({all, slice(0, 64, step)}));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
        ++raised;
        continue;
      }
      ++right;
      std::vector<float> values(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      const std::size_t of_object = static_cast<std::size_t>(object_rows * 64 / step);
      for (std::size_t first = 0; first < values.size(); first += of_object) {
        const std::span<const float> object(values.data() + first, of_object);
        ASSERT_TRUE(object[0] == 0 || object[0] == 1 || object[0] == 2) << object[0];
        ASSERT_TRUE(std::ranges::all_of(object, [&](float v) { return v == object[0]; }))
            << "seed " << seed << ", object at element " << first;
      }
    }
    slow->before_answer(nullptr);
  }
  EXPECT_GT(raised, 50);
  EXPECT_GT(right, 300);
}

}  // namespace
}  // namespace headrace
