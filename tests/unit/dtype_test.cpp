#include "headrace/dtype.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "conformance/error_code.h"
#include "format/numpy_str.h"
#include "headrace/error.h"

namespace headrace {
namespace {

TEST(DType, NamesSizesAndSwapUnits) {
  const struct {
    const char* name;
    std::size_t itemsize, swap_size;
    const char* numpy;
  } table[] = {
      {"bool", 1, 1, "|b1"},
      {"int8", 1, 1, "|i1"},
      {"uint16", 2, 2, "<u2"},
      {"int64", 8, 8, "<i8"},
      {"float16", 2, 2, "<f2"},
      {"float64", 8, 8, "<f8"},
      {"complex64", 8, 4, "<c8"},
      {"complex128", 16, 8, "<c16"},
      {"bfloat16", 2, 2, "|V2"},
      {"float8_e4m3fn", 1, 1, "|V1"},
      {"int4", 1, 1, "|V1"},
      {"uint2", 1, 1, "|V1"},
      {"float4_e2m1fn", 1, 1, "|V1"},
      {"r24", 3, 1, "|V3"},
  };
  for (const auto& row : table) {
    const DType dtype = DType::from_name(row.name);
    EXPECT_EQ(dtype.to_string(), row.name);
    EXPECT_EQ(dtype.itemsize(), row.itemsize) << row.name;
    EXPECT_EQ(dtype.swap_size(), row.swap_size) << row.name;
    EXPECT_EQ(dtype.numpy_str(), row.numpy) << row.name;
    EXPECT_EQ(dtype, DType::from_name(row.name));
  }
  EXPECT_EQ(DType::from_name("float32"), DType::float32);
  EXPECT_EQ(DType::from_name("complex_float64"), DType::complex128);
  EXPECT_EQ(DType::from_name("variable_length_bytes"), DType::bytes());
  EXPECT_TRUE(DType::string().variable_length());
  EXPECT_EQ(DType::string().numpy_str(), "");
}

TEST(DType, UnknownNamesAreRefused) {
  for (const char* name :
       {"", "float", "float128", "r", "r0", "r4", "r08", "r16x", "r99999999999", "Int8"}) {
    EXPECT_EQ(code_of([&] { DType::from_name(name); }), ErrorCode::invalid_argument) << name;
  }
}

TEST(DType, ParametersAreThePartOfTheIdentity) {
  EXPECT_NE(DType::datetime("ns"), DType::datetime("us"));
  EXPECT_NE(DType::datetime("s", 25), DType::datetime("s"));
  EXPECT_NE(DType::datetime("s"), DType::timedelta("s"));
  EXPECT_EQ(DType::datetime("\xce\xbcs"), DType::datetime("us"));
  EXPECT_EQ(DType::datetime("s", 25).to_string(), "numpy.datetime64[25s]");
  EXPECT_EQ(DType::datetime("s", 25).numpy_str(), "<M8[25s]");
  EXPECT_EQ(DType::timedelta("generic").numpy_str(), "<m8");
  EXPECT_NE(DType::fixed_bytes(4), DType::raw(4));
  EXPECT_NE(DType::fixed_bytes(4), DType::fixed_bytes(5));
  EXPECT_EQ(DType::fixed_utf32(3).itemsize(), 12u);
  EXPECT_EQ(DType::fixed_utf32(3).swap_size(), 4u);
  EXPECT_EQ(code_of([] { DType::datetime("fortnight"); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { DType::datetime("s", 0); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { DType::raw(0); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { DType::raw((std::size_t{64} << 20) + 1); }), ErrorCode::unsupported);
  EXPECT_EQ(code_of([] { DType::fixed_utf32(std::numeric_limits<std::size_t>::max() / 2); }),
            ErrorCode::invalid_argument);
}

TEST(DType, StructureFieldsMustFit) {
  const auto make = [](std::size_t offset, std::vector<std::int64_t> shape, std::size_t itemsize) {
    return DType::structure(
        {{"a", DType::int32, 0, false, {}}, {"b", DType::float64, offset, false, shape}}, itemsize);
  };
  EXPECT_EQ(make(4, {}, 12).itemsize(), 12u);
  EXPECT_EQ(make(4, {}, 12), make(4, {}, 12));
  EXPECT_NE(make(4, {}, 16), make(8, {}, 16));
  EXPECT_NE(make(4, {2}, 20), make(4, {}, 20));
  for (const auto& bad :
       std::vector<std::vector<std::int64_t>>{{2}, {-1}, {1ll << 40, 1ll << 40}}) {
    EXPECT_EQ(code_of([&] { make(4, bad, 12); }), ErrorCode::invalid_argument);
  }
  EXPECT_EQ(code_of([&] { make(5, {}, 12); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { make(std::numeric_limits<std::size_t>::max() - 2, {}, 12); }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { DType::structure({}, 4); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] {
              DType::structure({{"a", DType::string(), 0, false, {}}}, 4);
            }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(
      code_of([] {
        DType::structure({{"a", DType::int8, 0, false, {}}, {"a", DType::int8, 1, false, {}}}, 2);
      }),
      ErrorCode::invalid_argument);
}

TEST(NumpyStr, RoundTripsWithByteOrder) {
  for (const char* text : {"<f4",
                           ">f8",
                           "|b1",
                           "|i1",
                           ">i2",
                           "<u8",
                           ">c16",
                           "|S10",
                           ">U4",
                           "<M8[ns]",
                           ">M8[25s]",
                           "<m8",
                           "|V8"}) {
    const NumpyType type = parse_numpy_str(text);
    EXPECT_EQ(to_numpy_str(type.dtype, type.order), text);
  }
  EXPECT_EQ(parse_numpy_str(">f4").order, ByteOrder::big);
  EXPECT_EQ(parse_numpy_str(">f4").dtype, DType::float32);
  EXPECT_EQ(parse_numpy_str("<i1").order, ByteOrder::none);
  EXPECT_EQ(parse_numpy_str("=i2").order, native_order());
  EXPECT_EQ(DType::from_numpy_str("<f4"), DType::float32);
  EXPECT_EQ(code_of([] { DType::from_numpy_str(">f4"); }), ErrorCode::invalid_argument);
}

TEST(NumpyStr, RefusesHostileText) {
  for (const char* text : {"",
                           "<",
                           "<f",
                           "<f3",
                           "f4x",
                           "<f-4",
                           "|f4",
                           "<q8",
                           "<M8[",
                           "<M8[]",
                           "<M8[0s]",
                           "<M8[9s",
                           "<M8[99999999999s]",
                           "<M8[fortnight]",
                           "<M4",
                           "|S99999999999999999999",
                           "<b2",
                           "<i3",
                           "<M8[-1s]",
                           "<M8[25]"}) {
    EXPECT_EQ(code_of([&] { parse_numpy_str(text); }), ErrorCode::invalid_argument) << text;
  }
  for (const char* text : {"|O", "<f16", "<c32", "|S0", "<U0", "|V0", "|S9999999999"}) {
    EXPECT_EQ(code_of([&] { parse_numpy_str(text); }), ErrorCode::unsupported) << text;
  }
}

TEST(ErrorCodes, HaveDistinctNames) {
  EXPECT_STREQ(error_code_name(ErrorCode::corrupt), "corrupt");
  EXPECT_STREQ(error_code_name(ErrorCode::permission_denied), "permission_denied");
}

}  // namespace
}  // namespace headrace
