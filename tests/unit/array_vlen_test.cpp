// Arrays of variable-length elements through the public interface. A twin of numbers is read and
// written by the same selections: each text says what its number is.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "conformance/random_selection.h"
#include "device_kit.h"
#include "engine/read/ragged.h"
#include "headrace/headrace.h"
#include "store/store.h"

namespace headrace {
namespace {

using test::random_selection;

std::string text_of_number(std::int64_t number) {
  return number == 0
             ? ""
             : std::string(static_cast<std::size_t>(number % 23), 'x') + std::to_string(number);
}

// Elements that say `numbers`, and what they point at.
struct Elements {
  explicit Elements(const std::vector<std::int64_t>& numbers) {
    for (const std::int64_t number : numbers) texts.push_back(text_of_number(number));
    for (const std::string& text : texts) {
      elements.push_back({reinterpret_cast<const std::byte*>(text.data()), text.size()});
    }
  }
  TensorView view(const Shape& shape) { return {elements.data(), shape, {}, DType::string(), {}}; }

  std::vector<std::string> texts;
  std::vector<VlenElement> elements;
};

std::vector<std::string> texts_of(const Tensor& tensor) {
  const auto* elements = static_cast<const VlenElement*>(tensor.data());
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < tensor.view().size(); ++i) texts.emplace_back(elements[i].text());
  return texts;
}

std::vector<std::string> texts_of_numbers(const Tensor& tensor) {
  const auto* numbers = static_cast<const std::int64_t*>(tensor.data());
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < tensor.view().size(); ++i)
    texts.push_back(text_of_number(numbers[i]));
  return texts;
}

std::vector<std::string> texts_of(const RaggedTensor& ragged) {
  const std::size_t n = TensorView{nullptr, ragged.shape, {}, {}, {}}.size();
  const auto* offsets = static_cast<const std::int64_t*>(ragged.offsets.data());
  const std::string_view values(static_cast<const char*>(ragged.values.data()),
                                ragged.values.nbytes());
  EXPECT_EQ(ragged.offsets.shape(), (Shape{static_cast<std::int64_t>(n) + 1}));
  EXPECT_EQ(offsets[0], 0);
  EXPECT_EQ(offsets[n], static_cast<std::int64_t>(values.size()));
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < n; ++i) {
    const auto begin = static_cast<std::size_t>(offsets[i]);
    texts.emplace_back(values.substr(begin, static_cast<std::size_t>(offsets[i + 1]) - begin));
  }
  return texts;
}

// Points, or whatever random_selection gives.
Selection any_selection(const Shape& shape, std::mt19937& random) {
  if (shape.empty() || random() % 4 > 0) return random_selection(shape, random);
  std::vector<SelectionItem> items;
  for (const std::int64_t extent : shape) {
    IndexArray indices{{}, {5}};
    for (int i = 0; i < 5; ++i) {
      indices.indices.push_back(
          static_cast<std::int64_t>(random() % static_cast<unsigned>(extent)));
    }
    items.emplace_back(std::move(indices));
  }
  return Selection::coordinate(std::move(items));
}

struct Layout {
  const char* name;
  Shape shape, chunks, shards;
  std::vector<CodecSpec> codecs;
  int zarr_format = 3;
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

const CodecSpec kUtf8 = {"vlen-utf8", ""};

class VlenArray : public test::DeviceTest, public testing::WithParamInterface<Layout> {
 protected:
  Array create(const DType& dtype) {
    const Layout& layout = GetParam();
    CreateOptions options;
    options.shape = layout.shape;
    options.chunks = layout.chunks;
    options.shards = layout.shards;
    options.dtype = dtype;
    options.zarr_format = layout.zarr_format;
    if (dtype.variable_length()) options.codecs = layout.codecs;
    return create_array(store_, dtype.name(), options);
  }

