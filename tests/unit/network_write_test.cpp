// Writes to a store across a network: how many at a time, what is held for them, and what comes of
// errors, of other writers, and of answers that are lost.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>
#include <thread>

#include "base/thread_pool.h"
#include "conformance/config_guard.h"
#include "conformance/error_code.h"
#include "headrace/array.h"
#include "store/http/driver.h"
#include "support/http_server.h"
#include "support/slow_store.h"
#include "support/toy_protocol.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;

using test::bytes_of;
using test::Layout;
using test::ObjectServer;
using test::ServerAnswer;
using test::ServerRequest;
using test::SlowManners;
using test::SlowStore;

const CodecSpec little = codec::bytes();
const CodecSpec zstd = codec::zstd(1);

CreateOptions rows_of(std::int64_t n,
                      std::int64_t rows_in_chunk = 1,
                      const Shape& shards = {},
                      const std::vector<CodecSpec>& codecs = {little, zstd}) {
  CreateOptions options;
  options.shape = {n, 64};
  options.dtype = DType::float32;
  options.chunks = {rows_in_chunk, 64};
  options.shards = shards;
  options.codecs = codecs;
  return options;
}

std::vector<float> counting(std::size_t n, float first = 1) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TensorView view_of(std::vector<float>& values, const Shape& shape) {
  return {values.data(), shape, {}, DType::float32, {}};
}

// To the host's memory, or that of simt and from there.
void write_from(const Array& array,
                const Device& device,
                const Selection& selection,
                std::vector<float>& values,
                const Shape& shape) {
  if (device.is_cpu()) return array.write(selection, view_of(values, shape));
  const Tensor there = copy(view_of(values, shape), device);
  array.write(selection, there.view());
}

class NetworkWrite : public testing::TestWithParam<bool> {
 protected:
  NetworkWrite() { behave({}); }

  void behave(SlowManners manners) {
    manners.writes_later = true;
    manners.knows_conditions = true;
    slow_->set_manners(manners);
  }

  Array make(const CreateOptions& options) {
    const Array array = create_array(Store(slow_), "a", options);
    slow_->forget_counts();
    return array;
  }

  static Device device() { return GetParam() ? Device::simt() : Device::cpu(); }

  static void configure_device(std::size_t slab_nbytes) {
    Config changed = config();
    changed.device_min_decode_nbytes = 0;
    changed.device_slab_nbytes = slab_nbytes;
    changed.io_depth = 64;
    set_config(changed);
  }

  const test::ConfigGuard guard_;
  const std::shared_ptr<SlowStore> slow_ = std::make_shared<SlowStore>();
};

TEST_P(NetworkWrite, KeepsAsManyUnderWayAsTheDepthSays) {
  configure_device(1 << 20);
  const Array array = make(rows_of(256));
  behave({.latency = 100ms});
  std::vector<float> values = counting(256 * 64);
  const auto begin = std::chrono::steady_clock::now();
  write_from(array, device(), {}, values, {256, 64});
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(slow_->counts().writes, 256u);
  EXPECT_EQ(slow_->counts().most_writes, 64u);
  EXPECT_EQ(slow_->counts().requests, 0u);  // nothing is read for what is replaced whole
  EXPECT_GE(took, 400ms);
  EXPECT_LT(took, 10s);  // one after the other: 25 s
  behave({});
  const Tensor found = array.read();
  EXPECT_EQ(0, std::memcmp(found.data(), values.data(), values.size() * sizeof(float)));
}

