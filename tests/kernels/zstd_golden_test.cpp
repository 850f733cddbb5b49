// Bytes made by numcodecs and zstandard: tests/golden/generate/codec_vectors.py.

#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/decode_kit.h"

namespace headrace::test {
namespace {

Bytes from_hex(const std::string& hex) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST(ZstdGolden, Decodes) {
  std::ifstream file(HEADRACE_SOURCE_DIR "/tests/golden/codec_vectors/compressors.json");
  ASSERT_TRUE(file);
  const nlohmann::json vectors = nlohmann::json::parse(file);
  const auto bytes_of = [&](const nlohmann::json& index) {
    return from_hex(vectors["strings"][index.get<std::size_t>()].get<std::string>());
  };
  std::vector<Bytes> encoded, decoded;
  for (const auto& vector : vectors["cases"]) {
    if (vector["codec"] != "zstd" && vector["codec"] != "numcodecs.zstd") continue;
    encoded.push_back(bytes_of(vector["encoded"]));
    decoded.push_back(bytes_of(vector["decoded"]));
  }
  ASSERT_GE(encoded.size(), 6u);
  for (const Place& place : places()) expect_decodes(place, place.kernels->zstd, encoded, decoded);
}

}  // namespace
}  // namespace headrace::test
