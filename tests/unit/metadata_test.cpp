#include "format/metadata.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/error.h"

namespace headrace {
namespace {

struct Failure {
  ErrorCode code;
  std::string message;
};

Failure failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return {e.code(), e.what()};
  }
  return {ErrorCode::io, "nothing was thrown"};
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// A document made from a good one by replacing (or, with an empty value, dropping) fields.
using Fields = std::vector<std::pair<std::string, std::string>>;

std::string document(Fields fields, const Fields& changes) {
  for (const auto& [key, value] : changes) {
    bool found = false;
    for (auto& field : fields) {
      if (field.first != key) continue;
      field.second = value;
      found = true;
    }
    if (!found) fields.emplace_back(key, value);
  }
  std::string text;
  for (const auto& [key, value] : fields) {
    if (!value.empty()) text += (text.empty() ? "\"" : ",\n \"") + key + "\": " + value;
  }
  return "{" + text + "}";
}

std::string v3(const Fields& changes = {}) {
  return document(
      {{"zarr_format", "3"},
       {"node_type", "\"array\""},
       {"shape", "[10, 7]"},
       {"data_type", "\"int16\""},
       {"chunk_grid", R"({"name": "regular", "configuration": {"chunk_shape": [4, 3]}})"},
       {"chunk_key_encoding", R"({"name": "default", "configuration": {"separator": "/"}})"},
       {"fill_value", "0"},
       {"codecs", R"([{"name": "bytes", "configuration": {"endian": "little"}}])"}},
      changes);
}

std::string v2(const Fields& changes = {}) {
  return document({{"zarr_format", "2"},
                   {"shape", "[10, 7]"},
                   {"chunks", "[4, 3]"},
                   {"dtype", "\"<i2\""},
                   {"compressor", "null"},
                   {"fill_value", "0"},
                   {"order", "\"C\""},
                   {"filters", "null"}},
                  changes);
}

Failure v3_failure(const Fields& changes) {
  return failure_of([&] { parse_array_v3(v3(changes)); });
}
Failure v2_failure(const Fields& changes) {
  return failure_of([&] { parse_array_v2(v2(changes), ""); });
}

TEST(MetadataV3, ReadsEveryField) {
  const ArrayMetadata m = parse_array_v3(
      v3({{"attributes", R"({"units": "K", "x": NaN})"},
          {"dimension_names", R"(["t", null])"},
          {"storage_transformers", "[]"},
          {"codecs", R"([{"name": "transpose", "configuration": {"order": [1, 0]}}, "bytes",
                         {"name": "zstd", "configuration": {"level": 0, "checksum": false}}, "crc32c"])"}}));
  EXPECT_EQ(m.zarr_format, 3);
  EXPECT_EQ(m.shape, (Shape{10, 7}));
  EXPECT_EQ(m.chunk_shape, (Shape{4, 3}));
  EXPECT_EQ(m.dtype, DType::int16);
  ASSERT_EQ(m.codecs.size(), 4u);
  EXPECT_EQ(m.codecs[0], (CodecSpec{"transpose", R"({"order":[1,0]})"}));
  EXPECT_EQ(m.codecs[1], (CodecSpec{"bytes", ""}));
  EXPECT_EQ(m.codecs[2], (CodecSpec{"zstd", R"({"level":0,"checksum":false})"}));
  EXPECT_EQ(m.fill_value, std::vector<std::byte>(2));
  EXPECT_EQ(m.attributes, R"({"units": "K", "x": NaN})");
  EXPECT_EQ(m.dimension_names, (std::vector<std::optional<std::string>>{"t", std::nullopt}));
}

TEST(MetadataV3, ChunkKeyEncodings) {
  const struct {
    const char* json;
    bool prefix;
    char separator;
  } table[] = {{"\"default\"", true, '/'},
               {R"({"name": "default"})", true, '/'},
               {R"({"name": "default", "configuration": {"separator": "."}})", true, '.'},
               {"\"v2\"", false, '.'},
               {R"({"name": "v2", "configuration": {"separator": "/"}})", false, '/'}};
  for (const auto& row : table) {
    const ArrayMetadata m = parse_array_v3(v3({{"chunk_key_encoding", row.json}}));
    EXPECT_EQ(m.chunk_keys.default_prefix, row.prefix) << row.json;
    EXPECT_EQ(m.chunk_keys.separator, row.separator) << row.json;
  }
}

TEST(MetadataV3, DataTypes) {
  const struct {
    const char* json;
    const char* fill;
    const char* name;
  } table[] = {
      {"\"bfloat16\"", "0", "bfloat16"},
      {R"({"name": "float32"})", "0", "float32"},
      {R"({"name": "int8", "configuration": {}})", "0", "int8"},
      {"\"r16\"", "[1, 2]", "r16"},
      {R"({"name": "raw_bytes", "configuration": {"length_bytes": 8}})", "\"AAAAAAAAAAA=\"", "r64"},
      {R"({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 25}})",
       "\"NaT\"",
       "numpy.datetime64[25s]"},
      {R"({"name": "numpy.timedelta64", "configuration": {"unit": "generic", "scale_factor": 1}})",
       "0",
       "numpy.timedelta64[generic]"},
      {R"({"name": "fixed_length_utf32", "configuration": {"length_bytes": 16}})",
       "\"\"",
       "fixed_length_utf32[4]"},
      {R"({"name": "null_terminated_bytes", "configuration": {"length_bytes": 5}})",
       "\"\"",
       "null_terminated_bytes[5]"},
      {"\"string\"", "\"\"", "string"},
      {"\"variable_length_bytes\"", "\"\"", "bytes"},
      {R"({"name": "structured", "configuration": {"fields": [["a", "int32"], ["b", "float64"]]}})",
       "\"AAAAAAAAAAAAAAAA\"",
       "struct{a: int32 @0, b: float64 @4}"},
      {R"({"name": "struct", "configuration": {"fields": [{"name": "p", "data_type": {"name": "struct", "configuration":
         {"fields": [{"name": "x", "data_type": "uint8"}]}}}, {"name": "y", "data_type": "float32"}]}})",
       R"({"p": {"x": 1}, "y": "NaN"})",
       "struct{p: struct{x: uint8 @0} @0, y: float32 @1}"},
  };
  for (const auto& row : table) {
    const ArrayMetadata m = parse_array_v3(v3({{"data_type", row.json}, {"fill_value", row.fill}}));
    EXPECT_EQ(m.dtype.to_string(), row.name);
  }
  const ArrayMetadata big = parse_array_v3(
      v3({{"data_type", table[11].json},
          {"fill_value", "[1, 0]"},
          {"codecs", R"([{"name": "bytes", "configuration": {"endian": "big"}}])"}}));
  EXPECT_TRUE(big.dtype.fields()[0].big_endian);
  EXPECT_EQ(big.fill_value->at(3), std::byte{1});
}

