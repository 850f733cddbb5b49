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
    EXPECT_EQ(codec->encoded_nbytes(out.size()).fixed, 480u);
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
                                {"numcodecs.packbits", ""}};
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

std::vector<CodecSpec> with_bytes(CodecSpec spec) { return {std::move(spec), codec::bytes()}; }

// What a chain of `specs` makes of `data`, after it gave the same back.
Bytes through(const std::vector<CodecSpec>& specs, const ChunkSpec& chunk, const Bytes& data) {
  const CodecChain chain(specs, chunk, {});
  Buffer encoded;
  chain.encode(data, encoded);
  Bytes out(data.size());
  chain.decode(encoded, out, {});
  EXPECT_EQ(out, data);
  return {encoded.data(), encoded.data() + encoded.size()};
}

TEST(PackBitsArray, TakesTheBitsThatItIsTold) {
  const auto packed = [](const char* configuration, const DType& dtype, const Bytes& data) {
    const auto n = static_cast<std::int64_t>(data.size() / dtype.itemsize());
    return through({{"packbits", configuration}}, {dtype, {n}, {}}, data);
  };
  const Bytes bits = as_bytes<std::uint8_t>({1, 0, 1, 1, 0, 0, 0, 0, 0, 1});
  EXPECT_EQ(packed("", DType::boolean, bits), as_bytes<std::uint8_t>({0b1101, 0b10}));
  EXPECT_EQ(packed(R"({"padding_encoding": "first_byte"})", DType::boolean, bits),
            as_bytes<std::uint8_t>({6, 0b1101, 0b10}));
  EXPECT_EQ(packed(R"({"padding_encoding": "last_byte"})", DType::boolean, bits),
            as_bytes<std::uint8_t>({0b1101, 0b10, 6}));
  EXPECT_EQ(packed("", DType::from_name("int4"), as_bytes<std::int8_t>({-8, 7, -1})),
            as_bytes<std::uint8_t>({0x78, 0x0F}));
  EXPECT_EQ(packed("", DType::from_name("float6_e2m3fn"), as_bytes<std::uint8_t>({63, 1, 2, 3})),
            as_bytes<std::uint8_t>({0x7F, 0x20, 0x0C}));
  // Signed numbers get their sign back, all others zeros.
  EXPECT_EQ(packed(R"({"first_bit": 4, "last_bit": 11})",
                   DType::int16,
                   as_bytes<std::int16_t>({-2048, 2032, -16})),
            as_bytes<std::uint8_t>({0x80, 0x7F, 0xFF}));
  EXPECT_EQ(
      packed(
          R"({"first_bit": 1, "last_bit": null})", DType::uint8, as_bytes<std::uint8_t>({254, 2})),
      as_bytes<std::uint8_t>({0xFF, 0x00}));
  for (const DType& dtype : {DType::complex128, DType::uint64, DType::float16, DType::bfloat16}) {
    const Bytes data = kit::noise(16 * 5);
    EXPECT_EQ(packed("", dtype, data), data);
  }
}

TEST(PackBitsArray, RefusesWhatIsNotItsOwn) {
  const ChunkSpec chunk{DType::boolean, {13}, {}};
  const CodecChain chain({{"packbits", R"({"padding_encoding": "last_byte"})"}}, chunk, {});
  Bytes out(13);
  for (const Bytes& bad : {Bytes(2), Bytes(4), as_bytes<std::uint8_t>({0, 0, 4})}) {
    EXPECT_THROW(chain.decode(bad, out, {}), Error);
  }
  EXPECT_NO_THROW(chain.decode(as_bytes<std::uint8_t>({0, 0, 3}), out, {}));
  for (const char* bad :
       {R"({"padding_encoding": "start_byte"})", R"({"last_bit": 1})", R"({"first_bit": -1})"}) {
    EXPECT_THROW(CodecChain({{"packbits", bad}}, chunk, {}), Error) << bad;
  }
  EXPECT_THROW(
      CodecChain(
          {{"packbits", R"({"first_bit": 3, "last_bit": 2})"}}, {DType::uint8, {13}, {}}, {}),
      Error);
  EXPECT_THROW(CodecChain({{"packbits", ""}}, {DType::raw(3), {13}, {}}, {}), Error);
}

TEST(Reshape, GivesTheCodecsBehindItAnotherShape) {
  const Bytes data = kit::noise(4 * 24);
  const CodecSpec reshape{"reshape", R"({"shape": [[0, 1], -1, 2]})"};
  const CodecSpec shard = codec::sharding({3, 1, 2}, {codec::bytes()});
  EXPECT_EQ(through({reshape, codec::bytes()}, {DType::int32, {2, 3, 4}, {}}, data), data);
  const Bytes turned = through(
      {reshape, codec::transpose({1, 0, 2}), codec::bytes()}, {DType::int32, {2, 3, 4}, {}}, data);
  EXPECT_TRUE(std::equal(turned.begin() + 8, turned.begin() + 16, data.begin() + 16));
  EXPECT_EQ(through({reshape, shard}, {DType::int32, {2, 3, 4}, {}}, data).size(),
            data.size() + 4 * 16 + 4);
  for (const char* bad : {R"({})",
                          R"({"shape": 24})",
                          R"({"shape": [5, -1]})",
                          R"({"shape": [-1, -1]})",
                          R"({"shape": [0, -1]})",
                          R"({"shape": [25]})",
                          R"({"shape": [[1], [0], 4]})",
                          R"({"shape": [[0, 3], -1]})",
                          R"({"shape": [4, [0], 3]})",
                          R"({"shape": [9223372036854775807, 4]})"}) {
    EXPECT_THROW(CodecChain(with_bytes({"reshape", bad}), {DType::int32, {2, 3, 4}, {}}, {}), Error)
        << bad;
  }
}

