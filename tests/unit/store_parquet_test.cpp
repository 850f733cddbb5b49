// Parquet of a hundred bytes that says it is large. What writers make of tables is read in Python.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"
#include "store/reference/parquet_file.h"
#include "store/reference/thrift.h"

namespace headrace::test {
namespace {

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value > 127; value >>= 7) out += static_cast<char>((value & 127) | 128);
  return out + static_cast<char>(value);
}
std::string zigzag(std::int64_t value) { return varint(static_cast<std::uint64_t>(value) << 1); }
std::string text(std::string_view value) { return varint(value.size()) + std::string(value); }
std::string word(std::size_t value) {
  const auto n = static_cast<std::uint32_t>(value);
  return {reinterpret_cast<const char*>(&n), sizeof n};
}

// A structure of Thrift's compact protocol.
struct Structure {
  std::string bytes{};
  int last = 0;

  Structure& add(int field, int type, const std::string& value) {
    bytes += static_cast<char>((field - last) << 4 | type);
    bytes += value;
    last = field;
    return *this;
  }
  Structure& i32(int field, std::int64_t value) { return add(field, 5, zigzag(value)); }
  Structure& i64(int field, std::int64_t value) { return add(field, 6, zigzag(value)); }
  Structure& binary(int field, std::string_view value) { return add(field, 8, text(value)); }
  Structure& structure(int field, const Structure& value) { return add(field, 12, value.end()); }
  Structure& list(int field, int type, const std::vector<std::string>& values) {
    std::string all = static_cast<char>(0xF0 | type) + varint(values.size());
    for (const std::string& value : values) all += value;
    return add(field, 9, all);
  }
  std::string end() const { return bytes + '\0'; }
};

// Rows that are all null: a run of one number.
std::string page_of_nulls(std::int64_t rows) {
  const std::string levels = varint(static_cast<std::uint64_t>(rows) << 1) + '\0';
  const std::string data = word(levels.size()) + levels;
  const auto nbytes = static_cast<std::int64_t>(data.size());
  return Structure{}
             .i32(1, 0)
             .i32(2, nbytes)
             .i32(3, nbytes)
             .structure(5, Structure{}.i32(1, rows).i32(2, 0).i32(3, 3).i32(4, 3))
             .end() +
         data;
}

std::string dictionary_of(std::string_view value) {
  const std::string data = word(value.size()) + std::string(value);
  const auto nbytes = static_cast<std::int64_t>(data.size());
  return Structure{}
             .i32(1, 2)
             .i32(2, nbytes)
             .i32(3, nbytes)
             .structure(7, Structure{}.i32(1, 1).i32(2, 0))
             .end() +
         data;
}

// `chunks` chunks of the column "path", each of the same bytes, and one of a column without a type.
std::string file_of(const std::string& pages, std::int64_t rows, std::size_t chunks = 1) {
  const auto column = [&](const char* name, std::int64_t type) {
    const Structure chunk = Structure{}
                                .i32(1, type)
                                .list(3, 8, {text(name)})
                                .i32(4, 0)
                                .i64(5, rows)
                                .i64(7, static_cast<std::int64_t>(pages.size()))
                                .i64(9, 4);
    return Structure{}.i64(2, 4).structure(3, chunk).end();
  };
  std::vector<std::string> columns(chunks, column("path", 6));
  columns.push_back(column("other", 99));
  const auto element = [](const char* name) {
    return Structure{}.i32(1, 6).i32(3, 1).binary(4, name).end();
  };
  const std::string footer =
      Structure{}
          .list(2, 12, {Structure{}.binary(4, "root").i32(5, 2).end(), element("path")})
          .i64(3, rows)
          .list(4, 12, {Structure{}.list(1, 12, columns).end()})
          .end();
  return "PAR1" + pages + footer + word(footer.size()) + "PAR1";
}

constexpr std::array<std::string_view, 2> kWanted = {"path", "offset"};

std::string fault_of(const std::string& file, std::uint64_t max_rows = 1 << 20) {
  try {
    read_parquet(bytes_of(file), "x", kWanted, max_rows);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    return error.what();
  }
  return "none";
}

TEST(Parquet, ColumnsThatNobodyWantsAreNotLookedAt) {
  const ParquetTable table =
      read_parquet(bytes_of(file_of(page_of_nulls(1000), 1000)), "x", kWanted, 1000);
  EXPECT_EQ(table.rows, 1000u);
  ASSERT_EQ(table.columns.size(), 1u);
  EXPECT_EQ(table.columns[0].rows, std::vector<std::uint32_t>(1000, ParquetColumn::kNull));
  EXPECT_GE(table.nbytes(), 4000u);
}

TEST(Parquet, TakesNoMoreThanItMayHave) {
  const std::string nulls = page_of_nulls(1000);
  EXPECT_EQ(fault_of(file_of(nulls, 1000), 999), "x: has more than 999 rows");
  EXPECT_EQ(fault_of(file_of(nulls, 1000, 2)), "x: has a column longer than its rows");
  EXPECT_EQ(fault_of(file_of(dictionary_of("a") + nulls, 1000)), "none");
  EXPECT_EQ(fault_of(file_of(dictionary_of("a") + dictionary_of("a") + nulls, 1000)),
            "x: has a column with two dictionaries");
}

// Elements without a byte: a list of them within a list within a list takes no room, but time.
TEST(Parquet, AListOfNothingIsCorrupt) {
  const std::string list = "\x19\xF0" + varint(1000) + std::string(2000, '\0');
  ThriftReader reader(bytes_of(list));
  EXPECT_THROW(reader.structure([](std::int32_t, ThriftType) { return false; }), Error);
}

}  // namespace
}  // namespace headrace::test