TEST_P(NetworkWrite, ReadsWhatIsKeptManyAtOnce) {
  configure_device(1 << 20);
  const Array array = make(rows_of(128, 2));
  std::vector<float> all_of_it = counting(128 * 64);
  array.write({}, view_of(all_of_it, {128, 64}));
  slow_->forget_counts();
  behave({.latency = 50ms});
  // Every other row: each chunk in part.
  std::vector<float> rows = counting(64 * 64, -100'000);
  write_from(array, device(), Selection({slice(0, 128, 2)}), rows, {64, 64});
  EXPECT_EQ(slow_->counts().requests, 64u);
  EXPECT_EQ(slow_->counts().writes, 64u);
  EXPECT_EQ(slow_->counts().most_given, 64u);
  EXPECT_GT(slow_->counts().most_writes, static_cast<std::size_t>(thread_count()));
  for (std::size_t row = 0; row < 128; row += 2)
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(row / 2 * 64),
                64,
                all_of_it.begin() + static_cast<std::ptrdiff_t>(row * 64));
  behave({});
  const Tensor found = array.read();
  EXPECT_EQ(0, std::memcmp(found.data(), all_of_it.data(), all_of_it.size() * sizeof(float)));
}

TEST_P(NetworkWrite, HoldsNoMoreThanItsBudget) {
  configure_device(1 << 20);
  const Array array = make(rows_of(256, 1, {}, {little, codec::crc32c()}));
  behave({.latency = 2ms});
  std::vector<float> values = counting(256 * 64);
  WriteOptions options;
  options.memory_budget = 10 * 300;
  const Tensor there = copy(view_of(values, {256, 64}), device());
  array.write({}, there.view(), options);
  EXPECT_LE(slow_->counts().most_write_nbytes, options.memory_budget);
  EXPECT_GE(slow_->counts().most_writes, 2u);
  EXPECT_LE(slow_->counts().most_writes, 12u);
}

