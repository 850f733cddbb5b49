#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "format/metadata.h"

namespace headrace {
namespace {

using Coordinates = std::vector<std::int64_t>;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

std::string key(const ChunkKeyEncoding& encoding, const Coordinates& at) {
  std::string out = "a/";
  encoding.append(out, at.data(), at.size());
  return out.substr(2);
}

TEST(ChunkKey, WritesWhatTheSpecificationSays) {
  const struct {
    ChunkKeyEncoding encoding;
    Coordinates at;
    const char* key;
  } table[] = {
      {{true, '/'}, {}, "c"},
      {{true, '/'}, {0, 1}, "c/0/1"},
      {{true, '.'}, {23}, "c.23"},
      {{false, '.'}, {}, "0"},
      {{false, '.'}, {0, 1}, "0.1"},
      {{false, '/'}, {10, 200, 3}, "10/200/3"},
      {{true, '/'}, {kMax}, "c/9223372036854775807"},
  };
  for (const auto& row : table) {
    EXPECT_EQ(key(row.encoding, row.at), row.key);
    EXPECT_EQ(row.encoding.parse(row.key, row.at.size()), row.at) << row.key;
  }
}

TEST(ChunkKey, OtherKeysAreNoChunks) {
  const struct {
    ChunkKeyEncoding encoding;
    std::size_t ndim;
    const char* key;
  } table[] = {
      {{true, '/'}, 0, ""},
      {{true, '/'}, 0, "c/0"},
      {{true, '/'}, 0, "0"},
      {{true, '/'}, 1, "c"},
      {{true, '/'}, 1, "c/"},
      {{true, '/'}, 1, "c/0/"},
      {{true, '/'}, 1, "c/0/1"},
      {{true, '/'}, 2, "c/0"},
      {{true, '/'}, 2, "c.0.1"},
      {{true, '/'}, 1, "c0"},
      {{true, '/'}, 1, "d/0"},
      {{true, '/'}, 1, "c/-1"},
      {{true, '/'}, 1, "c/+1"},
      {{true, '/'}, 1, "c/01"},
      {{true, '/'}, 1, "c/1x"},
      {{true, '/'}, 1, "c/ 1"},
      {{true, '/'}, 1, "c/9223372036854775808"},
      {{true, '/'}, 1, "zarr.json"},
      {{false, '.'}, 0, ""},
      {{false, '.'}, 0, "00"},
      {{false, '.'}, 1, ".zarray"},
      {{false, '.'}, 2, "0"},
      {{false, '.'}, 2, "0..1"},
      {{false, '.'}, 2, "0.1.2"},
      {{false, '.'}, 2, "0/1"},
      {{false, '.'}, 1, ".0"},
  };
  for (const auto& row : table) {
    EXPECT_EQ(row.encoding.parse(row.key, row.ndim), std::nullopt) << row.key << " " << row.ndim;
  }
}

TEST(AutoChunks, OneToFourMebibytesWithWholeTrailingDimensions) {
  const std::vector<Shape> shapes = {{1000000, 3},
                                     {10, 1000, 1000},
                                     {365, 721, 1440},
                                     {1 << 30},
                                     {3, 1 << 20},
                                     {7, 600, 600},
                                     {kMax, 2},
                                     {1, 1, 5000000}};
  for (const Shape& shape : shapes) {
    for (std::size_t itemsize : {1u, 2u, 4u, 8u, 16u}) {
      const Shape chunks = auto_chunks(shape, itemsize);
      double total = static_cast<double>(itemsize), nbytes = total;
      bool cut = false;
      for (std::size_t d = shape.size(); d-- > 0;) {
        ASSERT_GE(chunks[d], 1);
        ASSERT_LE(chunks[d], shape[d]);
        if (cut) {
          EXPECT_EQ(chunks[d], 1) << "nothing before a cut dimension";
        }
        cut |= chunks[d] < shape[d];
        nbytes *= static_cast<double>(chunks[d]);
        total *= static_cast<double>(shape[d]);
      }
      EXPECT_LE(nbytes, 4 << 20);
      EXPECT_GE(nbytes, std::min(total, 1.0 * (1 << 20))) << shape[0] << " " << itemsize;
    }
  }
}

TEST(AutoChunks, OddArrays) {
  EXPECT_EQ(auto_chunks({}, 8), Shape{});
  EXPECT_EQ(auto_chunks({0, 5}, 8), (Shape{1, 5}));
  EXPECT_EQ(auto_chunks({5}, 64 << 20), Shape{1});
  EXPECT_EQ(auto_chunks({5}, 0), Shape{5});
}

}  // namespace
}  // namespace headrace