TEST(MetadataV3, MalformedIsCorrupt) {
  const Fields table[] = {
      {{"zarr_format", "2"}},
      {{"zarr_format", "\"3\""}},
      {{"zarr_format", ""}},
      {{"node_type", "\"group\""}},
      {{"node_type", ""}},
      {{"shape", ""}},
      {{"shape", "[-1, 7]"}},
      {{"shape", "[1.5, 7]"}},
      {{"shape", "10"}},
      {{"shape", "[9223372036854775808, 7]"}},
      {{"shape", "[10]"}},
      {{"shape", "[\"10\", 7]"}},
      {{"data_type", ""}},
      {{"data_type", "5"}},
      {{"data_type", R"({"name": "numpy.datetime64"})"}},
      {{"data_type",
        R"({"name": "numpy.datetime64", "configuration": {"unit": "fortnight", "scale_factor": 1}})"}},
      {{"data_type",
        R"({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 2147483648}})"}},
      {{"data_type", R"({"name": "fixed_length_utf32", "configuration": {"length_bytes": 5}})"}},
      {{"data_type", R"({"name": "raw_bytes", "configuration": {"length_bytes": -5}})"}},
      {{"data_type",
        R"({"name": "raw_bytes", "configuration": {"length_bytes": 4611686018427387904}})"}},
      {{"data_type", R"({"name": "struct", "configuration": {"fields": []}})"}},
      {{"data_type",
        R"({"name": "struct", "configuration": {"fields": [["a", "int8"], ["a", "int8"]]}})"}},
      {{"data_type", R"({"name": "struct", "configuration": {"fields": [["a", "string"]]}})"}},
      {{"chunk_grid", ""}},
      {{"chunk_grid", "\"regular\""}},
      {{"chunk_grid", R"({"name": "regular", "configuration": {"chunk_shape": [4]}})"}},
      {{"chunk_grid", R"({"name": "regular", "configuration": {"chunk_shape": [4, 0]}})"}},
      {{"chunk_grid", R"({"name": "regular", "configuration": {"chunk_shape": [4, -3]}})"}},
      {{"chunk_key_encoding", ""}},
      {{"chunk_key_encoding", R"({"name": "default", "configuration": {"separator": "-"}})"}},
      {{"codecs", ""}},
      {{"codecs", "[]"}},
      {{"codecs", "[5]"}},
      {{"codecs", "[{}]"}},
      {{"codecs", "[\"\"]"}},
      {{"codecs", R"([{"name": "bytes", "configuration": 5}])"}},
      {{"fill_value", ""}},
      {{"fill_value", "40000"}},
      {{"fill_value", "\"x\""}},
      {{"attributes", "5"}},
      {{"dimension_names", R"(["x"])"}},
      {{"dimension_names", R"(["x", 5])"}},
      {{"codecs", R"([{"name": "transpose", "configuration": {"order": [0, 2]}}, "bytes"])"}},
      {{"shape", "[1, 1], \"shape\": [10, 7]"}},
  };
  for (const Fields& changes : table) {
    const Failure f = v3_failure(changes);
    EXPECT_EQ(f.code, ErrorCode::corrupt)
        << changes[0].first << " " << changes[0].second << ": " << f.message;
    EXPECT_NE(f.message, "nothing was thrown") << changes[0].second;
  }
  EXPECT_EQ(failure_of([] { parse_array_v3(""); }).code, ErrorCode::corrupt);
  EXPECT_EQ(failure_of([] { parse_array_v3("[]"); }).code, ErrorCode::corrupt);
}

