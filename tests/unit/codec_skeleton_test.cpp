// The smallest codec, which src/codec/README.md shows, through the kit that every codec goes
// through: what the page promises is enough.

#include <gtest/gtest.h>

#include "headrace/error.h"
#include "tests/conformance/codec_kit.h"

namespace headrace {

CodecPtr make_xor8(const CodecSpec& spec, const CodecSite& site);  // codec_xor8.cpp

namespace {

CodecPtr xor8(const std::string& configuration) {
  return make_xor8({"xor8", configuration}, {{DType::uint8, {0}, {}}, CodecPosition::after_bytes});
}

TEST(CodecSkeleton, PassesTheKit) {
  const CodecPtr codec = xor8(R"({"key": 90})");
  for (const kit::Bytes& data : kit::samples()) kit::check_round_trip(*codec, data);
  // Without a checksum of its own, it cannot tell bytes that are wrong, but their number.
  kit::check_hostile(*codec, kit::smooth_floats(400));
}

TEST(CodecSkeleton, ChangesTheBytes) {
  const kit::Bytes plain = kit::noise(100);
  const kit::Bytes encoded = kit::encode(*xor8(R"({"key": 90})"), plain);
  EXPECT_EQ(encoded.front(), plain.front() ^ std::byte{90});
  EXPECT_EQ(kit::encode(*xor8(R"({"key": 0})"), plain), plain);
}

TEST(CodecSkeleton, RefusesConfigurations) {
  for (const char* bad : {"{}", R"({"key": 256})", R"({"key": 1, "keys": 2})"}) {
    try {
      xor8(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << bad;
    }
  }
}

}  // namespace
}  // namespace headrace
