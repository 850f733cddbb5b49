#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "format/metadata.h"
#include "headrace/error.h"
#include "unit/metadata_documents.h"

namespace headrace {
namespace {

using namespace test;

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
      {{{"data_type", "\"r8000000000\""}}, "item size of 1000000000 bytes"},
      {{{"data_type",
         R"({"name": "raw_bytes", "configuration": {"length_bytes": 4611686018427387904}})"}},
       "item size of 4611686018427387904 bytes"},
      {{{"data_type", R"({"name": "int8", "configuration": {"a": 1}})"}}, "int8"},
      {{{"chunk_grid", R"({"name": "hexagonal", "configuration": {}})"}}, "hexagonal"},
      {{{"chunk_grid",
         R"({"name": "rectilinear", "configuration": {"kind": "elsewhere", "chunk_shapes": []}})"}},
       "elsewhere"},
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

std::string rectilinear(const std::string& chunk_shapes) {
  return R"({"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": )" +
         chunk_shapes + "}}";
}

TEST(MetadataV3, RectilinearGrids) {
  const ArrayMetadata m =
      parse_array_v3(v3({{"chunk_grid", rectilinear("[[[2, 4], 2, 1], [4, 9]]")}}));
  EXPECT_EQ(m.chunk_shape, (Shape{2, 9}));
  ASSERT_EQ(m.chunk_edges.size(), 2u);
  EXPECT_EQ(m.chunk_edges[0].bands, (std::vector<ChunkBand>{{0, 0, 2}, {5, 10, 1}}));
  EXPECT_TRUE(contains(write_array_v3(m), "rectilinear"));
  const ArrayMetadata again = parse_array_v3(write_array_v3(m));
  EXPECT_EQ(again.chunk_edges[0].bands, m.chunk_edges[0].bands);
  EXPECT_EQ(again.chunk_edges[1].end, 13);

  const ArrayMetadata regular = parse_array_v3(v3({{"chunk_grid", rectilinear("[4, 3]")}}));
  EXPECT_EQ(regular.chunk_shape, (Shape{4, 3}));
  EXPECT_TRUE(regular.chunk_edges.empty());
}

TEST(MetadataV3, BadRectilinearGrids) {
  for (const char* chunk_shapes : {"[]",
                                   "[[10]]",
                                   "[[9], [7]]",
                                   "[[], [7]]",
                                   "[0, [7]]",
                                   "[[10, 0], [7]]",
                                   "[[[10, 0]], [7]]",
                                   "[[[-5, 2]], [7]]",
                                   "[[[10]], [7]]",
                                   "[[[4611686018427387904, 2]], [7]]",
                                   "[[\"10\"], [7]]",
                                   "[{}, [7]]",
                                   "7"}) {
    EXPECT_EQ(v3_failure({{"chunk_grid", rectilinear(chunk_shapes)}}).code, ErrorCode::corrupt)
        << chunk_shapes;
  }
}

}  // namespace
}  // namespace headrace
