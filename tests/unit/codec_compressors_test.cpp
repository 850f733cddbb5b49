#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/conformance/codec_kit.h"
#include "tests/conformance/error_code.h"

namespace headrace {
namespace {

using kit::Bytes;

struct Case {
  const char* name;
  const char* configuration;
};

// Every lossless bytes -> bytes codec, by every implementation of it.
constexpr Case kCases[] = {
    {"zstd", R"({"level": 0})"},
    {"zstd", R"({"level": 3, "checksum": true})"},
    {"zstd", R"({"level": -5})"},
    {"zstd", R"({"level": 12, "checksum": false})"},
    {"numcodecs.zstd", R"({"id": "zstd", "level": 1})"},
    {"gzip", R"({"level": 0})"},
    {"gzip", R"({"level": 5})"},
    {"gzip", R"({"level": 9})"},
    {"numcodecs.zlib", R"({"level": -1})"},
    {"zlib", R"({"level": 1})"},
    {"lz4", ""},
    {"numcodecs.lz4", R"({"acceleration": 7})"},
    {"numcodecs.bz2", R"({"level": 9})"},
    {"bz2", ""},
    {"lzma", ""},
    {"numcodecs.lzma", R"({"preset": 0, "check": 10})"},
    {"lzma", R"({"preset": 6, "delta": 1})"},
    {"numcodecs.lzma", R"({"format": 2, "check": -1, "preset": 1, "filters": null})"},
    {"numcodecs.lzma", R"({"format": 3, "filters": [{"id": 33, "preset": 1}]})"},
    {"numcodecs.lzma",
     R"({"format": 3, "filters": [{"id": 3, "dist": 4}, {"id": 4611686018427387905, "lc": 1}]})"},
    {"crc32c", ""},
    {"numcodecs.crc32c", R"({"location": "start"})"},
    {"numcodecs.crc32", ""},
    {"numcodecs.crc32", R"({"location": "end"})"},
    {"numcodecs.adler32", ""},
    {"numcodecs.fletcher32", ""},
    {"numcodecs.jenkins_lookup3", ""},
    {"numcodecs.jenkins_lookup3", R"({"initval": 3, "prefix": [1, 2, 255]})"},
    {"numcodecs.shuffle", R"({"elementsize": 4})"},
    {"numcodecs.shuffle", R"({"elementsize": 6})"},
    {"shuffle", R"({"elementsize": 1})"},
    {"numcodecs.imagecodecs_bitshuffle", R"({"itemsize": 4})"},
    {"bitshuffle", R"({"itemsize": 1, "blocksize": 16})"},
};

class BytesCodecs : public ::testing::TestWithParam<Case> {
 protected:
  std::vector<CodecPtr> codecs() const {
    std::vector<CodecPtr> out;
    const CodecSpec spec{GetParam().name, GetParam().configuration};
    for (const std::string& i : kit::implementations_of(canonical_codec_name(spec.name))) {
      out.push_back(kit::make(spec, i, DType::uint8, {0}));
      EXPECT_EQ(out.back()->implementation(), i);
      EXPECT_EQ(out.back()->kind(), CodecKind::bytes_to_bytes);
    }
    EXPECT_FALSE(out.empty());
    return out;
  }
};

TEST_P(BytesCodecs, RoundTrip) {
  for (const CodecPtr& codec : codecs()) {
    for (const Bytes& data : kit::samples()) kit::check_round_trip(*codec, data);
  }
}

TEST_P(BytesCodecs, ImplementationsReadOneAnother) {
  const Bytes data = kit::smooth_floats(100001);
  for (const CodecPtr& writer : codecs()) {
    const Bytes encoded = kit::encode(*writer, data);
    for (const CodecPtr& reader : codecs())
      EXPECT_EQ(kit::decode(*reader, encoded, data.size()), data);
  }
}

TEST_P(BytesCodecs, Hostile) {
  for (const CodecPtr& codec : codecs())
    kit::check_hostile(*codec, kit::repetitive(1200), true, 1000);
}

INSTANTIATE_TEST_SUITE_P(All, BytesCodecs, ::testing::ValuesIn(kCases));

Bytes zstd_frame(ConstBytes data, bool content_size) {
  Bytes out(ZSTD_compressBound(data.size()));
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, content_size ? 1 : 0);
  const std::size_t n = ZSTD_compress2(context, out.data(), out.size(), data.data(), data.size());
  ZSTD_freeCCtx(context);
  EXPECT_FALSE(ZSTD_isError(n));
  out.resize(n);
  return out;
}

TEST(Zstd, SeveralFramesSkippableFramesAndNoContentSize) {
  const Bytes data = kit::smooth_floats(600000);
  const ConstBytes all = data;
  Bytes encoded;
  const auto append = [&](const Bytes& bytes) {
    encoded.insert(encoded.end(), bytes.begin(), bytes.end());
  };
  Bytes skippable(8 + 5);
  store_le(skippable.data(), std::uint32_t{0x184D2A53});
  store_le(skippable.data() + 4, std::uint32_t{5});
  append(skippable);
  append(zstd_frame(all.first(300001), false));
  append(skippable);
  append(zstd_frame({}, true));
  append(zstd_frame(all.subspan(300001), true));
  append(skippable);
  const CodecPtr codec = kit::make({"zstd", ""});
  EXPECT_EQ(kit::decode(*codec, encoded, data.size()), data);
  Buffer unknown;
  codec->decode_unknown(encoded, data.size() + 77, unknown);
  EXPECT_TRUE(
      std::equal(data.begin(), data.end(), unknown.data(), unknown.data() + unknown.size()));
  kit::check_pieces(*codec, encoded, data, 30);
}

// A frame may say any content size: memory is asked for by the bound, not by the frame.
TEST(Zstd, LyingContentSize) {
  const Bytes data(100, std::byte{1});
  Bytes encoded = zstd_frame(data, true);
  const CodecPtr codec = kit::make({"zstd", ""});
  EXPECT_EQ(std::to_integer<int>(encoded[5]), 100);
  encoded[5] = std::byte{90};
  EXPECT_THROW(kit::decode(*codec, encoded, 100), Error);
  Buffer out;
  EXPECT_THROW(codec->decode_unknown(encoded, 1000, out), Error);
}

TEST(Zstd, WrongChecksum) {
  const Bytes data = kit::smooth_floats(5000);
  const CodecPtr codec = kit::make({"zstd", R"({"level": 3, "checksum": true})"});
  Bytes encoded = kit::encode(*codec, data);
  encoded.back() ^= std::byte{1};
  EXPECT_THROW(kit::decode(*codec, encoded, data.size()), Error);
}

Bytes zlib_member(ConstBytes data, int window_bits, bool header_fields) {
  z_stream s{};
  EXPECT_EQ(deflateInit2(&s, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  gz_header header{};
  Bytef name[] = "a file's name";
  Bytef comment[] = "a comment";
  Bytef extra[] = "extra bytes";
  if (header_fields) {
    header.name = name;
    header.comment = comment;
    header.extra = extra;
    header.extra_len = sizeof extra;
    header.hcrc = 1;
    EXPECT_EQ(deflateSetHeader(&s, &header), Z_OK);
  }
  Bytes out(deflateBound(&s, data.size()) + 100);
  s.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(data.data()));
  s.avail_in = static_cast<uInt>(data.size());
  s.next_out = reinterpret_cast<Bytef*>(out.data());
  s.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&s, Z_FINISH), Z_STREAM_END);
  out.resize(s.total_out);
  deflateEnd(&s);
  return out;
}