TEST(MetadataV3, UnknownIsNamedAsUnsupported) {
  const struct {
    Fields changes;
    const char* part;
  } table[] = {
      {{{"data_type", "\"float128\""}}, "float128"},
      {{{"data_type", R"({"name": "int8", "configuration": {"a": 1}})"}}, "int8"},
      {{{"chunk_grid", R"({"name": "rectilinear", "configuration": {}})"}}, "rectilinear"},
      {{{"chunk_grid", R"({"name": "regular", "configuration": {"chunk_shape": [4, 3], "z": 1}})"}},
       "z"},
      {{{"chunk_key_encoding", "\"fanout\""}}, "fanout"},
      {{{"storage_transformers", R"([{"name": "x"}])"}}, "storage_transformers[0]"},
      {{{"new_field", "5"}}, "new_field"},
      {{{"new_field", R"({"must_understand": true})"}}, "new_field"},
      {{{"codecs", R"([{"name": "bytes", "extra": 1}])"}}, "extra"},
      {{{"chunk_grid",
         R"({"name": "regular", "configuration": {"chunk_shape": [281474976710656, 3]}})"}},
       "exceed"},
  };
  for (const auto& row : table) {
    const Failure f = v3_failure(row.changes);
    EXPECT_EQ(f.code, ErrorCode::unsupported) << row.part << ": " << f.message;
    EXPECT_TRUE(contains(f.message, row.part)) << f.message;
  }
  EXPECT_NO_THROW(parse_array_v3(v3({{"new_field", R"({"must_understand": false, "a": 1})"}})));
}

