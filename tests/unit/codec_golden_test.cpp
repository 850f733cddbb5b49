// Bytes made by numcodecs, zstandard and cast-value-rs: tests/golden/generate/codec_vectors.py.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "codec/elements.h"
#include "tests/conformance/codec_kit.h"

namespace headrace {
namespace {

using kit::Bytes;

Bytes from_hex(const std::string& hex) {
  Bytes out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(std::byte(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

class CodecGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(CodecGolden, DecodesAndEncodes) {
  std::ifstream file(std::string(HEADRACE_SOURCE_DIR "/tests/golden/codec_vectors/") + GetParam());
  ASSERT_TRUE(file);
  const nlohmann::json vectors = nlohmann::json::parse(file);
  std::vector<Bytes> strings;
  for (const auto& hex : vectors["strings"]) strings.push_back(from_hex(hex));
  int n = 0;
  for (const auto& vector : vectors["cases"]) {
    const CodecSpec spec{vector["codec"], vector["configuration"]};
    SCOPED_TRACE(std::to_string(n++) + " " + spec.name + " " + spec.configuration + " " +
                 vector["dtype"].get<std::string>());
    const Bytes& data = strings[vector["data"]];
    const Bytes& encoded = strings[vector["encoded"]];
    const Bytes& decoded = strings[vector["decoded"]];
    const auto type = ElementType::parse(vector["dtype"].get<std::string>());
    for (const std::string& implementation :
         kit::implementations_of(canonical_codec_name(spec.name))) {
      SCOPED_TRACE(implementation);
      Implementations chosen{{std::string(canonical_codec_name(spec.name)), implementation}};
      ChunkSpec in;
      in.dtype = type ? type->dtype() : DType::raw(3);
      in.shape = {static_cast<std::int64_t>(data.size() / in.dtype.itemsize())};
      in.swapped = type && type->swapped;
      const CodecPtr codec = resolve_codec(spec, {in, CodecPosition::after_bytes, &chosen}, chosen);
      EXPECT_EQ(kit::decode(*codec, encoded, decoded.size()), decoded);
      const Bytes ours = kit::encode(*codec, data);
      if (vector["exact"].get<bool>()) {
        EXPECT_EQ(ours, encoded);
      } else {
        EXPECT_EQ(kit::decode(*codec, ours, decoded.size()), decoded);
      }
      if (const auto size = codec->encoded_nbytes(data.size()).fixed) {
        EXPECT_EQ(*size, encoded.size());
      }
    }
  }
  EXPECT_GT(n, 5);
}

INSTANTIATE_TEST_SUITE_P(All,
                         CodecGolden,
                         ::testing::Values("blosc.json",
                                           "compressors.json",
                                           "checksums.json",
                                           "filters.json",
                                           "casts.json"));

}  // namespace
}  // namespace headrace