TEST(ScaleOffset, IntegersAreExactOrRefused) {
  const auto codec = [](const char* configuration, const DType& dtype) {
    return CodecChain(with_bytes({"scale_offset", configuration}), {dtype, {1}, {}}, {});
  };
  const auto encode = [](const CodecChain& chain, const Bytes& data) {
    Buffer out;
    chain.encode(data, out);
    return Bytes(out.data(), out.data() + out.size());
  };
  const CodecChain triple = codec(R"({"offset": -1, "scale": 3})", DType::int8);
  EXPECT_EQ(encode(triple, as_bytes<std::int8_t>({41})), as_bytes<std::int8_t>({126}));
  EXPECT_THROW(encode(triple, as_bytes<std::int8_t>({42})), Error);
  Bytes out(1);
  EXPECT_THROW(triple.decode(as_bytes<std::int8_t>({125}), out, {}), Error);
  const CodecChain negative = codec(R"({"scale": -1})", DType::int64);
  out.resize(8);
  EXPECT_THROW(encode(negative, as_bytes<std::int64_t>({INT64_MIN})), Error);
  EXPECT_THROW(negative.decode(as_bytes<std::int64_t>({INT64_MIN}), out, {}), Error);
  const CodecChain large = codec(R"({"offset": 18446744073709551614})", DType::uint64);
  EXPECT_EQ(encode(large, as_bytes<std::uint64_t>({UINT64_MAX})), as_bytes<std::uint64_t>({1}));
  EXPECT_THROW(encode(large, as_bytes<std::uint64_t>({3})), Error);
  EXPECT_THROW(large.decode(as_bytes<std::uint64_t>({2}), out, {}), Error);
  for (const char* bad : {R"({"scale": 0})",
                          R"({"scale": 0.5})",
                          R"({"offset": "x"})",
                          R"({"offset": 1, "dtype": "<i4"})"}) {
    EXPECT_THROW(codec(bad, DType::int32), Error) << bad;
  }
  EXPECT_THROW(codec("", DType::boolean), Error);
  EXPECT_THROW(codec("", DType::complex64), Error);
}

TEST(ScaleOffset, SaysWhyAnIntegerIsRefused) {
  const CodecChain chain(
      with_bytes({"scale_offset", R"({"offset": 100, "scale": 3})"}), {DType::int8, {1}, {}}, {});
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  Buffer encoded;
  Bytes decoded(1);
  EXPECT_EQ(message([&] { chain.encode(as_bytes<std::int8_t>({1}), encoded); }),
            "codec scale_offset: encode: 1 becomes a value outside the range of dtype int8");
  EXPECT_EQ(message([&] { chain.decode(as_bytes<std::int8_t>({90}), decoded, {}); }),
            "codec scale_offset: 90 decodes to a value outside the range of dtype int8");
  EXPECT_EQ(message([&] { chain.decode(as_bytes<std::int8_t>({-4}), decoded, {}); }),
            "codec scale_offset: -4 divided by the scale 3 has a non-zero remainder");
}

TEST(CastValue, NamesWhatItCannotCast) {
  const auto message = [](const char* configuration, float v) {
    try {
      const CodecChain chain(
          with_bytes({"cast_value", configuration}), {DType::float32, {1}, {}}, {});
      Buffer out;
      chain.encode(as_bytes<float>({v}), out);
    } catch (const Error& e) {
      return std::string(error_code_name(e.code())) + " " + e.what();
    }
    return std::string();
  };
  const float nan = std::nanf("");
  EXPECT_EQ(message(R"({"data_type": "uint8"})", 255.25F), "");
  EXPECT_EQ(message(R"({"data_type": "uint8"})", 255.5F),
            "invalid_argument codec cast_value: 255.5 is out of range of uint8");
  EXPECT_EQ(message(R"({"data_type": "float16", "out_of_range": "error"})", 1e6F),
            "invalid_argument codec cast_value: 1e+06 is out of range of float16");
  EXPECT_NE(message(R"({"data_type": "int8", "out_of_range": "wrap"})", nan), "");
  EXPECT_NE(message(R"({"data_type": "int8", "out_of_range": "clamp"})", HUGE_VALF), "");
  EXPECT_EQ(message(R"({"data_type": "int8", "scalar_map": {"encode": [["NaN", -1]]}})", nan), "");
  for (const char* bad : {R"({})",
                          R"({"data_type": "bool"})",
                          R"({"data_type": "int4"})",
                          R"({"data_type": "int8", "rounding": "up"})",
                          R"({"data_type": "float64", "out_of_range": "wrap"})",
                          R"({"data_type": "int8", "scalar_map": {"encode": [[1, 500]]}})",
                          R"({"data_type": "int8", "scalar_map": {"decode": [[1]]}})"}) {
    EXPECT_NE(message(bad, 0), "") << bad;
  }
}

// What a decoder finds is `corrupt`, whoever wrote it.
TEST(CastValue, DecodesNothingThatDoesNotFit) {
  const CodecChain chain(
      with_bytes({"cast_value", R"({"data_type": "float32"})"}), {DType::uint8, {2}, {}}, {});
  Bytes out(2);
  EXPECT_NO_THROW(chain.decode(as_bytes<float>({0, 254.5F}), out, {}));
  for (const float bad : {-1.0F, 256.0F, std::nanf(""), HUGE_VALF}) {
    try {
      chain.decode(as_bytes<float>({0, bad}), out, {});
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::corrupt);
    }
  }
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