TEST(MetadataV3, ExtremeShapes) {
  const auto grid = [](const std::string& chunks) {
    return R"({"name": "regular", "configuration": {"chunk_shape": )" + chunks + "}}";
  };
  const ArrayMetadata scalar = parse_array_v3(v3({{"shape", "[]"}, {"chunk_grid", grid("[]")}}));
  EXPECT_EQ(scalar.ndim(), 0u);
  const ArrayMetadata empty =
      parse_array_v3(v3({{"shape", "[0, 7]"}, {"chunk_grid", grid("[0, 3]")}}));
  EXPECT_EQ(empty.chunk_shape, (Shape{1, 3})) << "as zarr-python wrote it";
  EXPECT_NO_THROW(parse_array_v3(v3({{"shape", "[9223372036854775807, 9223372036854775807]"}})));
  std::string many = "[1";
  for (int i = 0; i < 64; ++i) many += ",1";
  EXPECT_EQ(v3_failure({{"shape", many + "]"}, {"chunk_grid", grid(many + "]")}}).code,
            ErrorCode::unsupported);
}

std::string sharding(const std::string& inner, const std::string& codecs = "[\"bytes\"]") {
  return R"([{"name": "sharding_indexed", "configuration": {"chunk_shape": )" + inner +
         R"(, "codecs": )" + codecs +
         R"(, "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, "crc32c"]}}])";
}

TEST(MetadataV3, Sharding) {
  const ArrayMetadata m = parse_array_v3(v3({{"codecs", sharding("[2, 1]")}}));
  const ShardingConfig config = parse_sharding(m.codecs[0]);
  EXPECT_EQ(config.chunk_shape, (Shape{2, 1}));
  EXPECT_TRUE(config.index_at_end);
  EXPECT_EQ(config.index_codecs.size(), 2u);
  EXPECT_FALSE(parse_sharding({"sharding_indexed",
                               R"({"chunk_shape":[1],"codecs":["bytes"],"index_codecs":["bytes"],
                                   "index_location":"start"})"})
                   .index_at_end);
  EXPECT_NO_THROW(parse_array_v3(v3({{"codecs", sharding("[2, 3]", sharding("[1, 3]"))}})));
  for (const std::string& bad : {sharding("[3, 1]"),
                                 sharding("[2]"),
                                 sharding("[0, 1]"),
                                 sharding("[8, 3]"),
                                 sharding("[2, 3]", sharding("[2, 2]")),
                                 sharding("[2, 1]", "[]"),
                                 std::string(R"(["sharding_indexed"])")}) {
    EXPECT_EQ(v3_failure({{"codecs", bad}}).code, ErrorCode::corrupt) << bad;
  }
  // The inner shape is of the transposed chunk.
  const std::string transposed = R"([{"name": "transpose", "configuration": {"order": [1, 0]}}, )";
  EXPECT_NO_THROW(parse_array_v3(v3({{"codecs", transposed + sharding("[3, 2]").substr(1)}})));
  EXPECT_EQ(v3_failure({{"codecs", transposed + sharding("[2, 3]").substr(1)}}).code,
            ErrorCode::corrupt);
  EXPECT_EQ(failure_of([] {
              parse_sharding({"sharding_indexed",
                              R"({"chunk_shape":[1],"codecs":["bytes"],"index_codecs":["bytes"],
                                                      "index_location":"middle"})"});
            }).code,
            ErrorCode::corrupt);
  std::string nested = "[\"bytes\"]";
  for (int i = 0; i < 20; ++i) nested = sharding("[1, 1]", nested);
  EXPECT_EQ(v3_failure({{"codecs", nested}}).code, ErrorCode::unsupported);
}

