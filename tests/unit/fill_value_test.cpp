#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "format/json.h"
#include "format/metadata.h"
#include "format/small_float.h"

namespace headrace {
namespace {

using Bytes = std::vector<std::byte>;

template <typename T>
Bytes bytes_of_value(T value) {
  Bytes out(sizeof value);
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

Bytes text_bytes(std::string text, std::size_t size) {
  text.resize(size, '\0');
  Bytes out(size);
  std::memcpy(out.data(), text.data(), size);
  return out;
}

void expect_value(const DType& dtype, const char* json, const Bytes& wanted) {
  for (int format : {2, 3}) {
    const auto found = fill_value_from_json(dtype, json, format);
    ASSERT_TRUE(found) << dtype.to_string() << " " << json;
    EXPECT_EQ(*found, wanted) << dtype.to_string() << " " << json;
  }
}

void expect_corrupt(const DType& dtype, const std::string& json) {
  try {
    fill_value_from_json(dtype, json, 3);
    ADD_FAILURE() << dtype.to_string() << " took " << json;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::corrupt) << json;
  }
}

TEST(FillValue, Integers) {
  expect_value(DType::int32, "-7", bytes_of_value<std::int32_t>(-7));
  expect_value(DType::int16, "1e3", bytes_of_value<std::int16_t>(1000));
  expect_value(DType::uint8, "255.0", bytes_of_value<std::uint8_t>(255));
  expect_value(DType::int8, "\"-128\"", bytes_of_value<std::int8_t>(-128));
  expect_value(DType::int8, "-0", bytes_of_value<std::int8_t>(0));
  expect_value(DType::uint16, "-0.0", bytes_of_value<std::uint16_t>(0));
  expect_value(DType::uint64,
               "18446744073709551615",
               bytes_of_value(std::numeric_limits<std::uint64_t>::max()));
  expect_value(DType::uint64, "1e19", bytes_of_value<std::uint64_t>(10000000000000000000U));
  expect_value(DType::int64,
               "-9223372036854775808",
               bytes_of_value(std::numeric_limits<std::int64_t>::min()));
  expect_value(DType::int64, "9007199254740993", bytes_of_value<std::int64_t>(9007199254740993));
  expect_value(DType::from_name("int4"), "-8", bytes_of_value<std::int8_t>(-8));
  expect_value(DType::from_name("uint2"), "3", bytes_of_value<std::uint8_t>(3));
}

// As zarr-python reads them: Python's booleans are integers, and its float() knows no case.
TEST(FillValue, BooleansAndNamesThatPythonTakesForNumbers) {
  for (const bool value : {true, false}) {
    const char* json = value ? "true" : "false";
    expect_value(DType::int8, json, bytes_of_value<std::int8_t>(value));
    expect_value(DType::uint64, json, bytes_of_value<std::uint64_t>(value));
    expect_value(DType::from_name("int4"), json, bytes_of_value<std::int8_t>(value));
    expect_value(DType::float32, json, bytes_of_value<float>(value));
    expect_value(DType::float64, json, bytes_of_value<double>(value));
    expect_value(DType::datetime("s"), json, bytes_of_value<std::int64_t>(value));
  }
  const double infinity = std::numeric_limits<double>::infinity();
  for (const char* json : {"\"nan\"", "\"NAN\""})
    expect_value(DType::float64, json, bytes_of_value<std::uint64_t>(0x7FF8000000000000));
  for (const char* json : {"\"inf\"", "\"+Inf\"", "\"infinity\""})
    expect_value(DType::float64, json, bytes_of_value(infinity));
  for (const char* json : {"\"-inf\"", "\"-INFINITY\""})
    expect_value(DType::float64, json, bytes_of_value(-infinity));
}

TEST(FillValue, IntegersOutOfRangeAreCorrupt) {
  const struct {
    const char* dtype;
    std::vector<const char*> json;
  } table[] = {
      {"int8",
       {"128",
        "-129",
        "1e9",
        "1.5",
        "NaN",
        "Infinity",
        "\"x\"",
        "\"true\"",
        "[1]",
        "{}",
        "\"0x7f\"",
        "\"\""}},
      {"uint8", {"256", "-1", "-1.0", "1e400", "-1e400"}},
      {"int64", {"9223372036854775808", "-9223372036854775809", "1e19", "9.3e18"}},
      {"uint64", {"18446744073709551616", "-1", "2e19"}},
      {"int4", {"8", "-9"}},
      {"uint2", {"4", "-1"}},
      {"bool", {"2", "0.5", "\"true\"", "[]"}},
  };
  for (const auto& row : table) {
    for (const char* json : row.json) expect_corrupt(DType::from_name(row.dtype), json);
  }
}

TEST(FillValue, Floats) {
  expect_value(DType::float32, "1", bytes_of_value(1.0F));
  expect_value(DType::float32, "-0.0", bytes_of_value(-0.0F));
  expect_value(DType::float32, "9.969209968386869e+36", bytes_of_value(9.96921e36F));
  expect_value(DType::float32,
               "-3.4028234663852886e+38",
               bytes_of_value(std::numeric_limits<float>::lowest()));
  expect_value(DType::float32, "1e-45", bytes_of_value(std::numeric_limits<float>::denorm_min()));
  expect_value(DType::float64, "0.1", bytes_of_value(0.1));
  expect_value(DType::float64, "5e-324", bytes_of_value(std::numeric_limits<double>::denorm_min()));
  expect_value(DType::float32, "\"NaN\"", bytes_of_value<std::uint32_t>(0x7FC00000));
  expect_value(DType::float64, "NaN", bytes_of_value<std::uint64_t>(0x7FF8000000000000));
  expect_value(
      DType::float64, "\"-Infinity\"", bytes_of_value(-std::numeric_limits<double>::infinity()));
  expect_value(DType::float32, "1e39", bytes_of_value(std::numeric_limits<float>::infinity()));
  expect_value(DType::float32, "\"0x7fc00001\"", bytes_of_value<std::uint32_t>(0x7FC00001));
  expect_value(DType::float16, "\"0xFE00\"", bytes_of_value<std::uint16_t>(0xFE00));
  expect_value(DType::float16, "65504", bytes_of_value<std::uint16_t>(0x7BFF));
  expect_value(DType::bfloat16, "1.5", bytes_of_value<std::uint16_t>(0x3FC0));
  expect_value(DType::bfloat16, "\"NaN\"", bytes_of_value<std::uint16_t>(0x7FC0));
  expect_value(DType::from_name("float8_e4m3"), "\"NaN\"", bytes_of_value<std::uint8_t>(0x7C));
  expect_value(DType::from_name("float8_e4m3fn"), "\"NaN\"", bytes_of_value<std::uint8_t>(0x7F));
  expect_value(DType::from_name("float8_e4m3fn"), "448", bytes_of_value<std::uint8_t>(0x7E));
  expect_value(DType::from_name("float8_e5m2fnuz"), "\"NaN\"", bytes_of_value<std::uint8_t>(0x80));
  expect_value(DType::from_name("float8_e5m2fnuz"), "-0.0", bytes_of_value<std::uint8_t>(0));
  expect_value(DType::from_name("float8_e8m0fnu"), "1", bytes_of_value<std::uint8_t>(127));
  expect_value(DType::from_name("float8_e8m0fnu"), "\"NaN\"", bytes_of_value<std::uint8_t>(255));
  expect_value(DType::from_name("float4_e2m1fn"), "-6", bytes_of_value<std::uint8_t>(0xF));
  for (const char* json : {"\"0x7fc0\"",
                           "\"0x7fc000000\"",
                           "\"0x7fc0000g\"",
                           "\"nano\"",
                           "\"-nan\"",
                           "\"in\"",
                           "\"\"",
                           "\"true\"",
                           "[1]"}) {
    expect_corrupt(DType::float32, json);
  }
  expect_corrupt(DType::from_name("float4_e2m1fn"), "\"NaN\"");
  expect_corrupt(DType::from_name("float4_e2m1fn"), "8");
  expect_corrupt(DType::from_name("float6_e2m3fn"), "\"0xff\"");
  expect_corrupt(DType::from_name("float8_e4m3fn"), "1000");
  expect_corrupt(DType::from_name("float8_e8m0fnu"), "0");
}

TEST(FillValue, ComplexAndBoolean) {
  Bytes both = bytes_of_value(1.5F);
  const Bytes imaginary = bytes_of_value<std::uint32_t>(0x7FC00000);
  both.insert(both.end(), imaginary.begin(), imaginary.end());
  expect_value(DType::complex64, "[1.5, \"NaN\"]", both);
  expect_value(DType::boolean, "true", bytes_of_value<std::uint8_t>(1));
  expect_value(DType::boolean, "0", bytes_of_value<std::uint8_t>(0));
  for (const char* json : {"[1]", "[1,2,3]", "[1,[2]]", "\"x\""})
    expect_corrupt(DType::complex128, json);
}

TEST(FillValue, TimesStringsAndBytes) {
  expect_value(
      DType::datetime("ns"), "\"NaT\"", bytes_of_value(std::numeric_limits<std::int64_t>::min()));
  expect_value(DType::timedelta("s"),
               "-9223372036854775808",
               bytes_of_value(std::numeric_limits<std::int64_t>::min()));
  expect_value(DType::datetime("D"), "17", bytes_of_value<std::int64_t>(17));
  expect_corrupt(DType::datetime("D"), "\"2020-01-01\"");
  expect_value(DType::fixed_bytes(5), "\"YWJj\"", text_bytes("abc", 5));
  expect_value(DType::fixed_bytes(5), "\"\"", text_bytes("", 5));
  expect_value(DType::fixed_bytes(5), "0", text_bytes("", 5));
  expect_value(DType::raw(3), "\"YWJj\"", text_bytes("abc", 3));
  expect_value(DType::raw(3), "[97, 98, 99]", text_bytes("abc", 3));
  for (const char* json :
       {"\"YWJ\"", "\"YW=j\"", "\"YWJjYWJj\"", "\"Y===\"", "[1,2]", "[1,2,256]", "\"YWI=\"", "1"}) {
    expect_corrupt(DType::raw(3), json);
  }
  expect_corrupt(DType::raw(2), "\"YWJ=\"");  // bits that belong to no byte
  Bytes wave = bytes_of_value<std::uint32_t>(0x1F30A);
  wave.resize(8);
  expect_value(DType::fixed_utf32(2), "\"\\ud83c\\udf0a\"", wave);
  expect_corrupt(DType::fixed_utf32(2), "\"abc\"");
  EXPECT_EQ(fill_value_from_json(DType::float32, "null", 2), std::nullopt);
}

TEST(FillValue, VariableLength) {
  const DType array = DType::array(DType::int32);
  expect_value(DType::string(), "\"x\\u00fc\"", text_bytes("x\xc3\xbc", 3));
  expect_value(DType::string(), "0", text_bytes("0", 1));  // of Zarr 2, as zarr-python has it
  expect_value(DType::bytes(), "\"YWI=\"", text_bytes("ab", 2));
  expect_value(DType::bytes(), "0", {});
  expect_value(DType::object(), "{\"a\": [1]}", text_bytes("{\"a\":[1]}", 9));
  expect_value(array, "0", {});
  for (const DType& dtype : {DType::string(), DType::bytes(), DType::object(), array}) {
    EXPECT_EQ(fill_value_from_json(dtype, "null", 2), std::nullopt);
  }
  expect_corrupt(DType::string(), "[]");
  expect_corrupt(DType::bytes(), "\"Y\"");
  expect_corrupt(array, "1");
  EXPECT_EQ(fill_value_to_json(DType::bytes(), text_bytes("ab", 2), 3), "\"YWI=\"");
  EXPECT_EQ(fill_value_to_json(DType::object(), {}, 2), "null");
  EXPECT_THROW(fill_value_to_json(DType::string(), {std::byte{0xFF}}, 3), Error);
}

TEST(FillValue, Structures) {
  const DType dtype =
      DType::structure({{"a", DType::int16, 0, true, {}}, {"b", DType::float32, 2, false, {}}}, 6);
  const Bytes wanted = {
      std::byte{1}, std::byte{2}, std::byte{0}, std::byte{0}, std::byte{0x80}, std::byte{0x3F}};
  expect_value(dtype, "{\"b\": 1.0, \"a\": 258}", wanted);
  expect_value(dtype, "[258, 1.0]", wanted);
  expect_value(dtype, "\"AQIAAIA/\"", wanted);
  expect_value(dtype, "0", Bytes(6));
  for (const char* json : {"{\"a\": 1}",
                           "{\"a\": 1, \"b\": 2, \"c\": 3}",
                           "{\"a\": 1, \"c\": 2}",
                           "[1]",
                           "\"AAAA\"",
                           "{\"a\": 1, \"a\": 2}"}) {
    expect_corrupt(dtype, json);
  }
}

TEST(FillValue, EveryPatternOfSmallTypesRoundTrips) {
  for (const char* name : {"float16",
                           "bfloat16",
                           "float8_e3m4",
                           "float8_e4m3",
                           "float8_e4m3fn",
                           "float8_e4m3fnuz",
                           "float8_e4m3b11fnuz",
                           "float8_e5m2",
                           "float8_e5m2fnuz",
                           "float8_e8m0fnu",
                           "float6_e2m3fn",
                           "float6_e3m2fn",
                           "float4_e2m1fn"}) {
    const DType dtype = DType::from_name(name);
    const unsigned patterns = 1U << float_layout(dtype).bits;
    for (unsigned bits = 0; bits < patterns; ++bits) {
      Bytes bytes(dtype.itemsize());
      for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>(bits >> (8 * i));
      const std::string json = fill_value_to_json(dtype, bytes, 3);
      ASSERT_EQ(fill_value_from_json(dtype, json, 3), bytes) << name << " " << bits << " " << json;
    }
  }
}

TEST(FillValue, RoundingIsToNearestEven) {
  const FloatLayout half = float_layout(DType::float16);
  EXPECT_EQ(float_to_bits(half, 2049), 0x6800U);  // between 2048 and 2050
  EXPECT_EQ(float_to_bits(half, 2051), 0x6802U);  // between 2050 and 2052
  EXPECT_EQ(float_to_bits(half, 65519.99), 0x7BFFU);
  EXPECT_EQ(float_to_bits(half, 65520), 0x7C00U);  // half way to the next: infinity
  EXPECT_EQ(float_to_bits(half, 0x1p-25), 0U);     // half of the smallest, to even
  EXPECT_EQ(float_to_bits(half, 0x1.8p-25), 1U);
  EXPECT_EQ(float_to_bits(half, 0x1.ffep-15), 0x0400U);  // carries into the normal numbers
  EXPECT_EQ(float_to_bits(half, std::numeric_limits<double>::denorm_min()), 0U);
  for (std::uint32_t bits : {0x00000001U, 0x007FFFFFU, 0x3DCCCCCDU, 0x7F7FFFFFU, 0x80000001U}) {
    EXPECT_EQ(float_to_bits(float_layout(DType::float32), std::bit_cast<float>(bits)), bits);
  }
}

TEST(FillValue, WritesTheDialectOfTheFormat) {
  const auto json = [](const DType& dtype, const Bytes& bytes, int format) {
    return fill_value_to_json(dtype, bytes, format);
  };
  EXPECT_EQ(json(DType::float32, bytes_of_value(0.0F), 3), "0.0");
  EXPECT_EQ(json(DType::float64, bytes_of_value(1e22), 3), "1e+22");
  EXPECT_EQ(json(DType::float32, bytes_of_value<std::uint32_t>(0x7FC00000), 3), "\"NaN\"");
  EXPECT_EQ(json(DType::float32, bytes_of_value<std::uint32_t>(0xFFC00000), 3), "\"0xffc00000\"");
  EXPECT_EQ(json(DType::float32, bytes_of_value<std::uint32_t>(0xFFC00000), 2), "\"NaN\"");
  EXPECT_EQ(json(DType::int8, bytes_of_value<std::int8_t>(-1), 3), "-1");
  EXPECT_EQ(json(DType::uint64, Bytes(8, std::byte{0xFF}), 3), "18446744073709551615");
  EXPECT_EQ(json(DType::complex64, Bytes(8), 2), "[0.0,0.0]");
  EXPECT_EQ(json(DType::fixed_bytes(5), text_bytes("abc", 5), 2), "\"YWJj\"");
  EXPECT_EQ(json(DType::raw(2), text_bytes("a", 2), 3), "\"YQA=\"");
  EXPECT_THROW(json(DType::int16, Bytes(3), 3), Error);
  EXPECT_THROW(json(DType::fixed_utf32(1), Bytes(4, std::byte{0xFF}), 3), Error);
}

}  // namespace
}  // namespace headrace
