// Reads and writes through the public interface, compared element by element with an array in
// memory: layouts, selections, faults, threads, fork.

#include "headrace/array.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "base/thread_pool.h"
#include "conformance/error_code.h"
#include "conformance/inject.h"
#include "conformance/random_selection.h"
#include "format/selection.h"
#include "headrace/config.h"
#include "headrace/error.h"
#include "store/store.h"
#include "support/fork.h"

namespace headrace {
namespace {

using test::Faults;
using test::random_selection;
using test::StoreCounts;

struct Layout {
  const char* name;
  Shape shape, chunks, shards;
  std::vector<CodecSpec> codecs;
  int zarr_format = 3;
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

std::vector<Layout> layouts() {
  const CodecSpec little = codec::bytes();
  const CodecSpec big = codec::bytes("big");
  const auto nested =
      codec::sharding({2, 2}, {little, codec::zstd(1)}, {little, codec::crc32c()}, "start");
  return {
      {"plain", {13, 17}, {4, 5}, {}, {little}},
      {"big_endian", {13, 17}, {4, 5}, {}, {big}},
      {"zstd", {13, 17}, {4, 5}, {}, {little, codec::zstd(3, true)}},
      {"blosc", {130, 170}, {64, 128}, {}, {little, codec::blosc("lz4", 5, "shuffle", 0, 4096)}},
      {"gzip_crc", {13, 17}, {13, 6}, {}, {little, codec::gzip(5), codec::crc32c()}},
      {"transposed", {9, 7, 5}, {4, 3, 2}, {}, {codec::transpose({2, 0, 1}), little, codec::lz4()}},
      {"shards_plain", {13, 17}, {2, 3}, {6, 9}, {little}},
      {"shards_of_rows", {13, 17}, {2, 17}, {6, 17}, {little}},
      {"shards_zstd", {13, 17}, {2, 3}, {6, 9}, {little, codec::zstd(1)}},
      {"nested_shards", {21, 17}, {4, 4}, {12, 8}, {nested}},
      {"v2_zstd", {13, 17}, {4, 5}, {}, {little, codec::zstd(1)}, 2},
      {"one_chunk", {5}, {9}, {}, {little, codec::zstd(1)}},
      {"scalar", {}, {}, {}, {little}},
      {"empty", {0, 4}, {2, 2}, {}, {little}},
  };
}

std::vector<float> ramp(std::size_t n, float first = 1) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::size_t elements(const Shape& shape) {
  std::size_t n = 1;
  for (auto extent : shape) n *= static_cast<std::size_t>(extent);
  return n;
}

Array create(const Store& store, const Layout& layout) {
  CreateOptions options;
  options.shape = layout.shape;
  options.dtype = DType::float32;
  options.chunks = layout.chunks;
  options.shards = layout.shards;
  options.codecs = layout.codecs;
  options.zarr_format = layout.zarr_format;
  const float fill = -1;
  options.fill_value.emplace(sizeof fill);
  std::memcpy(options.fill_value->data(), &fill, sizeof fill);
  return create_array(store, "a", options);
}

TensorView view_of(std::vector<float>& values, const Shape& shape) {
  return {values.data(), shape, {}, DType::float32, Device::cpu()};
}

std::vector<float> floats(const Tensor& tensor) {
  const auto* p = static_cast<const float*>(tensor.data());
  return {p, p + tensor.nbytes() / sizeof(float)};
}

// Positions in the array of the result's elements, by plain indexing of the resolved selection.
std::vector<std::size_t> positions(const Selection& selection, const Shape& shape) {
  const ResolvedSelection resolved = resolve_selection(selection, shape, shape);
  Shape counts;
  for (const DimSelection& dim : resolved.dims) counts.push_back(dim.count);
  std::vector<std::size_t> result;
  if (elements(counts) == 0) return result;
  Shape at(shape.size(), 0);
  for (;;) {
    std::size_t position = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      position = position * static_cast<std::size_t>(shape[d]) +
                 static_cast<std::size_t>(resolved.dims[d].index(at[d]));
    }
    result.push_back(position);
    std::size_t d = shape.size();
    while (d-- > 0) {
      if (++at[d] < counts[d]) break;
      at[d] = 0;
    }
    if (d == static_cast<std::size_t>(-1)) return result;
  }
}

class ArrayLayouts : public testing::TestWithParam<Layout> {};

TEST_P(ArrayLayouts, ReadsWhatAnySelectionNames) {
  const Layout& layout = GetParam();
  const Array a = create(memory_store(), layout);
  std::vector<float> truth = ramp(elements(layout.shape));
  a.write({}, view_of(truth, layout.shape));
  EXPECT_EQ(floats(a.read()), truth);
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const Selection selection = random_selection(layout.shape, random);
    std::vector<float> expected;
    for (std::size_t at : positions(selection, layout.shape)) expected.push_back(truth[at]);
    ASSERT_EQ(floats(a.read(selection)), expected) << i;
  }
}

TEST_P(ArrayLayouts, WritesOnlyWhatASelectionNames) {
  const Layout& layout = GetParam();
  const Array a = create(memory_store(), layout);
  std::vector<float> truth(elements(layout.shape), -1);
  std::mt19937 random(2);
  for (int i = 0; i < 100; ++i) {
    const Selection selection = random_selection(layout.shape, random);
    const auto at = positions(selection, layout.shape);
    std::vector<float> data(at.size());
    // The fill value now and then, so that chunks come and go.
    const bool fill = random() % 4 == 0;
    for (std::size_t k = 0; k < at.size(); ++k) {
      // An index named twice takes the same value twice: which write wins is not promised.
      data[k] = fill ? -1 : static_cast<float>(at[k] + 1000 * static_cast<std::size_t>(i));
      truth[at[k]] = data[k];
    }
    a.write(selection, view_of(data, a.result_shape(selection)));
    ASSERT_EQ(floats(a.read()), truth) << i;
  }
  std::int64_t bad = 0;
  a.verify([&](const std::string&, const Error&) { ++bad; });
  EXPECT_EQ(bad, 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts,
                         ArrayLayouts,
                         testing::ValuesIn(layouts()),
                         [](const auto& layout) { return std::string(layout.param.name); });

Layout layout_named(const std::string& name) {
  for (Layout& layout : layouts()) {
    if (name == layout.name) return layout;
  }
  throw std::logic_error("no layout " + name);
}

TEST(Array, ReadsPointsInAnyOrderAndTwice) {
  for (const char* name : {"plain", "zstd", "shards_plain", "nested_shards"}) {
    const Layout layout = layout_named(name);
    const Array a = create(memory_store(), layout);
    std::vector<float> truth = ramp(elements(layout.shape));
    a.write({}, view_of(truth, layout.shape));
    const IndexArray rows{{12, 0, 5, 0, -1, 7}, {3, 2}};
    const IndexArray columns{{16, 0, 3, 0, 2, -17}, {3, 2}};
    const Tensor x = a.read(Selection::coordinate({rows, columns}));
    EXPECT_EQ(x.shape(), (Shape{3, 2}));
    std::vector<float> expected;
    for (std::size_t k = 0; k < 6; ++k) {
      const auto row = (rows.indices[k] + layout.shape[0]) % layout.shape[0];
      const auto column = (columns.indices[k] + layout.shape[1]) % layout.shape[1];
      expected.push_back(truth[static_cast<std::size_t>(row * layout.shape[1] + column)]);
    }
    EXPECT_EQ(floats(x), expected) << name;
  }
}

TEST(Array, ElementsOfNoMemoryAreRefused) {
  CreateOptions options;
  options.shape = {4};
  options.dtype = DType::int32;
  const Array array = create_array(memory_store(), "", options);
  const auto view = [](const Shape& shape) {
    return TensorView{nullptr, shape, {}, DType::int32, Device::cpu()};
  };
  const auto refused = [](const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    }
  };
  refused([&] { array.read_into({}, view({4})); });
  refused([&] { array.read_into_async({}, view({4}), nullptr).get(); });
  refused([&] { array.write({}, view({4})); });
  refused([&] { array.write({}, view({})); });
  refused([&] { array.write_async({}, view({4}), nullptr).get(); });
  refused([&] { array.append(view({4}), 0); });
  EXPECT_EQ(array.shape(), Shape{4});
  array.write({slice(0, 0)}, view({0}));
  array.read_into({slice(0, 0)}, view({0}));
}

TEST(Array, DropsChunksThatBecomeFillValue) {
  const Layout layout = layout_named("shards_zstd");
  const Array a = create(memory_store(), layout);
  std::vector<float> data(elements(layout.shape), 3);
  a.write({}, view_of(data, layout.shape));
  EXPECT_EQ(a.nchunks_initialized(), a.nchunks());
  std::vector<float> fill{-1};
  a.write({slice(0, 6), all}, view_of(fill, {}));
  EXPECT_LT(a.nchunks_initialized(), a.nchunks());
  a.write({}, view_of(fill, {}));
  EXPECT_EQ(a.nchunks_initialized(), 0);
  EXPECT_EQ(a.store().driver().list("a/c/").size(), 0U);
}

TEST(Array, ReadsOnlyTheBytesOfPlainChunksThatAreWanted) {
  auto counts = std::make_shared<StoreCounts>();
  const std::string folder = testing::TempDir() + "/headrace_plain_" + std::to_string(getpid());
  const Store files = open_store(folder, StoreMode::overwrite);
  const Store store(test::make_counting_store(files.shared_driver(), counts));
  const Layout layout{"", {64, 1024}, {64, 1024}, {}, {codec::bytes()}};
  const Array a = create(store, layout);
  std::vector<float> truth = ramp(elements(layout.shape));
  a.write({}, view_of(truth, layout.shape));
  counts->reset();
  EXPECT_EQ(floats(a.read({5, 7})), std::vector<float>{truth[5 * 1024 + 7]});
  EXPECT_EQ(counts->bytes_read, 4);
  counts->reset();
  a.read({slice(3, 5), all});
  EXPECT_EQ(counts->bytes_read, 2 * 1024 * 4);
  EXPECT_EQ(counts->range_reads, 1);
}

TEST(Array, StoresPlainShardsFromTheCallersMemory) {
  auto counts = std::make_shared<StoreCounts>();
  const Store store(test::make_counting_store(memory_store().shared_driver(), counts));
  const Layout layout = layout_named("shards_of_rows");
  const Array a = create(store, layout);
  const auto stored = [&] {
    std::map<std::string, std::string> objects;
    for (const std::string& key : store.driver().list("a/c/")) {
      Buffer object;
      store.driver().get(key, object);
      objects[key] = text_of(object);
    }
    return objects;
  };
  std::vector<float> data = ramp(elements(layout.shape));
  std::fill_n(
      data.begin() + 2 * 17, 2 * 17, -1.0F);  // a chunk of the first shard is all fill value
  counts->reset();
  a.write({}, view_of(data, layout.shape));
  EXPECT_EQ(floats(a.read()), data);
  const auto from_memory = stored();
  EXPECT_EQ(from_memory.size(), 3U);
  // The place of an index at the start, chunks, index; of the first shard, chunks in two pieces.
  EXPECT_EQ(counts->parts, 4 + 3 + 3);

  std::vector<float> apart(2 * data.size());  // the same elements, each second one in memory
  for (std::size_t i = 0; i < data.size(); ++i) apart[2 * i] = data[i];
  TensorView view = view_of(apart, layout.shape);
  view.strides = {2 * 17 * sizeof(float), 2 * sizeof(float)};
  counts->reset();
  a.write({}, view);
  EXPECT_EQ(stored(), from_memory);
  // The last shard reaches over the edge of the array: what lies behind it in the store is kept.
  EXPECT_EQ(counts->parts, 0);

  std::ranges::fill(data, -1.0F);
  a.write({}, view_of(data, layout.shape));
  EXPECT_TRUE(stored().empty());
}

TEST(Array, ReadsAShardIndexOnceWhileTheShardStaysTheSame) {
  auto counts = std::make_shared<StoreCounts>();
  const std::string folder = testing::TempDir() + "/headrace_shard_" + std::to_string(getpid());
  const Store files = open_store(folder, StoreMode::overwrite);
  const Store store(test::make_counting_store(files.shared_driver(), counts));
  const Layout layout = layout_named("shards_zstd");
  const Array a = create(store, layout);
  std::vector<float> truth = ramp(elements(layout.shape));
  a.write({}, view_of(truth, layout.shape));
  a.read({0, 0});
  counts->reset();
  a.read({1, 1});
  EXPECT_EQ(counts->range_reads, 1);
  std::vector<float> other{77};
  a.write({1, 1}, view_of(other, {}));
  EXPECT_EQ(floats(a.read({1, 1})), other);
}

TEST(Array, NamesArrayChunkAndCodecOfABadChunk) {
  for (const char* name : {"zstd", "blosc", "gzip_crc", "shards_zstd"}) {
    const Layout layout = layout_named(name);
    auto faults = std::make_shared<Faults>();
    const Store store(test::make_faulty_store(memory_store().shared_driver(), faults));
    const Array a = create(store, layout);
    std::vector<float> truth = ramp(elements(layout.shape));
    a.write({}, view_of(truth, layout.shape));
    const std::string key = store.driver().list("a/c/").front();
    Buffer bytes;
    store.driver().get(key, bytes);
    faults->shorten(key, bytes.size() - 3);
    std::string message;
    EXPECT_EQ(code_of([&] { a.read(); }, &message), ErrorCode::corrupt) << name;
    EXPECT_NE(message.find("[read] a chunk " + key.substr(2)), std::string::npos) << message;
    std::vector<std::string> bad;
    a.verify([&](const std::string& k, const Error&) { bad.push_back(k); });
    EXPECT_EQ(bad, std::vector<std::string>{key});
  }
}

TEST(Array, KeepsTheOldChunkWhenAWriteFails) {
  auto faults = std::make_shared<Faults>();
  const Store store(test::make_faulty_store(memory_store().shared_driver(), faults));
  const Layout layout = layout_named("shards_zstd");
  const Array a = create(store, layout);
  std::vector<float> truth = ramp(elements(layout.shape));
  a.write({}, view_of(truth, layout.shape));
  faults->limit_space(0);
  std::vector<float> other{5};
  try {
    a.write({slice(0, 3), slice(0, 4)}, view_of(other, {}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_EQ(error.os_error(), ENOSPC);
  }
  faults->clear();
  EXPECT_EQ(floats(a.read()), truth);
}

TEST(Array, ThreadsShareAHandleAndAChunk) {
  const Layout layout = layout_named("shards_zstd");
  const Array a = create(memory_store(), layout);
  std::vector<float> truth(elements(layout.shape), -1);
  std::vector<std::thread> threads;
  // Each thread writes columns of its own: every chunk is shared by several.
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t column = t; column < layout.shape[1]; column += 4) {
        std::vector<float> data =
            ramp(static_cast<std::size_t>(layout.shape[0]), static_cast<float>(100 * column));
        a.write({all, column}, view_of(data, {layout.shape[0]}));
        EXPECT_EQ(floats(a.read({all, column})), data);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::int64_t column = 0; column < layout.shape[1]; ++column) {
    EXPECT_EQ(floats(a.read({all, column})),
              ramp(static_cast<std::size_t>(layout.shape[0]), static_cast<float>(100 * column)));
  }
}

TEST(Array, WorksInAChildOfForkWhileOtherThreadsRead) {
  HEADRACE_SKIP_WHERE_MALLOC_DOES_NOT_SURVIVE_FORK();
  const Layout layout = layout_named("shards_zstd");
  const Array a = create(memory_store(), layout);
  std::vector<float> truth = ramp(elements(layout.shape));
  a.write({}, view_of(truth, layout.shape));
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) a.read();
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // a deadlock ends as a signal
      std::vector<float> one{9};
      bool good = floats(a.read()) == truth;
      a.write({0, 0}, view_of(one, {}));
      good = good && floats(a.read({0, 0})) == one;
      _exit(good ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
  stop = true;
  reader.join();
}

TEST(Array, StopsWhenCancelledOrWhenPollThrows) {
  auto faults = std::make_shared<Faults>();
  const Store store(test::make_faulty_store(memory_store().shared_driver(), faults));
  const Layout layout{"", {400}, {1}, {}, {codec::bytes(), codec::zstd(1)}};
  const Array a = create(store, layout);
  std::vector<float> truth = ramp(400);
  a.write({}, view_of(truth, {400}));
  faults->delay_reads_ms(50);  // longer than a poll is away, on however many processors
  Future<Tensor> future = a.read_async();
  EXPECT_FALSE(future.wait_for(std::chrono::milliseconds(1)));
  EXPECT_TRUE(future.cancel());
  EXPECT_EQ(code_of([&] { future.get(); }), ErrorCode::cancelled);
  ReadOptions options;
  options.poll = [] { throw std::runtime_error("stop"); };
  EXPECT_THROW(a.read({}, options), std::runtime_error);
}

TEST(Array, ResizeRemovesChunksAndAppendGrows) {
  const Layout layout = layout_named("zstd");
  const Array a = create(memory_store(), layout);
  std::vector<float> truth = ramp(elements(layout.shape));
  a.write({}, view_of(truth, layout.shape));
  a.resize({4, 17});
  EXPECT_EQ(a.nchunks_initialized(), 4);
  a.resize({13, 17});
  EXPECT_EQ(floats(a.read({slice(4, 13), all})), std::vector<float>(9 * 17, -1));
  std::vector<float> more = ramp(2 * 17);
  EXPECT_EQ(a.append(view_of(more, {2, 17})), (Shape{15, 17}));
  EXPECT_EQ(floats(a.read({slice(13, 15), all})), more);
  EXPECT_EQ(code_of([&] { a.append(view_of(more, {17, 2})); }), ErrorCode::invalid_argument);
}

// What another handle has grown meanwhile is not cut off.
TEST(Array, ResizeKeepsTheExtentsThatTheStoreHas) {
  const Store store = memory_store();
  const Array array = create(store, {"a", {6, 4}, {2, 4}, {}, {codec::bytes()}});
  const Array other = open_array(store, "a");
  std::vector<float> more = ramp(3 * 4);
  other.append(view_of(more, {3, 4}));
  array.resize({kKeepExtent, 5});
  EXPECT_EQ(array.shape(), (Shape{9, 5}));
  EXPECT_EQ(floats(array.read({slice(6, 9), slice(0, 4)})), more);
  EXPECT_EQ(code_of([&] { array.resize({-1, 5}); }), ErrorCode::invalid_argument);
}

// The shape that a read was asked for is the one it reads, whatever another thread does meanwhile.
TEST(Array, ReadsThePlaceOfTheShapeItWasAskedFor) {
  const Store store = memory_store();
  const Array array = create(store, {"a", {6, 4}, {2, 4}, {}, {codec::bytes()}});
  std::vector<float> data = ramp(24);
  array.write({}, view_of(data, {6, 4}));
  std::vector<float> out;
  int places = 0;
  const auto place = [&](const Shape& shape) {
    ++places;
    out.assign(elements(shape), 0);
    array.resize({2, 4});
    return view_of(out, shape);
  };
  array.read_placed({slice(1, 6)}, place);
  EXPECT_EQ(places, 1);
  std::vector<float> wanted(20, -1);  // the fill value where chunks are gone
  std::copy_n(data.begin() + 4, 4, wanted.begin());
  EXPECT_EQ(out, wanted);

  const ReadRequest request{array, {slice(1, 2)}, {}, place};
  read_many({request, request});
  EXPECT_EQ(places, 3);
  EXPECT_EQ(out, (std::vector<float>{5, 6, 7, 8}));

  const auto fail = [](const Shape&) -> TensorView { throw std::runtime_error("no room"); };
  EXPECT_THROW(array.read_placed({}, fail), std::runtime_error);
  const auto wrong = [&](const Shape&) { return view_of(out, {1, 4}); };
  EXPECT_THROW(array.read_placed({}, wrong), Error);
}

TEST(Array, RefusesWhatDoesNotFit) {
  const Layout layout = layout_named("plain");
  const Store store = memory_store();
  const Array a = create(store, layout);
  std::vector<float> data(13 * 17);
  EXPECT_EQ(code_of([&] {
              a.read_into({}, view_of(data, {17, 13}));
            }),
            ErrorCode::invalid_argument);
  TensorView doubles = view_of(data, {13, 17});
  doubles.dtype = DType::float64;
  EXPECT_EQ(code_of([&] { a.read_into({}, doubles); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { a.read({13, 0}); }), ErrorCode::out_of_bounds);
  EXPECT_EQ(code_of([&] {
              a.write({all, slice(0, 3)}, view_of(data, {13, 17}));
            }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { a.to(Device::cuda(99)).read(); }), ErrorCode::device);
  const Array reader = open_array(store, "a", {.read_only = true});
  EXPECT_EQ(code_of([&] { reader.write({}, view_of(data, layout.shape)); }),
            ErrorCode::permission_denied);
}

}  // namespace
}  // namespace headrace
