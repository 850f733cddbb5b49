#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "format/metadata.h"
#include "headrace/error.h"
#include "unit/metadata_documents.h"

namespace headrace {
namespace {

using namespace test;

TEST(MetadataV2, LowersToOneChain) {
  using Chain = std::vector<CodecSpec>;
  const CodecSpec little{"bytes", R"({"endian":"little"})"}, big{"bytes", R"({"endian":"big"})"},
      plain{"bytes", ""};
  const CodecSpec reversed{"transpose", R"({"order":[1,0]})"};
  const struct {
    Fields changes;
    Chain chain;
  } table[] = {
      {{}, {little}},
      {{{"dtype", "\">i2\""}, {"order", "\"F\""}}, {reversed, big}},
      {{{"dtype", "\"|u1\""}}, {plain}},
      {{{"dtype", "\">M8[ns]\""}}, {big}},
      {{{"order", ""}, {"filters", ""}, {"compressor", ""}}, {little}},
      {{{"shape", "[3]"}, {"chunks", "[3]"}, {"order", "\"F\""}}, {little}},
      {{{"compressor",
         R"({"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0})"}},
       {little,
        {"blosc", R"({"typesize":2,"cname":"lz4","clevel":5,"shuffle":"shuffle","blocksize":0})"}}},
      {{{"compressor", R"({"id": "blosc", "cname": "zstd", "clevel": 1, "shuffle": -1})"},
        {"dtype", "\"|i1\""}},
       {plain,
        {"blosc",
         R"({"typesize":1,"cname":"zstd","clevel":1,"shuffle":"bitshuffle","blocksize":0})"}}},
      {{{"compressor", R"({"id": "blosc", "shuffle": -1})"}, {"dtype", "\"<f8\""}},
       {little,
        {"blosc", R"({"typesize":8,"cname":"lz4","clevel":5,"shuffle":"shuffle","blocksize":0})"}}},
      {{{"compressor", R"({"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": "BIT"})"}},
       {little,
        {"blosc",
         R"({"typesize":2,"cname":"zstd","clevel":5,"shuffle":"bitshuffle","blocksize":0})"}}},
      {{{"compressor", R"({"id": "zstd", "level": 3, "checksum": "NO"})"}},
       {little, {"zstd", R"({"level":3,"checksum":false})"}}},
      {{{"compressor", R"({"id": "zstd", "level": 0})"}},
       {little, {"zstd", R"({"level":0,"checksum":false})"}}},
      {{{"compressor", R"({"id": "gzip", "level": 9})"}}, {little, {"gzip", R"({"level":9})"}}},
      {{{"compressor", R"({"id": "zlib", "level": 1})"}},
       {little, {"numcodecs.zlib", R"({"level":1})"}}},
      {{{"compressor", R"({"id": "bz2"})"}}, {little, {"numcodecs.bz2", ""}}},
      {{{"filters",
         R"([{"id": "fixedscaleoffset", "scale": 10, "offset": 1.5, "dtype": "<f8", "astype": "|u1"},
                        {"id": "delta", "dtype": "|u1"}])"},
        {"dtype", "\"<f8\""},
        {"fill_value", "\"NaN\""},
        {"compressor", R"({"id": "blosc", "shuffle": 2})"}},
       {little,
        {"numcodecs.fixedscaleoffset", R"({"scale":10,"offset":1.5,"dtype":"<f8","astype":"|u1"})"},
        {"numcodecs.delta", R"({"dtype":"|u1"})"},
        {"blosc",
         R"({"typesize":1,"cname":"lz4","clevel":5,"shuffle":"bitshuffle","blocksize":0})"}}},
      {{{"dtype", "\"|O\""}, {"filters", R"([{"id": "vlen-utf8"}])"}, {"fill_value", "\"\""}},
       {{"vlen-utf8", ""}}},
      {{{"dtype", R"([["r", "|u1"], ["z", ">f4", [2, 2]], ["n", [["x", "<i2"]]]])"},
        {"fill_value", "null"}},
       {plain}},
  };
  for (const auto& row : table) {
    const ArrayMetadata m = parse_array_v2(v2(row.changes), "");
    EXPECT_EQ(m.codecs, row.chain) << v2(row.changes);
    EXPECT_EQ(m.zarr_format, 2);
    // What was lowered can be raised, and means the same again.
    const ArrayMetadata again = parse_array_v2(write_array_v2(m), "");
    EXPECT_EQ(again.codecs, m.codecs);
    EXPECT_EQ(again.dtype, m.dtype);
    EXPECT_EQ(again.fill_value, m.fill_value);
    EXPECT_EQ(again.shape, m.shape);
    EXPECT_EQ(again.chunk_shape, m.chunk_shape);
  }
}

TEST(MetadataV2, StructuresAndKeys) {
  const ArrayMetadata m = parse_array_v2(
      v2({{"dtype",
           R"([["r", "|u1"], ["z", ">f4", [2, 2]], ["n", [["x", "<i2"]]], ["s", "<U2", 3]])"},
          {"fill_value", "null"},
          {"dimension_separator", "\"/\""},
          {"_nczarr_array", R"({"dimrefs": ["/x"]})"}}),
      R"({"_ARRAY_DIMENSIONS": ["y", "x"], "v": -Infinity})");
  EXPECT_EQ(m.dtype.itemsize(), 1u + 16 + 2 + 24);
  EXPECT_TRUE(m.dtype.fields()[1].big_endian);
  EXPECT_EQ(m.dtype.fields()[2].offset_bytes, 17u);
  EXPECT_EQ(m.dtype.fields()[3].shape, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(m.fill_value, std::nullopt);
  EXPECT_EQ(m.chunk_keys.separator, '/');
  EXPECT_FALSE(m.chunk_keys.default_prefix);
  EXPECT_EQ(m.dimension_names, (std::vector<std::optional<std::string>>{"y", "x"}));
  EXPECT_TRUE(parse_array_v2(v2(), R"({"_ARRAY_DIMENSIONS": ["y"]})").dimension_names.empty());
  EXPECT_TRUE(parse_array_v2(v2(), R"({"_ARRAY_DIMENSIONS": 5})").dimension_names.empty());
  EXPECT_EQ(parse_array_v2(v2({{"dtype", "\"bfloat16\""}}), "").dtype, DType::bfloat16);
}

TEST(MetadataV2, BadDocuments) {
  const struct {
    Fields changes;
    ErrorCode code;
  } table[] = {
      {{{"zarr_format", "3"}}, ErrorCode::corrupt},
      {{{"shape", "[10]"}}, ErrorCode::corrupt},
      {{{"chunks", "[0, 3]"}}, ErrorCode::corrupt},
      {{{"chunks", "null"}}, ErrorCode::corrupt},
      {{{"dtype", "\"<i3\""}}, ErrorCode::corrupt},
      {{{"dtype", "\"|O\""}}, ErrorCode::unsupported},
      {{{"dtype", "\"|O\""}, {"filters", R"([{"id": "pickle"}])"}}, ErrorCode::unsupported},
      {{{"dtype", "\"<f16\""}}, ErrorCode::unsupported},
      {{{"dtype", "[]"}}, ErrorCode::corrupt},
      {{{"dtype", R"([["a"]])"}}, ErrorCode::corrupt},
      {{{"dtype", R"([["a", "<i2", [-1]]])"}}, ErrorCode::corrupt},
      {{{"dtype", R"([["a", "<i2", [4611686018427387904, 4]]])"}}, ErrorCode::corrupt},
      {{{"order", "\"K\""}}, ErrorCode::corrupt},
      {{{"filters", "[{}]"}}, ErrorCode::corrupt},
      {{{"filters", "{}"}}, ErrorCode::corrupt},
      {{{"compressor", "\"zlib\""}}, ErrorCode::corrupt},
      {{{"compressor", R"({"id": "blosc", "shuffle": 7})"}}, ErrorCode::corrupt},
      {{{"compressor", R"({"id": "blosc", "shuffle": "AUTO"})"}}, ErrorCode::corrupt},
      {{{"compressor", R"({"id": "gzip", "level": "x"})"}}, ErrorCode::corrupt},
      {{{"dimension_separator", "\"-\""}}, ErrorCode::corrupt},
      {{{"fill_value", ""}}, ErrorCode::corrupt},
      {{{"fill_value", "1e9"}}, ErrorCode::corrupt},
  };
  for (const auto& row : table) {
    const Failure f = v2_failure(row.changes);
    EXPECT_EQ(f.code, row.code) << row.changes[0].first << " " << row.changes[0].second << ": "
                                << f.message;
  }
  std::string deep = "\"<i2\"";
  for (int i = 0; i < 40; ++i) deep = "[[\"a\", " + deep + "]]";
  EXPECT_EQ(v2_failure({{"dtype", deep}, {"fill_value", "null"}}).code, ErrorCode::unsupported);
  EXPECT_EQ(failure_of([] { parse_array_v2(v2(), "[]"); }).code, ErrorCode::corrupt);
  EXPECT_EQ(failure_of([] { parse_group_v2("{}", ""); }).code, ErrorCode::corrupt);
}

TEST(MetadataV2, Consolidated) {
  const std::string text =
      R"({"zarr_consolidated_format": 1, "metadata": {".zgroup": {"zarr_format": 2},
      ".zattrs": {"t": NaN}, "a/b/.zarray": {"x": 1}, "a/.zgroup": {"zarr_format": 2}, ".nczarr": {}}})";
  const auto nodes = parse_consolidated_v2(text);
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes.at("").zattrs, R"({"t": NaN})");
  EXPECT_EQ(nodes.at("a/b").zarray, R"({"x": 1})");
  EXPECT_EQ(nodes.at("a/b").zgroup, "");
  const auto again = parse_consolidated_v2(write_consolidated_v2(nodes));
  EXPECT_EQ(again.at("").zattrs, "{\n      \"t\": NaN\n    }");
  for (const char* bad : {R"({"metadata": {"../a/.zarray": {}}})",
                          R"({"metadata": {"/.zarray": {}}})",
                          R"({"metadata": {"a/.zarray": 5}})",
                          R"({"metadata": {"a/.zarray": {}, "a/.zarray": {}}})",
                          R"({"metadata": 1})",
                          "{}"}) {
    EXPECT_EQ(failure_of([&] { parse_consolidated_v2(bad); }).code, ErrorCode::corrupt) << bad;
  }
  EXPECT_EQ(failure_of([] {
              parse_consolidated_v2(R"({"zarr_consolidated_format": 2, "metadata": {}})");
            }).code,
            ErrorCode::unsupported);
}

}  // namespace
}  // namespace headrace
