#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "codec/chain.h"
#include "codec/elements.h"
#include "tests/conformance/codec_kit.h"

namespace headrace {
namespace {

using kit::Bytes;

template <typename T>
Bytes as_bytes(const std::vector<T>& values) {
  Bytes out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

TEST(Filters, DeltaRoundTrips) {
  for (const char* dtype : {"<i4", ">i4", "<u4", "|u1", "<i8", "<M8[ns]"}) {
    const CodecPtr codec =
        kit::make({"numcodecs.delta", std::string(R"({"dtype": ")") + dtype + "\"}"});
    for (const Bytes& data : kit::samples(8)) kit::check_round_trip(*codec, data);
  }
}

TEST(Filters, PackBitsRoundTrips) {
  const CodecPtr codec = kit::make({"numcodecs.packbits", ""}, {}, DType::boolean);
  for (std::size_t n = 0; n < 70; ++n) {
    Bytes data = kit::noise(n);
    for (std::byte& b : data) b &= std::byte{1};
    kit::check_round_trip(*codec, data);
  }
}

TEST(Filters, Hostile) {
  const CodecSpec specs[] = {
      {"delta", R"({"dtype": "<i4", "astype": "<i2"})"},
      {"fixedscaleoffset", R"({"offset": 1, "scale": 3, "dtype": "<f4", "astype": "<i2"})"},
      {"quantize", R"({"digits": 1, "dtype": "<f8", "astype": "<f4"})"},
      {"astype", R"({"encode_dtype": "<f2", "decode_dtype": "|u1"})"},
  };
  for (const CodecSpec& spec : specs) {
    const CodecPtr codec = kit::make(spec);
    kit::check_hostile(*codec, kit::noise(240), true, 500);
    // Any bit pattern may be cast.
    Buffer out;
    EXPECT_NO_THROW(codec->decode_unknown(kit::noise(480), 4096, out));
    EXPECT_EQ(codec->encoded_nbytes(out.size()), 480u);
  }
  const CodecPtr packbits = kit::make({"packbits", ""}, {}, DType::boolean);
  kit::check_hostile(*packbits, kit::repetitive(77));
}

// In front of `bytes` filters take the array: chains as zarr-python writes them in v3.
TEST(Filters, AsArrayCodecs) {
  std::vector<double> values(6 * 8);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 280 + std::sin(i * 0.1);
  const Bytes data = as_bytes(values);
  const auto through = [&](const std::vector<CodecSpec>& specs) {
    const CodecChain chain(specs, {DType::float64, {6, 8}, {}}, {});
    Buffer encoded;
    chain.encode(data, encoded);
    Bytes out(data.size());
    chain.decode(encoded, out, {});
    std::vector<double> back(values.size());
    std::memcpy(back.data(), out.data(), out.size());
    double worst = 0;
    for (std::size_t i = 0; i < back.size(); ++i)
      worst = std::max(worst, std::abs(back[i] - values[i]));
    return std::pair(worst, encoded.size());
  };
  const CodecSpec scale{"numcodecs.fixedscaleoffset",
                        R"({"offset": 280, "scale": 1000, "dtype": "<f8", "astype": "<i2"})"};
  const CodecSpec delta{"numcodecs.delta", R"({"dtype": "<i2"})"};
  EXPECT_LE(through({scale, codec::bytes()}).first, 0.0005);
  EXPECT_EQ(through({scale, codec::bytes()}).second, 96u);
  EXPECT_LE(
      through({scale, delta, codec::transpose({1, 0}), codec::bytes("big"), codec::zstd()}).first,
      0.0005);
  EXPECT_LE(through({{"bitround", R"({"keepbits": 20})"}, codec::bytes()}).first, 280 * 0x1p-20);
  const CodecSpec astype{"numcodecs.astype",
                         R"({"encode_dtype": "float32", "decode_dtype": "float64"})"};
  EXPECT_LE(through({astype, codec::bytes("big")}).first, 280 * 0x1p-24);
  EXPECT_EQ(through({astype, codec::bytes("big")}).second, 192u);
  // Another width, another order of bytes, no type at all.
  const CodecSpec mistakes[] = {{"numcodecs.delta", R"({"dtype": "<f4"})"},
                                {"numcodecs.delta", R"({"dtype": ">f8"})"},
                                {"numcodecs.delta", R"({"dtype": "<U3"})"},
                                {"numcodecs.quantize", R"({"digits": 1, "dtype": "<i8"})"},
                                {"numcodecs.fixedscaleoffset", R"({"offset": 1})"},
                                {"bitround", R"({"keepbits": 53})"},
                                {"packbits", ""}};
  for (const CodecSpec& spec : mistakes) {
    EXPECT_THROW(through({spec, codec::bytes()}), Error) << spec.name << spec.configuration;
  }
}

// The fill value of missing inner chunks goes through the filters in front of the shard.
TEST(Filters, FillValueInFrontOfAShard) {
  const double fill = 290;
  const auto* raw = reinterpret_cast<const std::byte*>(&fill);
  const auto element = std::make_shared<std::vector<std::byte>>(raw, raw + 8);
  const CodecSpec scale{"numcodecs.fixedscaleoffset",
                        R"({"offset": 280, "scale": 100, "dtype": "<f8", "astype": "<i2"})"};
  const CodecChain chain(
      {scale, codec::sharding({2}, {codec::bytes()})}, {DType::float64, {4}, element}, {});
  const Bytes data = as_bytes(std::vector<double>{290, 290, 281, 290});
  Buffer encoded;
  chain.encode(data, encoded);
  EXPECT_EQ(encoded.size(), 4u + 2 * 16 + 4);  // one inner chunk of two int16, the index
  Bytes out(data.size());
  chain.decode(encoded, out, {});
  EXPECT_EQ(out, data);
}

TEST(Half, EveryValueThroughFloatAndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = load_element<Half>(reinterpret_cast<const std::byte*>(&bits));
    const float v = half;
    if (std::isnan(v)) {
      ASSERT_EQ(bits & 0x7C00, 0x7C00u);
      ASSERT_NE(bits & 0x03FF, 0u);
      ASSERT_TRUE(std::isnan(static_cast<float>(Half(v))));
      continue;
    }
    const Half back(v);
    std::uint16_t again = 0;
    std::memcpy(&again, &back, 2);
    ASSERT_EQ(again, bits & 0xFFFF) << v;
    if ((bits & 0x7C00) != 0x7C00 && (bits & 0x7FFF) != 0x7BFF) {
      // Halfway to the next goes to the even one, a little more to the next.
      const std::uint16_t next_bits = static_cast<std::uint16_t>(bits + 1);
      const float next = load_element<Half>(reinterpret_cast<const std::byte*>(&next_bits));
      const double middle = (static_cast<double>(v) + next) / 2;
      const Half even(middle);
      std::uint16_t got = 0;
      std::memcpy(&got, &even, 2);
      ASSERT_EQ(got & 1, 0) << middle;
      const Half up(middle + (static_cast<double>(next) - v) * 1e-9);
      std::memcpy(&got, &up, 2);
      ASSERT_EQ(got, next_bits) << middle;
    }
  }
}

TEST(ElementType, ParsesNumpyStrings) {
  using Kind = ElementType::Kind;
  const bool little = std::endian::native == std::endian::little;
  EXPECT_EQ(ElementType::parse("<f4"), (ElementType{Kind::floating, 4, !little}));
  EXPECT_EQ(ElementType::parse(">i2"), (ElementType{Kind::integer, 2, little}));
  EXPECT_EQ(ElementType::parse("|u1"), (ElementType{Kind::natural, 1, false}));
  EXPECT_EQ(ElementType::parse(">u1"), (ElementType{Kind::natural, 1, false}));
  EXPECT_EQ(ElementType::parse("|b1"), (ElementType{Kind::boolean, 1, false}));
  EXPECT_EQ(ElementType::parse("f8"), (ElementType{Kind::floating, 8, false}));
  EXPECT_EQ(ElementType::parse("float16"), (ElementType{Kind::floating, 2, false}));
  EXPECT_EQ(ElementType::parse("<M8[25s]"), (ElementType{Kind::integer, 8, !little}));
  for (const char* bad :
       {"", "<", "f", "<f3", "<f1", "<i16", "<c8", "|S3", "<U2", "O", "f4x", "<float32", "|V8"}) {
    EXPECT_EQ(ElementType::parse(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace headrace
