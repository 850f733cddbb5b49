#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "format/codec_specs.h"
#include "format/metadata.h"
#include "headrace/error.h"
#include "unit/metadata_documents.h"

namespace headrace {
namespace {

using namespace test;

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
  m.shape = {6, 4, 2};
  m.chunk_shape = {3, 4, 2};
  m.dtype = DType::int16;
  m.chunk_keys = {false, '.'};
  m.zarr_format = 2;
  for (const std::vector<CodecSpec>& chain :
       {std::vector<CodecSpec>{{"sharding_indexed", R"({"chunk_shape":[1,1,1]})"}},
        {{"transpose", R"({"order":[1,0,2]})"}, {"bytes", ""}}}) {
    m.codecs = chain;
    EXPECT_EQ(failure_of([&] { write_array_v2(m); }).code, ErrorCode::unsupported);
  }
  m.codecs = {{"transpose", R"({"order":[0,1,2]})"}, {"bytes", R"({"endian":"little"})"}};
  EXPECT_TRUE(contains(write_array_v2(m), R"("order": "C")")) << "which changes nothing";
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

TEST(MetadataWrite, FiltersStandInFrontOfBytesInV3) {
  const auto json = [](const std::vector<CodecSpec>& codecs) { return codecs_to_json(codecs); };
  const CodecSpec big{"bytes", R"({"endian":"big"})"};
  const CodecSpec little{"bytes", R"({"endian":"little"})"};
  const CodecSpec transpose{"transpose", R"({"order":[1,0]})"};
  const CodecSpec shuffle{"numcodecs.shuffle", R"({"elementsize":2})"};
  const auto delta = [](const std::string& dtype, const std::string& astype) {
    return CodecSpec{"numcodecs.delta",
                     R"({"dtype":")" + dtype + R"(","astype":")" + astype + R"("})"};
  };
  const auto in_front = [&](const std::vector<CodecSpec>& codecs) {
    return json(lower_to_v3(codecs));
  };
  const std::string native = native_order() == ByteOrder::big ? ">" : "<";
  EXPECT_EQ(in_front({transpose, big, delta(">i4", ">i2"), shuffle}),
            json({transpose, delta(native + "i4", native + "i2"), little, shuffle}));
  EXPECT_EQ(in_front({little, delta("<i4", "|i1")}),
            json({delta(native + "i4", "|i1"), {"bytes", ""}}));
  EXPECT_EQ(in_front({little, shuffle}), json({little, shuffle}));
  EXPECT_EQ(in_front({big}), json({big}));
  // They would work on other bytes there.
  for (const auto& codecs : std::vector<std::vector<CodecSpec>>{
           {little, delta(">i4", "<i4")}, {little, shuffle, delta("<i4", "<i4")}}) {
    EXPECT_EQ(failure_of([&] { lower_to_v3(codecs); }).code, ErrorCode::unsupported);
  }
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
