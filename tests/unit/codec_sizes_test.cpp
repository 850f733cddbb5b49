// What decode_unknown takes memory by.

#include <gtest/gtest.h>

#include <vector>

#include "codec/sizes.h"
#include "tests/conformance/codec_kit.h"

namespace headrace {
namespace {

using kit::Bytes;

std::vector<std::size_t> bounds_tried(std::size_t src_nbytes,
                                      std::size_t max_nbytes,
                                      std::size_t decoded_nbytes) {
  const Bytes src(src_nbytes);
  std::vector<std::size_t> bounds;
  decode_growing(src, max_nbytes, [&](std::size_t bound) {
    bounds.push_back(bound);
    if (decoded_nbytes > bound) throw_corrupt("too large");
  });
  return bounds;
}

TEST(DecodedSizes, BoundsGrowWithTheSourceUpToTheMost) {
  constexpr std::size_t kMiB = 1 << 20;
  EXPECT_EQ(bounds_tried(100, 1000, 1000), std::vector<std::size_t>{1000});
  EXPECT_EQ(bounds_tried(kMiB, std::size_t{1} << 40, 5 * kMiB),
            std::vector<std::size_t>{17 * kMiB});
  EXPECT_EQ(bounds_tried(kMiB, 300 * kMiB, 300 * kMiB),
            (std::vector<std::size_t>{17 * kMiB, 136 * kMiB, 300 * kMiB}));
  // No codec makes so much of 4 bytes.
  EXPECT_THROW(bounds_tried(4, std::size_t{1} << 40, 2 * kMiB), Error);
}

TEST(DecodedSizes, OnlyCorruptMayMeanTooLarge) {
  int calls = 0;
  const auto decode = [&](std::size_t) {
    ++calls;
    throw Error(ErrorCode::out_of_memory, "none");
  };
  EXPECT_THROW(decode_growing(Bytes(1000), std::size_t{1} << 40, decode), Error);
  EXPECT_EQ(calls, 1);
}

TEST(DecodedSizes, WhatTheSourceSaysMayBeALie) {
  const Bytes src(4);
  Buffer dst;
  resize_said(dst, 1 << 20, src, std::size_t{1} << 40);
  EXPECT_EQ(dst.size(), std::size_t{1} << 20);
  EXPECT_THROW(resize_said(dst, std::size_t{1} << 30, src, std::size_t{1} << 40), Error);
  EXPECT_THROW(resize_said(dst, 1001, src, 1000), Error);
}

// Such a codec never stands behind a compressor: its decoded size is the chunk's.
TEST(DecodedSizes, OfArrayCodecsAreNeverUnknown) {
  const CodecPtr codec =
      kit::make({"bytes", ""}, {}, DType::uint8, {8}, CodecPosition::before_bytes);
  Buffer dst;
  try {
    codec->decode_unknown(Bytes(8), 8, dst);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
  }
}

}  // namespace
}  // namespace headrace
