#include <gtest/gtest.h>

#include "codec/byteswap.h"
#include "codec/shuffle.h"
#include "tests/conformance/codec_kit.h"

namespace headrace {
namespace {

using kit::Bytes;

class ShuffleIsa : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { set_shuffle_isa(GetParam()); }
  void TearDown() override { set_shuffle_isa("best"); }
};

TEST_P(ShuffleIsa, BytesAgainstTheDefinition) {
  for (std::size_t typesize : {1u, 2u, 3u, 4u, 5u, 8u, 12u, 16u, 17u, 255u}) {
    for (std::size_t n : {0u, 1u, 15u, 16u, 31u, 32u, 33u, 127u, 1000u}) {
      const Bytes data = kit::noise(n * typesize);
      Bytes expected(data.size());
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < typesize; ++j) expected[j * n + i] = data[i * typesize + j];
      }
      Bytes planes(data.size());
      std::vector<std::byte*> out(typesize);
      std::vector<const std::byte*> in(typesize);
      for (std::size_t j = 0; j < typesize; ++j) in[j] = out[j] = planes.data() + j * n;
      shuffle(data.data(), typesize, n, out.data());
      ASSERT_EQ(planes, expected) << typesize << " " << n;
      Bytes back(data.size());
      unshuffle(in.data(), typesize, n, back.data());
      ASSERT_EQ(back, data) << typesize << " " << n;
    }
  }
}

TEST_P(ShuffleIsa, BitsAgainstTheDefinition) {
  for (std::size_t typesize : {1u, 2u, 3u, 4u, 8u, 16u, 17u, 255u}) {
    for (std::size_t n : {0u, 8u, 64u, 72u, 520u, 2048u}) {
      const Bytes data = kit::noise(n * typesize);
      Bytes expected(data.size());
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t bit = 0; bit < 8 * typesize; ++bit) {
          const unsigned v = std::to_integer<unsigned>(data[i * typesize + bit / 8]) >> bit % 8 & 1;
          expected[bit * (n / 8) + i / 8] |= std::byte(v << i % 8);
        }
      }
      Bytes rows(data.size());
      bit_shuffle(data.data(), typesize, n, rows.data());
      ASSERT_EQ(rows, expected) << typesize << " " << n;
      for (std::size_t first = 0; first < n; first += 8 * (1 + first % 5)) {
        for (std::size_t count : {std::size_t{1}, std::size_t{9}, n - first}) {
          if (first + count > n) continue;
          Bytes back(count * typesize);
          bit_unshuffle(rows.data(), typesize, n, first, count, back.data());
          ASSERT_TRUE(std::equal(
              back.begin(), back.end(), data.begin() + static_cast<long>(first * typesize)))
              << typesize << " " << n << " " << first << " " << count;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ShuffleIsa, ::testing::Values("best", "sse2", "portable"));

TEST(ByteSwap, InPlaceAndNot) {
  for (std::size_t unit : {2u, 4u, 8u}) {
    for (std::size_t n : {0u, 1u, 7u, 8u, 31u, 32u, 33u, 1000u}) {
      const Bytes data = kit::noise(n * unit);
      Bytes expected = data;
      for (std::size_t i = 0; i < n; ++i) {
        std::reverse(expected.begin() + static_cast<long>(i * unit),
                     expected.begin() + static_cast<long>(i * unit + unit));
      }
      Bytes out(data.size());
      swap_bytes(unit, data.data(), out.data(), n);
      ASSERT_EQ(out, expected);
      swap_bytes(unit, out.data(), out.data(), n);
      ASSERT_EQ(out, data);
    }
  }
}

}  // namespace
}  // namespace headrace
