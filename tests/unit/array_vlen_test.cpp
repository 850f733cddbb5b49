// Arrays of variable-length elements through the public interface. A twin of numbers is read and
// written by the same selections: each text says what its number is.

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "conformance/random_selection.h"
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

class VlenArray : public testing::TestWithParam<Layout> {
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