  Store store_ = memory_store();
  Array texts_ = create(DType::string());
  Array numbers_ = create(DType::int64);
};

std::vector<std::int64_t> counted(std::size_t n, std::int64_t first) {
  std::vector<std::int64_t> numbers(n);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

TEST_P(VlenArray, SelectionsAreThoseOfNumbers) {
  std::mt19937 random(7);
  EXPECT_EQ(texts_of(texts_.read()), texts_of_numbers(numbers_.read()));  // nothing but fill values
  for (int i = 0; i < 60; ++i) {
    const Selection written = any_selection(texts_.shape(), random);
    const Shape shape = texts_.result_shape(written);
    auto numbers = counted(TensorView{nullptr, shape, {}, {}, {}}.size(), 1 + 1000 * i);
    texts_.write(written, Elements(numbers).view(shape));
    numbers_.write(written, {numbers.data(), shape, {}, DType::int64, {}});

    const Selection read = any_selection(texts_.shape(), random);
    const Tensor got = texts_.read(read);
    ASSERT_EQ(got.shape(), texts_.result_shape(read));
    ASSERT_EQ(texts_of(got), texts_of_numbers(numbers_.read(read)));
    const RaggedTensor ragged = texts_.read_ragged(read);
    ASSERT_EQ(ragged.shape, got.shape());
    ASSERT_EQ(ragged.dtype, DType::string());
    ASSERT_EQ(ragged.values.dtype(), DType::uint8);
    ASSERT_EQ(texts_of(ragged), texts_of(got));
    const RaggedTensor there = texts_.to(Device::simt()).read_ragged(read);
    ASSERT_EQ(there.offsets.device(), Device::simt());
    ASSERT_EQ(there.values.device(), Device::simt());
    ASSERT_EQ(texts_of(there), texts_of(got));  // memory of simt is the host's
  }
  EXPECT_EQ(texts_.verify([](const std::string& key, const Error& e) {
    ADD_FAILURE() << key << e.what();
  }) > 0,
            texts_.nchunks_initialized() > 0);
}

TEST_P(VlenArray, ThreadsReadWhatThreadsWrite) {
  const Shape shape = texts_.shape();
  const std::size_t size = TensorView{nullptr, shape, {}, {}, {}}.size();
  Elements elements(counted(size, 1));
  texts_.write({}, elements.view(shape));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        if (t == 0) texts_.write({}, elements.view(shape));
        if (texts_of(texts_.read()) != elements.texts) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts,
    VlenArray,
    testing::Values(
        Layout{"plain", {13, 17}, {4, 5}, {}, {kUtf8}},
        Layout{"zstd", {13, 17}, {4, 5}, {}, {kUtf8, codec::zstd(3)}},
        Layout{"lz4_checksums",
               {13, 17},
               {4, 5},
               {},
               {kUtf8, codec::crc32c(), {"numcodecs.lz4", ""}, codec::crc32c()}},
        Layout{"transposed_zstd",
               {9, 7, 5},
               {4, 3, 2},
               {},
               {codec::transpose({2, 0, 1}), kUtf8, codec::zstd(1)}},
        Layout{"compressor_only", {300}, {32}, {}, {codec::gzip(1), codec::crc32c()}},
        Layout{"transposed", {9, 7, 5}, {4, 3, 2}, {}, {codec::transpose({2, 0, 1}), kUtf8}},
        Layout{"shards", {13, 17}, {2, 3}, {6, 9}, {kUtf8, codec::zstd(1)}},
        Layout{"nested_shards",
               {21, 17},
               {4, 4},
               {12, 8},
               {codec::sharding({2, 2}, {kUtf8, codec::blosc()})}},
        Layout{"v2", {13, 17}, {4, 5}, {}, {kUtf8, codec::blosc()}, 2},
        Layout{"scalar", {}, {}, {}, {kUtf8}}),
    [](const auto& test) { return std::string(test.param.name); });

Array texts(const Store& store, std::optional<std::string> fill = {}) {
  CreateOptions options;
  options.shape = {10};
  options.chunks = {4};
  options.dtype = DType::string();
  if (fill) {
    const ConstBytes bytes = bytes_of(*fill);
    options.fill_value = std::vector<std::byte>(bytes.begin(), bytes.end());
  }
  return create_array(store, "t", options);
}

TEST(VlenFill, MissingChunksAndChunksOfNothingElse) {
  const Store store = memory_store();
  const Array array = texts(store, "\xc3\xbc and more than fifteen bytes");
  const std::string fill = "\xc3\xbc and more than fifteen bytes";
  EXPECT_EQ(texts_of(array.read()), std::vector<std::string>(10, fill));
  EXPECT_EQ(text_of(*open_array(store, "t").fill_value()), fill);
  Elements other(counted(1, 5));
  array.write({slice(0, 1)}, other.view({1}));
  EXPECT_EQ(array.nchunks_initialized(), 1);
  VlenElement element{reinterpret_cast<const std::byte*>(fill.data()), fill.size()};
  array.write({slice(0, 1)}, {&element, {1}, {}, DType::string(), {}});
  EXPECT_EQ(array.nchunks_initialized(), 0);
}

// A result outlives its array and its store, and the elements that nobody wanted are not kept.
TEST(VlenResult, OwnsWhatItsElementsPointAt) {
  Tensor result;
  {
    const Store store = memory_store();
    const Array array = texts(store, "missing");
    Elements elements(counted(6, 100));
    array.write({slice(0, 6)}, elements.view({6}));
    result = array.read({slice(5, 9, 3)});
  }
  EXPECT_EQ(texts_of(result), (std::vector<std::string>{text_of_number(105), "missing"}));
}

TEST(VlenResult, IsOfTheHostOnly) {
  const Array array = texts(memory_store());
  const auto code_of = [](auto call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::io;
  };
  EXPECT_EQ(code_of([&] { array.to(Device::simt()).read(); }), ErrorCode::unsupported);
  std::vector<VlenElement> room(10);
  const TensorView view{room.data(), {10}, {}, DType::string(), {}};
  EXPECT_EQ(code_of([&] { array.read_into({}, view); }), ErrorCode::unsupported);
  EXPECT_EQ(code_of([&] { copy(view, Device::simt()); }), ErrorCode::unsupported);
  EXPECT_EQ(code_of([&] { static_cast<void>(array.read().to_dlpack()); }), ErrorCode::unsupported);
}

ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::io;
}

RaggedTensor packed(const std::vector<VlenElement>& elements, const DType& dtype) {
  const ReadOptions options;
  Request request(options, nullptr);
  auto* const data = const_cast<VlenElement*>(elements.data());
  return pack_ragged({data, {static_cast<std::int64_t>(elements.size())}, {}, dtype, {}}, request);
}

// More elements than a thread counts at a time, more bytes than it copies; elements longer than
// that between many of no bytes.
TEST(Ragged, PacksInTurnsOfManyThreads) {
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < 200'000; ++i) texts.push_back(text_of_number(i % 3 == 0 ? 0 : i));
  texts[70'000] = std::string((std::size_t{5} << 20) + 7, 'a');
  texts[70'001] = std::string(std::size_t{1} << 20, 'b');
  std::vector<VlenElement> elements;
  for (const std::string& text : texts)
    elements.push_back({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  const RaggedTensor ragged = packed(elements, DType::string());
  EXPECT_TRUE(texts_of(ragged) == texts);
}

TEST(Ragged, ItemsOfArraysAreWholeAcrossTurns) {
  const DType dtype = DType::array(DType::raw(7));  // does not divide what a thread copies
  const std::string bytes(7 * 400'000, 'x');
  const auto* const data = reinterpret_cast<const std::byte*>(bytes.data());
  const RaggedTensor ragged = packed({{data, 7}, {nullptr, 0}, {data, bytes.size()}}, dtype);
  EXPECT_EQ(ragged.values.shape(), (Shape{400'001}));
  EXPECT_EQ(ragged.values.dtype(), DType::raw(7));
  const auto* const offsets = static_cast<const std::int64_t*>(ragged.offsets.data());
  EXPECT_EQ(std::vector(offsets, offsets + 4), (std::vector<std::int64_t>{0, 1, 1, 400'001}));
  const std::string_view values(static_cast<const char*>(ragged.values.data()),
                                ragged.values.nbytes());
  EXPECT_TRUE(values == std::string(7 * 400'001, 'x'));
}

TEST(Ragged, SizesThatNothingHoldsAreErrors) {
  const std::size_t most = std::size_t{1} << 62;
  const std::byte byte{};
  const auto code = [&](const std::vector<VlenElement>& elements, const DType& dtype) {
    return code_of([&] { packed(elements, dtype); });
  };
  EXPECT_EQ(code({{&byte, most}, {&byte, most}}, DType::bytes()), ErrorCode::out_of_memory);
  EXPECT_EQ(code({{&byte, most}}, DType::bytes()), ErrorCode::out_of_memory);
  EXPECT_EQ(code({{&byte, ~std::size_t{0}}}, DType::bytes()), ErrorCode::out_of_memory);
  // Of two turns.
  std::vector<VlenElement> elements(70'000);
  elements.front().nbytes = elements.back().nbytes = most;
  EXPECT_EQ(code(elements, DType::bytes()), ErrorCode::out_of_memory);
  EXPECT_EQ(code({{&byte, 3}}, DType::array(DType::int16)), ErrorCode::corrupt);
}

TEST(Ragged, ElementsSelectedAgainAndAgainNeedTheirBytesEachTime) {
  const Array array = texts(memory_store(), std::string(std::size_t{64} << 20, 'x'));
  IndexArray indices{std::vector<std::int64_t>(std::size_t{1} << 22), {1 << 22}};
  const Selection selection = Selection::coordinate({std::move(indices)});
  EXPECT_EQ(code_of([&] { array.read_ragged(selection); }), ErrorCode::out_of_memory);  // 2^48
  EXPECT_EQ(texts_of(array.read_ragged({slice(0, 0)})), std::vector<std::string>{});
}

// Of devices: where the host must not help, where it has to, and what is damaged.
class RaggedOnDevice : public test::DeviceTest {
 protected:
  Array create(const DType& dtype,
               std::vector<CodecSpec> codecs,
               std::int64_t n = 5000,
               const char* path = "r") {
    CreateOptions options;
    options.shape = {n};
    options.chunks = {700};
    options.dtype = dtype;
    options.codecs = std::move(codecs);
    const ConstBytes fill = bytes_of("what is missing");
    options.fill_value = std::vector<std::byte>(fill.begin(), fill.end());
    return create_array(store_, path, options);
  }

  // The first `n` elements: they say the numbers from `first` on.
  static void write(const Array& array, std::int64_t n, std::int64_t first) {
    Elements elements(counted(static_cast<std::size_t>(n), first));
    array.write({slice(0, n)}, {elements.elements.data(), {n}, {}, array.dtype(), {}});
  }
  // All but the last three chunks.
  static void fill(const Array& array) { write(array, 3500, 1); }

  Buffer stored(const char* key) const {
    Buffer bytes;
    EXPECT_TRUE(store_.driver().get(key, bytes));
    return bytes;
  }

  static RaggedTensor read_there(const Array& array, const std::string& forced) {
    ReadOptions options;
    if (!forced.empty()) options.implementations = {{forced, "headrace-simt"}};
    return array.to(Device::simt()).read_ragged({}, options);
  }

  const Store store_ = memory_store();
};

TEST_F(RaggedOnDevice, DecodesThere) {
  const std::vector<std::vector<CodecSpec>> chains = {
      {codec::zstd(3)},
      {codec::blosc()},
      {{"numcodecs.lz4", ""}},
      {codec::crc32c(), codec::zstd(1), codec::crc32c()},
  };
  for (const auto& [dtype, name] :
       {std::pair(DType::string(), "vlen-utf8"), std::pair(DType::bytes(), "vlen-bytes")}) {
    for (std::vector<CodecSpec> codecs : chains) {
      codecs.insert(codecs.begin(), {name, ""});
      const Array array = create(dtype, codecs);
      fill(array);
      EXPECT_EQ(texts_of(read_there(array, name)), texts_of(array.read_ragged())) << codecs[1].name;
      store_.driver().erase_prefix("r/");
    }
  }
}

TEST_F(RaggedOnDevice, SaysWhatOnlyTheHostDecodes) {
  for (std::vector<CodecSpec> codecs : std::vector<std::vector<CodecSpec>>{
           {kUtf8}, {kUtf8, codec::gzip(1)}, {kUtf8, codec::zstd(1), codec::zstd(1)}}) {
    const Array array = create(DType::string(), codecs);
    fill(array);
    EXPECT_EQ(code_of([&] { read_there(array, "vlen-utf8"); }), ErrorCode::unsupported);
    EXPECT_EQ(texts_of(read_there(array, "")), texts_of(array.read_ragged()));
    store_.driver().erase_prefix("r/");
  }
}

// Frames of streaming writers have no size.
TEST_F(RaggedOnDevice, AFrameWithoutItsSizeIsTheHosts) {
  const Array array = create(DType::string(), {kUtf8, codec::zstd(1)});
  fill(array);
  write(create(DType::string(), {kUtf8}, 700, "plain"), 700, 9);
  const Buffer bytes = stored("plain/c/0");
  // Window descriptor for 128 KiB, no size; one raw block, the last.
  std::string frame("\x28\xb5\x2f\xfd\x00\x38", 6);
  const std::size_t header = bytes.size() << 3 | 1;
  for (int i = 0; i < 3; ++i) frame.push_back(static_cast<char>(header >> 8 * i));
  frame.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  store_.driver().set("r/c/1", bytes_of(frame));
  EXPECT_EQ(code_of([&] { read_there(array, "vlen-utf8"); }), ErrorCode::unsupported);
  const auto expected = texts_of(array.read_ragged());
  EXPECT_EQ(expected[700], text_of_number(9));
  EXPECT_EQ(texts_of(read_there(array, "")), expected);
}

TEST_F(RaggedOnDevice, JudgesDamageAsTheHostDoes) {
  for (const CodecSpec& codec : {codec::zstd(1), codec::blosc(), CodecSpec{"numcodecs.lz4", ""}}) {
    const Array array = create(DType::string(), {kUtf8, codec}, 700);
    write(array, 700, 1);
    const Buffer bytes = stored("r/c/0");
    const std::string good(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::mt19937 random(6);
    for (int i = 0; i < 150; ++i) {
      std::string damaged = good;
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
      if (i % 10 == 0) damaged.resize(random() % damaged.size());
      store_.driver().set("r/c/0", bytes_of(damaged));
      const auto judge = [&](auto read) {
        try {
          return std::pair(true, texts_of(read()));
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
          return std::pair(false, std::vector<std::string>());
        }
      };
      const auto here = judge([&] { return array.read_ragged(); });
      const auto there = judge([&] { return read_there(array, ""); });
      // Of zstd's bits that mean nothing and are always zero the kernels see that they are.
      if (there.first || codec.name != "zstd") {
        EXPECT_EQ(there, here) << codec.name << ' ' << i;
      }
    }
    store_.driver().erase_prefix("r/");
  }
}

// A block of lz4 that says it gives less than the checksum behind it takes.
TEST_F(RaggedOnDevice, AChecksumHasToFit) {
  const Array array = create(DType::string(), {kUtf8, codec::crc32c(), {"numcodecs.lz4", ""}});
  for (const int n : {0, 1, 3, 4, 7}) {
    std::string chunk(4, '\0');
    chunk[0] = static_cast<char>(n);
    chunk.push_back(static_cast<char>(n << 4));
    chunk.append(static_cast<std::size_t>(n), 'x');
    store_.driver().set("r/c/0", bytes_of(chunk));
    EXPECT_EQ(code_of([&] { array.read_ragged(); }), ErrorCode::corrupt) << n;
    EXPECT_EQ(code_of([&] { read_there(array, "vlen-utf8"); }), ErrorCode::corrupt) << n;
  }
}

TEST(Ragged, OtherElementsAreRefused) {
  const Store store = memory_store();
  const Array array = texts(store);
  CreateOptions options;
  options.shape = {4};
  options.dtype = DType::float32;
  const Array numbers = create_array(store, "n", options);
  EXPECT_EQ(code_of([&] { numbers.read_ragged(); }), ErrorCode::invalid_argument);
  store.driver().set("t/c/1", bytes_of("no vlen"));
  EXPECT_EQ(code_of([&] { array.read_ragged(); }), ErrorCode::corrupt);
}

TEST(Ragged, PollEndsIt) {
  const Array array = texts(memory_store(), "missing");
  ReadOptions options;
  options.poll = [] { throw Error(ErrorCode::cancelled, "enough"); };
  IndexArray indices{std::vector<std::int64_t>(std::size_t{1} << 20), {1 << 20}};
  const Selection selection = Selection::coordinate({std::move(indices)});
  EXPECT_EQ(code_of([&] { array.read_ragged(selection, options); }), ErrorCode::cancelled);
}

TEST(VlenArrayErrors, NameTheChunk) {
  const Store store = memory_store();
  const Array array = texts(store);
  store.driver().set("t/c/1", bytes_of("no vlen"));
  try {
    array.read();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_NE(std::string(error.what()).find("t chunk c/1"), std::string::npos) << error.what();
  }
  std::vector<std::string> bad;
  array.verify([&](const std::string& key, const Error&) { bad.push_back(key); });
  EXPECT_EQ(bad, (std::vector<std::string>{"t/c/1"}));
}

}  // namespace
}  // namespace headrace
