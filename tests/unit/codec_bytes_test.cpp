#include <gtest/gtest.h>

#include <numeric>

#include "codec/chain.h"
#include "tests/conformance/codec_kit.h"

namespace headrace {
namespace {

using kit::Bytes;

CodecPtr make_array_codec(const CodecSpec& spec, const DType& dtype, const Shape& shape) {
  return kit::make(spec, {}, dtype, shape, CodecPosition::before_bytes);
}

bool is_identity(const CodecSpec& spec, const DType& dtype, const Shape& shape) {
  return make_array_codec(spec, dtype, shape)->transform() == Transform::identity;
}

TEST(BytesCodec, SwapsByTheUnitsOfTheType) {
  const Bytes data = kit::noise(48);
  const auto swapped = [&](const DType& dtype) {
    const CodecPtr codec = make_array_codec(codec::bytes("big"), dtype, {});
    return kit::encode(*codec, data);
  };
  const auto expected = [&](std::size_t unit) {
    Bytes out = data;
    for (std::size_t i = 0; i < out.size(); i += unit) {
      std::reverse(out.begin() + static_cast<long>(i), out.begin() + static_cast<long>(i + unit));
    }
    return out;
  };
  EXPECT_EQ(swapped(DType::uint8), expected(1));
  EXPECT_EQ(swapped(DType::int16), expected(2));
  EXPECT_EQ(swapped(DType::float32), expected(4));
  EXPECT_EQ(swapped(DType::complex64), expected(4));
  EXPECT_EQ(swapped(DType::complex128), expected(8));
  EXPECT_EQ(swapped(DType::fixed_utf32(3)), expected(4));
}

TEST(BytesCodec, RoundTrips) {
  for (const char* endian : {"little", "big"}) {
    const CodecPtr codec = make_array_codec(codec::bytes(endian), DType::float64, {});
    for (const Bytes& data : kit::samples(8)) kit::check_round_trip(*codec, data);
  }
}

TEST(BytesCodec, NeedsEndianForWideTypes) {
  EXPECT_TRUE(is_identity({"bytes", ""}, DType::uint8, {}));
  EXPECT_THROW(make_array_codec({"bytes", ""}, DType::int16, {}), Error);
  EXPECT_THROW(make_array_codec({"bytes", R"({"endian": "middle"})"}, DType::int16, {}), Error);
}

// The encoded element at p[order] is the chunk's at p.
Bytes transposed(ConstBytes data,
                 const Shape& shape,
                 const std::vector<int>& order,
                 std::size_t size) {
  const std::size_t ndim = shape.size();
  Shape out_shape;
  for (int d : order) out_shape.push_back(shape[static_cast<std::size_t>(d)]);
  Bytes out(data.size());
  std::vector<std::int64_t> at(ndim, 0);
  for (std::size_t i = 0; i < data.size() / size; ++i) {
    std::size_t rest = i;
    for (std::size_t d = ndim; d-- > 0;) {
      at[d] = static_cast<std::int64_t>(rest) % shape[d];
      rest /= static_cast<std::size_t>(shape[d]);
    }
    std::size_t to = 0;
    for (std::size_t d = 0; d < ndim; ++d) {
      to = to * static_cast<std::size_t>(out_shape[d]) +
           static_cast<std::size_t>(at[static_cast<std::size_t>(order[d])]);
    }
    std::memcpy(out.data() + to * size, data.data() + i * size, size);
  }
  return out;
}

TEST(Transpose, AgainstTheDefinition) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    Shape shape;
    const std::size_t ndim = 1 + random() % 5;
    for (std::size_t d = 0; d < ndim; ++d) shape.push_back(1 + random() % (ndim > 3 ? 6 : 40));
    std::vector<int> order(ndim);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    const DType dtype = std::array{DType::uint8,
                                   DType::int16,
                                   DType::float32,
                                   DType::float64,
                                   DType::complex128,
                                   DType::raw(3)}[random() % 6];
    const CodecPtr codec = make_array_codec(codec::transpose(order), dtype, shape);
    const ChunkSpec in{dtype, shape, {}};
    const Bytes data = kit::noise(in.nbytes(), random());
    const Bytes expected = transposed(data, shape, order, dtype.itemsize());
    ASSERT_EQ(kit::encode(*codec, data), expected);
    ASSERT_EQ(codec->transform() == Transform::identity, expected == data) << "round " << round;
    kit::check_round_trip(*codec, data);
  }
}

TEST(Transpose, LettersAndMistakes) {
  const Shape shape{2, 3};
  const CodecPtr f = make_array_codec({"transpose", R"({"order": "F"})"}, DType::uint8, shape);
  const Bytes data = kit::noise(6);
  EXPECT_EQ(kit::encode(*f, data), transposed(data, shape, {1, 0}, 1));
  EXPECT_TRUE(is_identity({"transpose", R"({"order": "C"})"}, DType::uint8, shape));
  for (const char* bad : {"[0]", "[0, 0]", "[0, 2]", "[-1, 0]", "\"K\"", "3", "[0, 1, 2]"}) {
    const CodecSpec spec{"transpose", std::string(R"({"order": )") + bad + "}"};
    EXPECT_THROW(make_array_codec(spec, DType::uint8, shape), Error) << bad;
  }
  EXPECT_TRUE(is_identity({"transpose", R"({"order": []})"}, DType::uint8, {}));
}

}  // namespace
}  // namespace headrace