TEST(MetadataV3, Groups) {
  const std::string group =
      R"({"zarr_format": 3, "node_type": "group", "attributes": {"a": 1}, "consolidated_metadata": {"kind": "inline",
          "must_understand": false, "metadata": {"x": {"zarr_format": 3, "node_type": "group"}, "x/y": {"n": NaN}}}})";
  const GroupMetadata m = parse_group_v3(group);
  EXPECT_EQ(m.attributes, R"({"a": 1})");
  ASSERT_TRUE(m.consolidated);
  EXPECT_EQ(m.consolidated->at("x/y"), R"({"n": NaN})");
  EXPECT_FALSE(
      parse_group_v3(R"({"zarr_format": 3, "node_type": "group", "consolidated_metadata": null})")
          .consolidated);
  EXPECT_EQ(v3_node_type(group), NodeType::group);
  EXPECT_EQ(v3_node_type(v3()), NodeType::array);
  for (const char* bad : {"{}",
                          R"({"zarr_format": 3, "node_type": "tree"})",
                          R"({"zarr_format": 2, "node_type": "group"})"}) {
    EXPECT_EQ(failure_of([&] { v3_node_type(bad); }).code, ErrorCode::corrupt) << bad;
  }
  for (const char* path : {"", "/x", "x/", "../x", "a//b", "a/./b"}) {
    const std::string bad =
        R"({"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"metadata": {")" +
        std::string(path) + "\": {}}}}";
    EXPECT_EQ(failure_of([&] { parse_group_v3(bad); }).code, ErrorCode::corrupt) << path;
  }
}

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
       {{"numcodecs.vlen-utf8", ""}}},
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

TEST(MetadataWrite, ArrayV3ReadsBackTheSame) {
  ArrayMetadata m;
  m.shape = {100, 20};
  m.chunk_shape = {10, 20};
  m.dtype = DType::float32;
  m.codecs = {
      {"sharding_indexed",
       R"({"chunk_shape":[5,20],"codecs":[{"name":"bytes"},{"name":"blosc","configuration":{"typesize":0}}],
                   "index_codecs":["bytes","crc32c"]})"},
      {"crc32c", ""}};
  m.fill_value =
      std::vector<std::byte>{std::byte{1}, std::byte{0}, std::byte{0xC0}, std::byte{0x7F}};
  m.attributes = R"({"a": [1, NaN]})";
  m.dimension_names = {"x\"y", std::nullopt};
  const ArrayMetadata back = parse_array_v3(write_array_v3(m));
  EXPECT_EQ(back.shape, m.shape);
  EXPECT_EQ(back.chunk_shape, m.chunk_shape);
  EXPECT_EQ(back.dtype, m.dtype);
  EXPECT_EQ(back.fill_value, m.fill_value);
  EXPECT_EQ(back.dimension_names, m.dimension_names);
  EXPECT_EQ(checked_json_object(back.attributes, "attributes"), R"({"a":[1,NaN]})");
  EXPECT_TRUE(contains(back.codecs[0].configuration, R"("typesize":4)"))
      << "left open by the caller";
  m.fill_value.reset();
  EXPECT_EQ(parse_array_v3(write_array_v3(m)).fill_value, std::vector<std::byte>(4));
}

TEST(MetadataWrite, DataTypesReadBackTheSame) {
  for (const DType& dtype :
       {DType::boolean,
        DType::uint64,
        DType::complex64,
        DType::bfloat16,
        DType::from_name("float8_e4m3fn"),
        DType::from_name("int4"),
        DType::datetime("s", 25),
        DType::timedelta("generic"),
        DType::fixed_bytes(7),
        DType::fixed_utf32(3),
        DType::raw(5),
        DType::structure({{"a\"", DType::int16, 0, false, {}}, {"b", DType::float64, 2, false, {}}},
                         10)}) {
    ArrayMetadata m;
    m.shape = {6, 4};
    m.chunk_shape = {3, 4};
    m.dtype = dtype;
    m.codecs = {{"bytes", dtype.swap_size() > 1 ? R"({"endian":"little"})" : ""}};
    m.fill_value = std::vector<std::byte>(dtype.itemsize());
    const ArrayMetadata v3_back = parse_array_v3(write_array_v3(m));
    EXPECT_EQ(v3_back.dtype, dtype) << dtype.to_string();
    EXPECT_EQ(v3_back.fill_value, m.fill_value) << dtype.to_string();
    m.zarr_format = 2;
    m.chunk_keys = {false, '.'};
    const ArrayMetadata v2_back = parse_array_v2(write_array_v2(m), "");
    EXPECT_EQ(v2_back.dtype, dtype) << dtype.to_string();
    EXPECT_EQ(v2_back.fill_value, m.fill_value) << dtype.to_string();
    EXPECT_EQ(v2_back.codecs, m.codecs) << dtype.to_string();
  }
}