TEST(Gzip, MembersHeaderFieldsAndPadding) {
  const Bytes data = kit::smooth_floats(400000);
  const ConstBytes all = data;
  Bytes encoded = zlib_member(all.first(150001), 15 + 16, true);
  for (const Bytes& more :
       {zlib_member({}, 15 + 16, false), zlib_member(all.subspan(150001), 9 + 16, true)}) {
    encoded.insert(encoded.end(), more.begin(), more.end());
  }
  for (const std::string& implementation : kit::implementations_of("gzip")) {
    SCOPED_TRACE(implementation);
    const CodecPtr codec = kit::make({"gzip", ""}, implementation);
    Bytes padded = encoded;
    EXPECT_EQ(kit::decode(*codec, padded, data.size()), data);
    kit::check_pieces(*codec, padded, data, 20);
    padded.resize(padded.size() + 30);
    EXPECT_EQ(kit::decode(*codec, padded, data.size()), data);
    padded.back() = std::byte{1};
    EXPECT_THROW(kit::decode(*codec, padded, data.size()), Error);
  }
}

TEST(Gzip, WrongChecksumAndSize) {
  const Bytes data = kit::smooth_floats(5000);
  for (const char* name : {"gzip", "zlib"}) {
    for (const std::string& implementation : kit::implementations_of(name)) {
      SCOPED_TRACE(std::string(name) + "/" + implementation);
      const CodecPtr codec = kit::make({name, ""}, implementation);
      const Bytes encoded = kit::encode(*codec, data);
      for (std::size_t from_end = 1; from_end <= 4; ++from_end) {
        Bytes bad = encoded;
        bad[bad.size() - from_end - (std::string_view(name) == "gzip" ? 4 : 0)] ^= std::byte{0x40};
        EXPECT_THROW(kit::decode(*codec, bad, data.size()), Error) << from_end;
      }
      Bytes longer = encoded;
      longer.push_back(std::byte{7});
      EXPECT_THROW(kit::decode(*codec, longer, data.size()), Error);
    }
  }
}

