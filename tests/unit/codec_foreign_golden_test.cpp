// What only other libraries write: chunks of HDF5, TIFF and GRIB 2 that h5py, imagecodecs and
// eccodes made (tests/golden/generate/write_foreign.py).

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "codec/aec.h"
#include "codec/bit_reader.h"
#include "tests/conformance/codec_kit.h"

namespace headrace {
namespace {

using kit::Bytes;

struct Vector {
  CodecSpec spec;
  Bytes encoded, decoded;
};

Bytes from_hex(const std::string& hex) {
  Bytes out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(std::byte(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

// Those that this build has a decoder for.
std::vector<Vector> vectors() {
  std::ifstream file(HEADRACE_SOURCE_DIR "/tests/golden/codec_vectors/foreign.json");
  EXPECT_TRUE(file);
  std::vector<Vector> out;
  const nlohmann::json found = nlohmann::json::parse(file);
  for (const auto& entry : found["cases"]) {
    Vector v{{entry["codec"], entry["configuration"]},
             from_hex(entry["encoded"]),
             from_hex(entry["decoded"])};
    // Template 5.42, 20 octets behind the head of a section 5 of 25.
    const std::string_view text(reinterpret_cast<const char*>(v.encoded.data()), v.encoded.size());
    const bool ccsds = v.spec.name == "numcodecs.grib" &&
                       text.find(std::string_view("\0\0\0\x19\x05", 5)) != text.npos;
    if (!has_aec() && ccsds) continue;
    if (!has_aec() && v.spec.name == "numcodecs.hdf5_szip") continue;
    out.push_back(std::move(v));
  }
  return out;
}

TEST(Foreign, DecodesWhatOthersWrote) {
  std::map<std::string, int> seen;
  for (const Vector& v : vectors()) {
    SCOPED_TRACE(v.spec.name + " " + v.spec.configuration + " case " +
                 std::to_string(seen[v.spec.name]++));
    const CodecPtr codec = kit::make(v.spec);
    EXPECT_EQ(kit::decode(*codec, v.encoded, v.decoded.size()), v.decoded);
    Buffer unknown;
    codec->decode_unknown(v.encoded, v.decoded.size() + 100, unknown);
    EXPECT_TRUE(std::ranges::equal(unknown.bytes(), v.decoded));
    EXPECT_LE(v.encoded.size(), codec->encoded_nbytes(v.decoded.size()).most);
    EXPECT_EQ(codec->kind(), CodecKind::bytes_to_bytes);
  }
  EXPECT_GE(seen.size(), has_aec() ? 9u : 8u);
}

TEST(Foreign, Hostile) {
  std::map<std::string, int> seen;
  for (const Vector& v : vectors()) {
    SCOPED_TRACE(v.spec.name + " " + v.spec.configuration);
    if (seen[v.spec.name]++ % 4 != 0) continue;
    const CodecPtr codec = kit::make(v.spec);
    for (std::size_t n = 0; n < v.encoded.size(); n += 1 + v.encoded.size() / 300) {
      kit::decode_hostile(*codec, ConstBytes(v.encoded).first(n), v.decoded.size());
    }
    EXPECT_THROW(kit::decode(*codec, v.encoded, v.decoded.size() + 1), Error);
    EXPECT_THROW(kit::decode(*codec, v.encoded, v.decoded.size() - 1), Error);
    Buffer out;
    EXPECT_THROW(codec->decode_unknown(v.encoded, v.decoded.size() - 1, out), Error);
    kit::check_flipped(*codec, v.encoded, v.decoded.size(), 300);
  }
}

// An array that could never be read again is not begun.
TEST(Foreign, AreNotWritten) {
  for (const Vector& v : vectors()) {
    const CodecPtr codec = kit::make(v.spec);
    EXPECT_THROW(codec->check_encodes(), Error);
    Buffer out;
    EXPECT_THROW(codec->encode(v.decoded, out), Error);
  }
}

TEST(Foreign, RefusesConfigurationsThatDescribeNothing) {
  const CodecSpec mistakes[] = {
      {"hdf5_scaleoffset", R"({"cd_values": [2, 0, 24, 0, 4, 1, 0]})"},
      {"hdf5_scaleoffset", R"({"cd_values": [2, 0, 24, 0, 3, 1, 0, 0]})"},
      {"hdf5_scaleoffset", R"({"cd_values": [1, 0, 24, 1, 4, 1, 0, 0]})"},
      {"hdf5_scaleoffset", R"({"cd_values": [2, 0, 24, 0, 4, 1, 0, 1]})"},
      {"hdf5_scaleoffset", R"({"cd_values": [2, 0, -1, 0, 4, 1, 0, 0]})"},
      {"hdf5_nbit", R"({"cd_values": [8, 0, 24, 1, 2, 0, 13, 3]})"},
      {"hdf5_nbit", R"({"cd_values": [8, 0, 24, 1, 2, 0, 13, 4], "dtype": "<i2"})"},
      {"hdf5_nbit", R"({"cd_values": [8, 0, 24, 1, 2, 0, 0, 0], "dtype": "<i2"})"},
      {"hdf5_nbit", R"({"cd_values": [8, 0, 24, 3, 2, 0, 13, 3], "dtype": "<i2"})"},
      {"hdf5_nbit", R"({"cd_values": [8, 0, 24, 1, 4, 0, 20, 0], "dtype": "<f4"})"},
      {"hdf5_szip", R"({"cd_values": [141, 32, 32]})"},
      {"hdf5_szip", R"({"cd_values": [141, 3, 32, 256]})"},
      {"hdf5_szip", R"({"cd_values": [141, 32, 40, 256]})"},
      {"hdf5_szip", R"({"cd_values": [141, 32, 32, 31]})"},
      {"imagecodecs_lzf", R"({"header": true})"},
      {"imagecodecs_lzw", R"({"level": 1})"},
      {"imagecodecs_delta", R"({"dtype": "<i2"})"},
      {"imagecodecs_delta", R"({"dtype": "<i2", "shape": [4, 4], "axis": 2})"},
      {"imagecodecs_delta", R"({"dtype": "<i2", "shape": [4, -4]})"},
      {"imagecodecs_floatpred", R"({"dtype": "<i2", "shape": [4, 4]})"},
      {"grib", R"({"var": "latitude"})"},
      {"grib", R"({"var": "t2m", "dtype": "int16"})"},
  };
  for (const CodecSpec& spec : mistakes) {
    EXPECT_THROW(kit::make(spec), Error) << spec.name << " " << spec.configuration;
  }
}

// HDF5 stores a chunk that szip would make larger without it.
TEST(Foreign, SzipTakesChunksAsTheyWere) {
  if (!has_aec()) GTEST_SKIP() << "no libaec";
  const CodecPtr codec = kit::make({"hdf5_szip", R"({"cd_values": [169, 8, 8, 40]})"});
  for (const std::size_t n : {2, 3, 240}) {
    const Bytes data = kit::noise(n);
    EXPECT_EQ(kit::decode(*codec, data, n), data);
  }
}

TEST(BitReader, AnyWidthAtAnyPlace) {
  const Bytes data = kit::noise(64);
  for (unsigned first = 0; first < 9; ++first) {
    for (unsigned width = 0; width <= 64; ++width) {
      BitReader bits(data);
      bits.read(first);
      std::uint64_t at = first;
      while (bits.left() >= width && width > 0) {
        std::uint64_t wanted = 0;
        for (unsigned i = 0; i < width; ++i, ++at) {
          const auto byte = std::to_integer<unsigned>(data[at / 8]);
          wanted = wanted << 1 | (byte >> (7 - at % 8) & 1);
        }
        ASSERT_EQ(bits.read(width), wanted) << first << " " << width;
      }
      if (width > 0) {
        EXPECT_THROW(bits.read(width), Error);
      }
    }
  }
}

}  // namespace
}  // namespace headrace