TEST(MetadataWrite, WhatAFormatCannotSayIsUnsupported) {
  ArrayMetadata m;
  m.shape = {6, 4};
  m.chunk_shape = {3, 4};
  m.dtype = DType::int16;
  m.chunk_keys = {false, '.'};
  m.zarr_format = 2;
  for (const std::vector<CodecSpec>& chain :
       {std::vector<CodecSpec>{{"sharding_indexed", R"({"chunk_shape":[1,1]})"}},
        {{"transpose", R"({"order":[0,1]})"}, {"bytes", ""}}}) {
    m.codecs = chain;
    EXPECT_EQ(failure_of([&] { write_array_v2(m); }).code, ErrorCode::unsupported);
  }
  m.codecs = {{"bytes", R"({"endian":"big"})"}, {"zlib", R"({"level":3})"}};
  EXPECT_TRUE(contains(write_array_v2(m), "\">i2\""));
  EXPECT_TRUE(contains(write_array_v2(m), "\"zlib\""));
  m.codecs = {{"bytes", R"({"endian":"little"})"}};
  m.dtype = DType::structure({{"a", DType::int16, 0, true, {}}}, 2);
  EXPECT_EQ(failure_of([&] { write_array_v3(m); }).code, ErrorCode::unsupported);
  m.dtype = DType::structure({{"a", DType::int16, 0, false, {2}}}, 4);
  EXPECT_EQ(failure_of([&] { write_array_v3(m); }).code, ErrorCode::unsupported);
  m.dtype = DType::int16;
  m.attributes = "[1]";
  EXPECT_EQ(failure_of([&] { write_array_v3(m); }).code, ErrorCode::invalid_argument);
}

TEST(MetadataWrite, EditsKeepEverythingElse) {
  const std::string text =
      v3({{"attributes", R"({"big": 123456789012345678901234567890, "x": NaN})"},
          {"private", R"({"must_understand": false, "k":  [1,   2]})"}});
  std::string expected = text;
  expected.replace(expected.find("[10, 7]"), 7, "[20,7]");
  EXPECT_EQ(with_shape(text, {20, 7}), expected);
  EXPECT_EQ(parse_array_v2(with_shape(v2(), {1, 2}), "").shape, (Shape{1, 2}));
  const std::string edited = with_attributes(text, "{ \"a\" : 1 }");
  EXPECT_TRUE(contains(edited, R"("attributes": {"a":1})"));
  EXPECT_TRUE(contains(edited, R"("k":  [1,   2])"));
  EXPECT_EQ(parse_array_v3(with_attributes(v3(), R"({"b": 2})")).attributes, R"({"b":2})");
  EXPECT_EQ(failure_of([&] { with_attributes(text, "5"); }).code, ErrorCode::invalid_argument);
  EXPECT_EQ(failure_of([&] { with_attributes(text, "{"); }).code, ErrorCode::invalid_argument);
}

TEST(MetadataWrite, Groups) {
  EXPECT_EQ(parse_group_v3(write_group_v3("")).attributes, "{}");
  EXPECT_EQ(checked_json_object(parse_group_v3(write_group_v3(R"({"a":1})")).attributes, ""),
            R"({"a":1})");
  EXPECT_EQ(parse_group_v2(write_group_v2(), "").zarr_format, 2);
  const std::string joined =
      with_consolidated(write_group_v3(R"({"a":1})"), {{"x", write_group_v3("")}, {"y/z", v3()}});
  const GroupMetadata m = parse_group_v3(joined);
  ASSERT_TRUE(m.consolidated);
  EXPECT_EQ(parse_array_v3(m.consolidated->at("y/z")).shape, (Shape{10, 7}));
  const GroupMetadata replaced = parse_group_v3(with_consolidated(joined, {}));
  EXPECT_TRUE(replaced.consolidated && replaced.consolidated->empty());
}

}  // namespace
}  // namespace headrace