TEST(Checksum, VectorsOfTheStandards) {
  const auto sum = [](const char* name, ConstBytes data) {
    const CodecPtr codec = kit::make({name, ""});
    const Bytes encoded = kit::encode(*codec, data);
    const bool first = std::string_view(name) == "crc32" || std::string_view(name) == "adler32";
    return load_le<std::uint32_t>(first ? encoded.data() : encoded.data() + data.size());
  };
  const Bytes zeros(32);
  const Bytes ones(32, std::byte{0xFF});
  EXPECT_EQ(sum("crc32c", zeros), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(sum("crc32c", ones), 0x62A8AB43u);
  EXPECT_EQ(sum("crc32c", bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(sum("crc32", bytes_of("123456789")), 0xCBF43926u);
  EXPECT_EQ(sum("adler32", bytes_of("Wikipedia")), 0x11E60398u);
  EXPECT_EQ(sum("adler32", {}), 1u);
  // lookup3.c's own driver.
  EXPECT_EQ(sum("jenkins_lookup3", {}), 0xdeadbeefu);
  EXPECT_EQ(sum("jenkins_lookup3", bytes_of("Four score and seven years ago")), 0x17770551u);
}

TEST(Checksum, EveryBitCounts) {
  for (const char* name : {"crc32c", "crc32", "adler32", "fletcher32", "jenkins_lookup3"}) {
    const CodecPtr codec = kit::make({name, ""});
    const Bytes data = kit::noise(101);
    const Bytes encoded = kit::encode(*codec, data);
    for (std::size_t i = 0; i < encoded.size() * 8; ++i) {
      Bytes bad = encoded;
      bad[i / 8] ^= std::byte(1u << i % 8);
      EXPECT_THROW(kit::decode(*codec, bad, data.size()), Error) << name << " bit " << i;
    }
  }
}

TEST(Registry, RefusesByNameAndSaysWhy) {
  const auto message = [](const char* name, const char* implementation = "") {
    try {
      kit::make({name, ""}, implementation);
    } catch (const Error& e) {
      return std::string(error_code_name(e.code())) + " " + e.what();
    }
    return std::string();
  };
  EXPECT_EQ(message("pickle").substr(0, 11), "unsupported");
  EXPECT_NE(message("numcodecs.pickle").find("runs code"), std::string::npos);
  EXPECT_EQ(message("nonsense"), "unsupported codec nonsense is not known");
  EXPECT_EQ(message("zstd", "nobody").substr(0, 16), "invalid_argument");
  EXPECT_NE(message("zstd", "nobody").find("libzstd"), std::string::npos);
}

TEST(Batch, DecodesAllAndNamesTheBadInput) {
  std::vector<Bytes> plain, encoded;
  for (unsigned i = 0; i < 20; ++i) plain.push_back(kit::smooth_floats(1000 * i, i));
  std::vector<std::span<const std::byte>> sources(plain.begin(), plain.end());
  encoded = encode_batch("zstd", sources);
  std::vector<std::span<const std::byte>> inputs(encoded.begin(), encoded.end());
  std::vector<Bytes> decoded;
  for (const Bytes& p : plain) decoded.emplace_back(p.size());
  std::vector<std::span<std::byte>> outputs(decoded.begin(), decoded.end());
  decode_batch("zstd", inputs, outputs);
  EXPECT_EQ(decoded, plain);
  encoded[7][0] ^= std::byte{1};
  try {
    decode_batch("zstd", inputs, outputs);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::corrupt);
    EXPECT_NE(std::string(e.what()).find("input 7: codec zstd"), std::string::npos) << e.what();
  }
  EXPECT_THROW(decode_batch("zstd", inputs, {}), Error);
  BatchOptions cuda;
  cuda.device = Device::cuda();
  EXPECT_THROW(decode_batch("zstd", inputs, outputs, cuda), Error);
}

TEST(Batch, TakesPiecesOfOneBuffer) {
  const Bytes plain = kit::smooth_floats(12000, 1);
  const std::vector<std::size_t> cuts{0, 4000, 4000, 9000, plain.size()};
  Bytes encoded;
  std::vector<std::size_t> offsets{5};  // the first bytes are no piece's
  encoded.resize(5);
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const std::span<const std::byte> piece(plain.data() + cuts[i], cuts[i + 1] - cuts[i]);
    const Bytes frame = encode_batch("zstd", std::span(&piece, 1))[0];
    encoded.insert(encoded.end(), frame.begin(), frame.end());
    offsets.push_back(encoded.size());
  }
  const auto view = [](Bytes& bytes) {
    return TensorView{
        bytes.data(), {static_cast<std::int64_t>(bytes.size())}, {}, DType::uint8, {}};
  };
  Bytes decoded(plain.size());
  const BatchViews inputs(view(encoded), offsets);
  EXPECT_EQ(inputs.size(), 4u);
  decode_batch("zstd", inputs, BatchViews(view(decoded), cuts));
  EXPECT_EQ(decoded, plain);
  const auto refused = [&](std::vector<std::size_t> wrong) {
    return code_of([&] { BatchViews(view(encoded), std::move(wrong)); });
  };
  EXPECT_EQ(refused({0, encoded.size() + 1}), ErrorCode::invalid_argument);
  EXPECT_EQ(refused({4, 3}), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] {
              decode_batch("zstd", inputs, BatchViews(view(decoded), {0, 1}));
            }),
            ErrorCode::invalid_argument);
  EXPECT_TRUE(BatchViews(view(encoded), {}).empty());
  EXPECT_TRUE(BatchViews(view(encoded), {7}).empty());
  TensorView apart = view(decoded);
  apart.shape = {2};
  apart.strides = {8};
  EXPECT_EQ(code_of([&] { BatchViews(apart, {0, 1}); }), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace headrace
