#include <blosc.h>
#include <gtest/gtest.h>

#include "codec/blosc_frame.h"
#include "codec/shuffle.h"
#include "tests/conformance/codec_kit.h"

namespace headrace {
namespace {

using kit::Bytes;

constexpr const char* kInnerCodecs[] = {"blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"};

CodecSpec blosc_spec(
    const char* cname, int clevel, int shuffle, std::size_t typesize, std::size_t blocksize) {
  return {"blosc",
          std::string(R"({"cname": ")") + cname + R"(", "clevel": )" + std::to_string(clevel) +
              R"(, "shuffle": )" + std::to_string(shuffle) + R"(, "typesize": )" +
              std::to_string(typesize) + R"(, "blocksize": )" + std::to_string(blocksize) + "}"};
}

Bytes c_blosc_encode(const char* cname,
                     int clevel,
                     int shuffle,
                     std::size_t typesize,
                     std::size_t blocksize,
                     ConstBytes data) {
  Bytes out(data.size() + BLOSC_MAX_OVERHEAD);
  const int n = blosc_compress_ctx(clevel,
                                   shuffle,
                                   typesize,
                                   data.size(),
                                   data.data(),
                                   out.data(),
                                   out.size(),
                                   cname,
                                   blocksize,
                                   1);
  EXPECT_GT(n, 0);
  out.resize(static_cast<std::size_t>(n));
  return out;
}

TEST(Blosc, RoundTripsEveryInnerCodec) {
  for (const std::string& implementation : kit::implementations_of("blosc")) {
    for (const char* cname : kInnerCodecs) {
      for (int shuffle : {0, 1, 2}) {
        const CodecPtr codec = kit::make(blosc_spec(cname, 5, shuffle, 4, 0), implementation);
        for (const Bytes& data : kit::samples()) kit::check_round_trip(*codec, data);
        if (HasFailure()) return;
      }
    }
  }
}

// Bytes by c-blosc, over type sizes, block sizes and data, decoded here, in parts too.
TEST(Blosc, DecodesWhatCBloscWrites) {
  std::mt19937 random(3);
  for (std::size_t typesize = 1; typesize <= 17; ++typesize) {
    for (const char* cname : kInnerCodecs) {
      for (int shuffle : {0, 1, 2}) {
        const std::size_t blocksize = std::array{0u, 256u, 1000u, 4096u, 65536u}[random() % 5];
        const std::size_t nbytes = random() % 3 == 0 ? random() % 2000 : random() % 300000;
        Bytes data;
        switch (random() % 4) {
          case 0:
            data = kit::noise(nbytes, random());
            break;
          case 1:
            data = kit::repetitive(nbytes, random());
            break;
          default:
            data = kit::smooth_floats(nbytes, random());
            break;
        }
        const int clevel = static_cast<int>(random() % 10);
        SCOPED_TRACE(std::string(cname) + " typesize " + std::to_string(typesize) + " shuffle " +
                     std::to_string(shuffle) + " blocksize " + std::to_string(blocksize) +
                     " clevel " + std::to_string(clevel) + " nbytes " + std::to_string(nbytes));
        const Bytes encoded = c_blosc_encode(cname, clevel, shuffle, typesize, blocksize, data);
        const CodecPtr codec = kit::make({"blosc", ""}, "headrace");
        ASSERT_EQ(kit::decode(*codec, encoded, nbytes, 1), data);
        ASSERT_EQ(kit::decode(*codec, encoded, nbytes, 2), data);
        kit::check_pieces(*codec, encoded, data, 8);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Blosc, LargeTypesizes) {
  for (std::size_t typesize : {24u, 32u, 100u, 254u, 255u}) {
    for (int shuffle : {1, 2}) {
      const Bytes data = kit::smooth_floats(100003);
      const Bytes encoded = c_blosc_encode("lz4", 5, shuffle, typesize, 0, data);
      const CodecPtr codec = kit::make({"blosc", ""}, "headrace");
      ASSERT_EQ(kit::decode(*codec, encoded, data.size()), data) << typesize << " " << shuffle;
    }
  }
}

TEST(Blosc, HostileFrames) {
  for (const std::string& implementation : kit::implementations_of("blosc")) {
    for (const char* cname : kInnerCodecs) {
      for (int shuffle : {0, 1, 2}) {
        const CodecPtr codec = kit::make(blosc_spec(cname, 5, shuffle, 4, 512), implementation);
        kit::check_hostile(*codec, kit::repetitive(1500), true, 300);
      }
    }
  }
}

// Where c-blosc accepts bytes that were tampered with, the same comes out here.
TEST(Blosc, AgreesWithCBloscOnFlippedBits) {
  std::mt19937 random(11);
  const CodecPtr ours = kit::make({"blosc", ""}, "headrace");
  const CodecPtr theirs = kit::make({"blosc", ""}, "c-blosc");
  int accepted = 0;
  for (const char* cname : kInnerCodecs) {
    for (int shuffle : {0, 1, 2}) {
      const Bytes data = kit::repetitive(20000, random());
      const Bytes encoded = c_blosc_encode(cname, 5, shuffle, 4, 4096, data);
      for (int i = 0; i < 300; ++i) {
        Bytes bad = encoded;
        bad[16 + random() % (bad.size() - 16)] ^= std::byte(1u << random() % 8);
        Bytes expected;
        try {
          expected = kit::decode(*theirs, bad, data.size());
        } catch (const Error&) {
          EXPECT_NO_FATAL_FAILURE(kit::decode_hostile(*ours, bad, data.size()));
          continue;
        }
        ++accepted;
        ASSERT_EQ(kit::decode(*ours, bad, data.size()), expected) << cname << " " << shuffle;
      }
    }
  }
  EXPECT_GT(accepted, 100);
}

TEST(Blosc, RefusesWrongHeaders) {
  const CodecPtr codec = kit::make({"blosc", ""}, "headrace");
  const Bytes data = kit::repetitive(10000);
  const Bytes good = c_blosc_encode("lz4", 5, 1, 4, 0, data);
  const auto with = [&](std::size_t at, std::uint32_t value, std::size_t n) {
    Bytes bad = good;
    std::memcpy(bad.data() + at, &value, n);
    return bad;
  };
  const auto code_of = [&](const Bytes& bad) {
    try {
      kit::decode(*codec, bad, data.size());
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::io;
  };
  EXPECT_EQ(code_of(with(0, 3, 1)), ErrorCode::unsupported);        // format version
  EXPECT_EQ(code_of(with(2, 0x29, 1)), ErrorCode::unsupported);     // blosc2's extended header
  EXPECT_EQ(code_of(with(2, 0xF1, 1)), ErrorCode::unsupported);     // inner codec 7
  EXPECT_EQ(code_of(with(4, 0xFFFFFFFF, 4)), ErrorCode::corrupt);   // nbytes
  EXPECT_EQ(code_of(with(8, 0, 4)), ErrorCode::corrupt);            // blocksize
  EXPECT_EQ(code_of(with(8, 1, 4)), ErrorCode::corrupt);            // table larger than frame
  EXPECT_EQ(code_of(with(12, 5, 4)), ErrorCode::corrupt);           // cbytes
  EXPECT_EQ(code_of(with(16, 0x7FFFFFFF, 4)), ErrorCode::corrupt);  // block start
}

TEST(Blosc, ChecksItsConfiguration) {
  const auto code_of = [](const char* configuration) {
    try {
      kit::make({"blosc", configuration})->check_encodes();
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::io;
  };
  EXPECT_EQ(code_of(R"({"cname": "lz5"})"), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(R"({"clevel": 10})"), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(R"({"shuffle": "bytes"})"), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(R"({"shuffle": 3})"), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(R"({"level": 3})"), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(R"([1])"), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(R"({"id": "blosc", "cname": "zstd", "clevel": 9, "shuffle": -1})"),
            ErrorCode::io);
}

}  // namespace
}  // namespace headrace
