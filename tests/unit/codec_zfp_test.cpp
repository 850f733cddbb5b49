#include <gtest/gtest.h>

#include "codec/chain.h"
#include "tests/conformance/codec_kit.h"

namespace headrace {
namespace {

using kit::Bytes;

struct Case {
  const char* name;
  const char* configuration;
};
constexpr Case kCases[] = {
    {"zfp", R"({"mode": "reversible"})"},
    {"zfp", R"({"mode": "fixed_accuracy", "tolerance": 0.001})"},
    {"zfp", R"({"mode": "fixed_rate", "rate": 9.5})"},
    {"zfp", R"({"mode": "fixed_precision", "precision": 17})"},
    {"zfp", R"({"mode": "expert", "minbits": 1, "maxbits": 600, "maxprec": 30, "minexp": -100})"},
    {"numcodecs.zfpy", R"({"mode": 4, "tolerance": -1, "compression_kwargs": {"tolerance": -1}})"},
    {"numcodecs.zfpy", R"({"mode": 4, "tolerance": 0.001})"},
    {"numcodecs.zfpy", R"({"mode": 2, "rate": 9.5})"},
    {"numcodecs.zfpy", R"({"mode": 3, "precision": 17})"},
};
const Shape kShapes[] = {{}, {1}, {1001}, {31, 33}, {9, 10, 11}, {5, 6, 7, 4}, {1, 1, 1, 50}};

// Builds may be without libzfp.
class Zfp : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kit::implementations_of("zfp").empty()) GTEST_SKIP() << "no libzfp";
  }
};

std::size_t nbytes_of(const DType& dtype, const Shape& shape) {
  return ChunkSpec{dtype, shape, {}}.nbytes();
}

TEST_F(Zfp, ReversibleModesRoundTrip) {
  for (const auto& [name, configuration] : {kCases[0], kCases[5]}) {
    for (const DType& dtype : {DType::int32, DType::int64, DType::float32, DType::float64}) {
      for (const Shape& shape : kShapes) {
        const CodecPtr codec =
            kit::make({name, configuration}, {}, dtype, shape, CodecPosition::before_bytes);
        EXPECT_EQ(codec->kind(), CodecKind::array_to_bytes);
        const std::size_t n = nbytes_of(dtype, shape);
        kit::check_round_trip(*codec, kit::smooth_floats(n));
        kit::check_round_trip(*codec, Bytes(n));
      }
    }
  }
}

// Bytes that are cut short or lie never lead libzfp out of its buffer, and give the exact size.
TEST_F(Zfp, Hostile) {
  for (const auto& [name, configuration] : kCases) {
    for (const DType& dtype : {DType::int64, DType::float32}) {
      for (const Shape& shape : kShapes) {
        const CodecPtr codec =
            kit::make({name, configuration}, {}, dtype, shape, CodecPosition::before_bytes);
        const Bytes data = kit::smooth_floats(nbytes_of(dtype, shape));
        const Bytes encoded = kit::encode(*codec, data);
        EXPECT_THROW(kit::decode(*codec, {}, data.size()), Error) << name << configuration;
        EXPECT_THROW(kit::decode(*codec, encoded, data.size() + 4), Error);
        std::mt19937 random(7);
        for (int i = 0; i < 100; ++i) {
          Bytes bad(encoded.begin(), encoded.end() - static_cast<int>(random() % encoded.size()));
          for (unsigned k = 0; k < random() % 4; ++k) {
            bad[random() % (i % 2 == 0 ? bad.size() : std::min<std::size_t>(bad.size(), 20))] =
                std::byte(random());
          }
          kit::decode_hostile(*codec, bad, data.size());
        }
      }
    }
  }
}

TEST_F(Zfp, HeadersOfOtherArraysAreRefused) {
  const auto make = [](const DType& dtype, const Shape& shape) {
    return kit::make({"numcodecs.zfpy", ""}, {}, dtype, shape, CodecPosition::before_bytes);
  };
  const Bytes encoded = kit::encode(*make(DType::float32, {12, 10}), kit::smooth_floats(480));
  // Another shape of as many elements will do: zarr-python gives the chunk its own.
  EXPECT_EQ(kit::decode(*make(DType::float32, {120}), encoded, 480), kit::smooth_floats(480));
  EXPECT_THROW(kit::decode(*make(DType::float32, {121}), encoded, 484), Error);
  EXPECT_THROW(kit::decode(*make(DType::int32, {120}), encoded, 480), Error);
}

TEST_F(Zfp, RefusesWhatItCannotTake) {
  const auto make = [](const char* configuration, const DType& dtype, const Shape& shape) {
    return kit::make({"zfp", configuration}, {}, dtype, shape, CodecPosition::before_bytes);
  };
  constexpr const char* kReversible = R"({"mode": "reversible"})";
  for (const DType& dtype : {DType::uint32, DType::int16, DType::float16, DType::complex64}) {
    EXPECT_THROW(make(kReversible, dtype, {4}), Error) << dtype.to_string();
  }
  EXPECT_THROW(make(kReversible, DType::float32, {1, 1, 1, 1, 1}), Error);
  for (const char* bad :
       {"",
        R"({"mode": 4})",
        R"({"mode": "fixed_rate"})",
        R"({"mode": "fixed_rate", "rate": 65})",
        R"({"mode": "fixed_accuracy", "tolerance": -1})",
        R"({"mode": "fixed_precision", "precision": 0})",
        R"({"mode": "reversible", "rate": 3})",
        R"({"mode": "expert", "minbits": 9, "maxbits": 8, "maxprec": 64, "minexp": 0})"}) {
    EXPECT_THROW(make(bad, DType::float32, {4}), Error) << bad;
  }
}

}  // namespace
}  // namespace headrace