TEST_P(NetworkWrite, NamesTheChunkOfAnErrorAndCancelsTheOthers) {
  configure_device(1 << 20);
  for (const Shape& shards : {Shape{}, Shape{64, 64}}) {
    slow_->erase_prefix("");
    const Array array = make(rows_of(256, 1, shards));
    behave({.latency = 20ms});
    slow_->fail_key(shards.empty() ? "a/c/9/0" : "a/c/2/0",
                    std::make_exception_ptr(Error(ErrorCode::io, "no such luck", EIO)));
    std::vector<float> values = counting(256 * 64);
    const std::string text = test::error_of(
        [&] {
          write_from(array, device(), {}, values, {256, 64});
        },
        ErrorCode::io);
    EXPECT_NE(text.find(shards.empty() ? "[write] a chunk c/9/0" : "[write] a chunk c/2/0"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("no such luck"), std::string::npos) << text;
    EXPECT_EQ(text.find("[write]"), text.rfind("[write]")) << text;
    if (shards.empty()) {
      EXPECT_LT(slow_->counts().writes, 200u);
    }
    // The locks are free again.
    slow_->fail_key("a/c/9/0", nullptr);
    slow_->fail_key("a/c/2/0", nullptr);
    behave({});
    write_from(array, device(), {}, values, {256, 64});
  }
}

TEST_P(NetworkWrite, EndsSoonWhenItIsCancelled) {
  configure_device(1 << 20);
  const Array array = make(rows_of(256));
  behave({.latency = 60s});
  std::vector<float> values = counting(256 * 64);
  const Tensor there = copy(view_of(values, {256, 64}), device());
  const auto begin = std::chrono::steady_clock::now();
  WriteOptions options;
  options.poll = [] { throw std::runtime_error("stop"); };
  EXPECT_THROW(array.write({}, there.view(), options), std::runtime_error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_EQ(slow_->counts().cancelled, slow_->counts().writes);
  behave({});
  array.write({}, there.view());
}

// Another process writes the row beside ours between our read of the chunk and our write of it.
TEST_P(NetworkWrite, PartsOfAnotherWriterStay) {
  configure_device(1 << 20);
  const Array array = make(rows_of(32, 2));
  std::vector<float> all_of_it = counting(32 * 64);
  array.write({}, view_of(all_of_it, {32, 64}));
  // As it would have it.
  const Store theirs = memory_store();
  const Array elsewhere = create_array(theirs, "a", rows_of(32, 2));
  std::fill_n(all_of_it.begin() + 7 * 64, 64, -7.0F);
  elsewhere.write({}, view_of(all_of_it, {32, 64}));
  const auto object = theirs.open("a/c/3/0");
  std::vector<std::byte> bytes(object->size());
  object->read(0, bytes);

  std::atomic<int> writes{0};
  slow_->before_write([&](const AsyncWrite& write) {
    if (write.key == "a/c/3/0" && ++writes == 1) slow_->put("a/c/3/0", bytes);
  });
  slow_->forget_counts();
  std::vector<float> rows = counting(16 * 64, -100'000);
  write_from(array, device(), Selection({slice(0, 32, 2)}), rows, {16, 64});
  EXPECT_EQ(writes, 2);
  EXPECT_EQ(slow_->counts().writes, 17u);
  for (std::size_t row = 0; row < 16; ++row)
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(row * 64),
                64,
                all_of_it.begin() + static_cast<std::ptrdiff_t>(row * 128));
  slow_->before_write(nullptr);
  const Tensor found = array.read();
  EXPECT_EQ(0, std::memcmp(found.data(), all_of_it.data(), all_of_it.size() * sizeof(float)));
}

TEST_P(NetworkWrite, AnotherWriterWithoutEndIsAConflict) {
  configure_device(1 << 20);
  const Array array = make(rows_of(32, 2));
  std::vector<float> all_of_it = counting(32 * 64);
  array.write({}, view_of(all_of_it, {32, 64}));
  std::atomic<int> writes{0};
  slow_->before_write([&](const AsyncWrite& write) {
    if (write.key != "a/c/3/0") return;
    ++writes;
    slow_->replace_by_same("a/c/3/0");
  });
  std::vector<float> rows = counting(16 * 64, -100'000);
  const std::string text = test::error_of(
      [&] {
        write_from(array, device(), Selection({slice(0, 32, 2)}), rows, {16, 64});
      },
      ErrorCode::conflict);
  EXPECT_NE(text.find("[write] a chunk c/3/0"), std::string::npos) << text;
  EXPECT_EQ(writes, 20);
}

// Another process makes the object over the edge, with rows behind it, while ours is on its way.
TEST_P(NetworkWrite, WhatOthersPutBehindTheEdgeStays) {
  configure_device(1 << 12);
  for (const Shape& shards : {Shape{}, Shape{4, 64}}) {
    const std::string edge = shards.empty() ? "a/c/15/0" : "a/c/7/0";
    const Store theirs = memory_store();
    const Array elsewhere = create_array(theirs, "a", rows_of(32, 2, shards));
    std::vector<float> row(64, -7);
    elsewhere.write({slice(31, 32)}, view_of(row, {1, 64}));
    const auto object = theirs.open(edge);
    std::vector<std::byte> bytes(object->size());
    object->read(0, bytes);

    create_array(Store(slow_), "a", rows_of(32, 2, shards)).resize({31, 64});
    const Array array = open_array(Store(slow_), "a");
    slow_->erase(edge);
    std::atomic<int> writes{0};
    slow_->before_write([&](const AsyncWrite& write) {
      if (write.key == edge && ++writes == 1) slow_->put(edge, bytes);
    });
    std::vector<float> values = counting(31 * 64);
    write_from(array, device(), {}, values, {31, 64});
    slow_->before_write(nullptr);
    EXPECT_EQ(writes, 2);
    Array grown = open_array(Store(slow_), "a");
    grown.resize({32, 64});
    values.insert(values.end(), row.begin(), row.end());
    const Tensor found = grown.read();
    EXPECT_EQ(0, std::memcmp(found.data(), values.data(), values.size() * sizeof(float)));
    slow_->erase_prefix("a");
  }
}

TEST_P(NetworkWrite, WhatBecomesTheFillValueIsErasedUnlessAnotherWroteThere) {
  configure_device(1 << 20);
  const Array array = make(rows_of(8, 2));
  std::vector<float> ours(64, 1);
  for (const std::int64_t row : {0, 2})
    array.write(Selection({slice(row, row + 1)}), view_of(ours, {1, 64}));
  std::vector<float> theirs(128, 2);
  const Store other = memory_store();
  create_array(other, "a", rows_of(8, 2)).write(Selection({slice(0, 2)}), view_of(theirs, {2, 64}));
  const auto object = other.open("a/c/0/0");
  std::vector<std::byte> bytes(object->size());
  object->read(0, bytes);
  std::atomic<int> writes{0};
  slow_->before_write([&](const AsyncWrite& write) {
    if (write.key == "a/c/0/0" && ++writes == 1) slow_->put("a/c/0/0", bytes);
  });
  std::vector<float> zeros(2 * 64, 0);
  write_from(array, device(), Selection({slice(0, 4, 2)}), zeros, {2, 64});
  slow_->before_write(nullptr);
  EXPECT_TRUE(slow_->exists("a/c/0/0"));
  EXPECT_FALSE(slow_->exists("a/c/1/0"));
  std::vector<float> wanted(8 * 64, 0);
  std::fill_n(wanted.begin() + 64, 64, 2.0F);
  const Tensor found = array.read();
  EXPECT_EQ(0, std::memcmp(found.data(), wanted.data(), wanted.size() * sizeof(float)));
}

// Of one process, in opposite orders, many keys of each at once.
TEST_P(NetworkWrite, ThreadsThatShareChunksLoseNothingAndEnd) {
  configure_device(1 << 14);
  behave({.latency = 1ms, .seed = 7});
  const Array array = make(rows_of(64, 4));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 3; ++round) {
        std::vector<float> rows(16 * 64, static_cast<float>(10 * round + t));
        std::vector<std::int64_t> list;
        for (int i = 0; i < 16; ++i) list.push_back(t + 4 * (t % 2 == 0 ? i : 15 - i));
        if (t < 2 && !GetParam()) {
          array.write(Selection::orthogonal({IndexArray{list, {16}}}), view_of(rows, {16, 64}));
        } else {
          write_from(array, device(), Selection({slice(t, 64, 4)}), rows, {16, 64});
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  behave({});
  const Tensor found = array.read();
  const auto* values = reinterpret_cast<const float*>(found.data());
  for (std::size_t row = 0; row < 64; ++row)
    EXPECT_EQ(values[row * 64], static_cast<float>(20 + row % 4)) << row;
}

TEST_P(NetworkWrite, IsWhatAStoreInMemoryGives) {
  configure_device(1 << 14);
  const std::vector<Layout> layouts = {
      {"plain", {60, 60}, {8, 8}, {}, {little}},
      {"encoded", {60, 60}, {8, 8}, {}, {little, zstd}},
      {"plain-shards", {60, 60}, {8, 8}, {16, 32}, {little}},
      {"encoded-shards", {60, 60}, {8, 8}, {16, 32}, {little, zstd}},
      {"nested-shards",
       {60, 60},
       {16, 32},
       {32, 64},
       {codec::sharding({8, 8}, {little, zstd}, {little, codec::crc32c()})}},
      {"v2", {60, 60}, {8, 8}, {}, {little, zstd}, DType::float32, 2},
  };
  for (const bool conditions : {true, false}) {
    for (const Layout& layout : layouts) {
      SlowManners manners{.latency = 200us, .seed = 3, .writes_later = true};
      manners.knows_conditions = conditions;
      slow_->set_manners(manners);
      slow_->erase_prefix("");
      const Array far = test::create(Store(slow_), layout);
      const Array near = test::create(memory_store(), layout);
      const std::vector<Selection> selections = {
          {},
          Selection({slice(3, 50), slice(0, 60, 7)}),
          Selection({slice(10, 11), slice(5, 55)}),
          Selection({slice(16, 48), slice(32, 60)}),
      };
      float first = 1;
      for (const Selection& selection : selections) {
        const Shape shape = near.result_shape(selection);
        std::size_t n = 1;
        for (const std::int64_t extent : shape) n *= static_cast<std::size_t>(extent);
        std::vector<float> values = counting(n, first += 10'000);
        near.write(selection, view_of(values, shape));
        write_from(far, device(), selection, values, shape);
        EXPECT_EQ(bytes_of(far.read()), bytes_of(near.read())) << layout.name;
      }
      std::vector<std::string> keys = near.store().list("");
      EXPECT_EQ(slow_->keys(), keys) << layout.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Places, NetworkWrite, testing::Bool());

// Two drivers of one server that know nothing of each other, as two processes have them.
class TwoProcesses : public testing::TestWithParam<int> {
 protected:
  static Store store_at(const std::string& url) {
    HttpOptions options;
    options.backoff = 1ms;
    options.max_backoff = 5ms;
    return Store(make_http_driver(
        test::make_toy_protocol(url, {}), make_http_client(options), HttpAccess::read_write));
  }

  CreateOptions rows(std::int64_t n) const {
    CreateOptions options = rows_of(n, 8);
    options.zarr_format = GetParam();
    if (GetParam() == 2) options.codecs = {zstd};
    return options;
  }

  ObjectServer objects_;
  const Store one_ = store_at(objects_.url());
  const Store two_ = store_at("http://127.1:" + std::to_string(objects_.server().port()));
};

TEST_P(TwoProcesses, LoseNoAppendedRowAndNoAttribute) {
  ASSERT_NE(one_.identity(""), two_.identity(""));
  create_array(one_, "a", rows(0));
  constexpr int kRows = 12;
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      const Array array = open_array(w % 2 == 0 ? one_ : two_, "a");
      for (int i = 0; i < kRows; ++i) {
        std::vector<float> row(64, static_cast<float>(1 + w * kRows + i));
        array.append(view_of(row, {1, 64}), 0, {});
        AttributeChanges changes;
        changes.set = "{\"w" + std::to_string(w * kRows + i) + "\": 1}";
        array.update_attributes(changes);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const Array array = open_array(one_, "a");
  EXPECT_EQ(array.shape(), (Shape{4 * kRows, 64}));
  const Tensor found = array.read();
  const auto* values = reinterpret_cast<const float*>(found.data());
  std::set<float> seen;
  for (std::size_t row = 0; row < 4 * kRows; ++row) seen.insert(values[row * 64]);
  EXPECT_EQ(seen.size(), 4u * kRows);
  EXPECT_EQ(*seen.begin(), 1.0F);
  const std::string attributes = array.attributes_json();
  EXPECT_EQ(std::ranges::count(attributes, ':'), 4 * kRows) << attributes;
}

TEST_P(TwoProcesses, LoseNoPartOfAChunk) {
  create_array(one_, "a", rows(8));
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      const Array array = open_array(w % 2 == 0 ? one_ : two_, "a");
      for (const int row : {w, w + 4}) {
        std::vector<float> values(64, static_cast<float>(1 + row));
        array.write(Selection({slice(row, row + 1)}), view_of(values, {1, 64}));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const Tensor found = open_array(one_, "a").read();
  for (std::size_t row = 0; row < 8; ++row) {
    EXPECT_EQ(reinterpret_cast<const float*>(found.data())[row * 64], static_cast<float>(1 + row));
  }
}

TEST_P(TwoProcesses, MakeAnArrayOnce) {
  for (int round = 0; round < 10; ++round) {
    const std::string path = "g/a" + std::to_string(round);
    std::atomic<int> made{0};
    std::vector<std::thread> writers;
    for (int w = 0; w < 4; ++w) {
      writers.emplace_back([&, w] {
        try {
          create_array(w % 2 == 0 ? one_ : two_, path, rows(w));
          ++made;
        } catch (const Error& error) {
          EXPECT_TRUE(error.code() == ErrorCode::invalid_argument ||
                      error.code() == ErrorCode::conflict)
              << error.what();
        }
      });
    }
    for (std::thread& writer : writers) writer.join();
    EXPECT_EQ(made, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, TwoProcesses, testing::Values(2, 3));

}  // namespace
}  // namespace headrace
