#include "format/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace headrace {
namespace {

std::string failure(std::string_view text) {
  try {
    Json::parse(text, "doc");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::corrupt);
    return e.what();
  }
  return "";
}

TEST(Json, AcceptsWhatPythonWrites) {
  for (const char* text : {"NaN",
                           "-Infinity",
                           "[NaN,Infinity,-Infinity]",
                           "{\"a\": NaN}",
                           "1e400",
                           "-0",
                           "0.5e-3",
                           "123456789012345678901234567890",
                           "\"\\ud800\"",
                           "\" \xf0\x9f\x8c\x8a \\u00e9\"",
                           " {} \n",
                           "\xef\xbb\xbf{}",
                           "[[],{},\"\",null,true,false]"}) {
    EXPECT_EQ(failure(text), "") << text;
  }
}

TEST(Json, RefusesWhatIsNone) {
  using namespace std::string_literals;
  for (const std::string& text : {""s,
                                  " "s,
                                  "{"s,
                                  "["s,
                                  "[1,]"s,
                                  "{\"a\"}"s,
                                  "{\"a\":}"s,
                                  "{\"a\":1,}"s,
                                  "{a:1}"s,
                                  "01"s,
                                  "1."s,
                                  ".5"s,
                                  "+1"s,
                                  "1e"s,
                                  "1e+"s,
                                  "--1"s,
                                  "nan"s,
                                  "-NaN"s,
                                  "Infinit"s,
                                  "tru"s,
                                  "\"abc"s,
                                  "\"\\x\""s,
                                  "\"\\u12\""s,
                                  "\"\\u12g4\""s,
                                  "\"\n\""s,
                                  "\"\\"s,
                                  "\"a\0b\""s,
                                  "{} {}"s,
                                  "[1 2]"s,
                                  "\"\x80\""s,
                                  "\"\xc0\xaf\""s,
                                  "\"\xed\xa0\x80\""s,
                                  "\"\xf4\x90\x80\x80\""s,
                                  "\"\xe2\x82\""s,
                                  "'a'"s,
                                  "1\0"s,
                                  "{\"a\":1"s,
                                  "]"s,
                                  "// x\n1"s}) {
    EXPECT_NE(failure(text), "") << text;
  }
}

TEST(Json, NestingHasALimit) {
  EXPECT_EQ(failure(std::string(200, '[') + std::string(200, ']')), "");
  EXPECT_NE(failure(std::string(201, '[') + std::string(201, ']')), "");
  EXPECT_NE(failure(std::string(10'000'000, '[')), "");
}

TEST(Json, ErrorsNameThePlace) {
  EXPECT_EQ(failure("{\n  \"a\": [1,\n  x]\n}"), "doc: line 3 column 3: expected a value");
  const Json json = Json::parse("{\"codecs\": [1, {\"name\": 5}]}", "zarr.json");
  try {
    json.at("codecs").items()[1].at("name").string();
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "zarr.json: codecs[1].name: expected a string, found a number");
  }
  try {
    json.at("codecs").items()[1].at("nope");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "zarr.json: codecs[1]: lacks \"nope\"");
  }
}

TEST(Json, StringsAreDecoded) {
  EXPECT_EQ(Json::parse(R"("a\n\t\"\\\/\b\f\r\u00e9\ud83c\udf0a")", "").string(),
            "a\n\t\"\\/\b\f\r\u00e9\U0001F30A");
  EXPECT_EQ(Json::parse(R"("\ud83cx\udf0a")", "").string(), "\uFFFDx\uFFFD");
  EXPECT_EQ(Json::parse(R"("\ud83c\u0041")", "").string(), "\uFFFDA");
  EXPECT_EQ(Json::parse(json_quote("a\"\\\n\x01\u00e9"), "").string(), "a\"\\\n\x01\u00e9");
}

TEST(Json, NumbersAreExactOrRefused) {
  EXPECT_EQ(Json::parse("-9223372036854775808", "").integer(),
            std::numeric_limits<std::int64_t>::min());
  for (const char* text : {"9223372036854775808", "1.0", "1e3", "NaN"}) {
    EXPECT_THROW(Json::parse(text, "").integer(), Error) << text;
  }
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(json_number("1e400"), infinity);
  EXPECT_EQ(json_number("-1e400"), -infinity);
  EXPECT_EQ(json_number("1e-400"), 0.0);
  EXPECT_TRUE(std::signbit(json_number("-1e-400")));
  EXPECT_EQ(json_number("1e99999999999999999999"), infinity);
  EXPECT_EQ(json_number("1e-99999999999999999999"), 0.0);
  EXPECT_EQ(json_number("0e99999999999999999999"), 0.0);
  EXPECT_EQ(json_number("1" + std::string(400, '0')), infinity);
  EXPECT_EQ(json_number("0." + std::string(400, '0') + "1"), 0.0);
  EXPECT_TRUE(std::isnan(json_number("NaN")));
}

TEST(Json, RepeatedKeysAreCorruptWhenAskedFor) {
  const Json json = Json::parse("{\"shape\": 1, \"shape\": 2, \"b\": 3}", "d");
  EXPECT_EQ(json.at("b").integer(), 3);
  EXPECT_THROW(json.find("shape"), Error);
  EXPECT_THROW(Json::parse("{\"sh\\u0061pe\": 1, \"shape\": 2}", "d").find("shape"), Error);
}

TEST(Json, EditsLeaveTheRestAlone) {
  const std::string text = "{\n  \"a\" : 1e400,\n  \"shape\": [1,\n 2],\n  \"n\": NaN\n}\n";
  EXPECT_EQ(json_with_member(Json::parse(text, ""), "shape", "[7]"),
            "{\n  \"a\" : 1e400,\n  \"shape\": [7],\n  \"n\": NaN\n}");
  EXPECT_EQ(json_with_member(Json::parse("{\n  \"a\": 1\n}", ""), "b", "2"),
            "{\n  \"a\": 1,\n  \"b\": 2\n}");
  EXPECT_EQ(json_with_member(Json::parse("{ }", ""), "b", "2"), "{\"b\": 2}");
}

TEST(Json, CompactAndPretty) {
  const std::string text = R"({ "a b": [1, 2 ,{}], "c": {"d": "x, : {\" }"}, "e": [] })";
  const std::string compact = R"({"a b":[1,2,{}],"c":{"d":"x, : {\" }"},"e":[]})";
  EXPECT_EQ(json_compact(text), compact);
  EXPECT_EQ(json_compact(json_pretty(text)), compact);
  EXPECT_EQ(json_pretty(R"({"a":[1,{}],"b":"\\"})"),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": \"\\\\\"\n}");
}

}  // namespace
}  // namespace headrace
