// Which side decodes, as a table: rows of bench/results/device-choice.json in which one side
// took 1.7 times as long as the other.

#include "engine/device/decode_cost.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

constexpr std::size_t kKiB = 1024;

struct Decision {
  Kind kind;
  std::size_t chunks;
  std::size_t chunk_nbytes;
  int threads;
  bool on_device;
};

DecodeWork read_of(const Decision& d) {
  const std::size_t nbytes = d.chunks * d.chunk_nbytes;
  return {d.chunks, nbytes / 2, nbytes, nbytes};
}

TEST(DecodeCost, ChoosesTheSideThatWasFaster) {
  const Decision decisions[] = {
      {Kind::zstd, 1, 64 * kKiB, 1, false},     {Kind::zstd, 1, 256 * kKiB, 16, false},
      {Kind::zstd, 16, 64 * kKiB, 16, false},   {Kind::zstd, 16, 256 * kKiB, 16, false},
      {Kind::zstd, 16, 64 * kKiB, 1, true},     {Kind::zstd, 256, 64 * kKiB, 1, true},
      {Kind::zstd, 256, 256 * kKiB, 16, true},  {Kind::zstd, 64, 1024 * kKiB, 16, true},
      {Kind::zstd, 1, 4096 * kKiB, 1, true},    {Kind::zstd, 1, 4096 * kKiB, 16, true},
      {Kind::zstd, 4, 4096 * kKiB, 16, true},   {Kind::lz4, 1, 64 * kKiB, 16, false},
      {Kind::lz4, 64, 64 * kKiB, 1, true},      {Kind::lz4, 16, 256 * kKiB, 1, true},
      {Kind::lz4, 1, 4096 * kKiB, 1, true},     {Kind::lz4, 64, 4096 * kKiB, 16, true},
      {Kind::blosc, 1, 64 * kKiB, 1, false},    {Kind::blosc, 16, 64 * kKiB, 1, true},
      {Kind::blosc, 4, 256 * kKiB, 1, true},    {Kind::blosc, 1, 4096 * kKiB, 1, true},
      {Kind::blosc, 1, 4096 * kKiB, 16, true},  {Kind::blosc, 64, 4096 * kKiB, 16, true},
      {Kind::gzip, 4, 64 * kKiB, 1, true},      {Kind::gzip, 256, 64 * kKiB, 16, true},
      {Kind::gzip, 1, 1024 * kKiB, 16, true},   {Kind::gzip, 1, 4096 * kKiB, 16, true},
      {Kind::delta, 1, 64 * kKiB, 1, false},    {Kind::delta, 1, 64 * kKiB, 16, false},
      {Kind::delta, 256, 64 * kKiB, 1, true},   {Kind::delta, 16, 1024 * kKiB, 1, true},
      {Kind::delta, 64, 4096 * kKiB, 16, true},
  };
  for (const Decision& d : decisions) {
    EXPECT_EQ(device_decodes({&d.kind, 1}, read_of(d), d.threads, std::nullopt), d.on_device)
        << static_cast<int>(d.kind) << ' ' << d.chunks << " x " << d.chunk_nbytes / kKiB << " KiB, "
        << d.threads << " threads";
  }
}

TEST(DecodeCost, ALimitReplacesTheModel) {
  const Kind zstd = Kind::zstd;
  const Decision large{zstd, 512, 4096 * kKiB, 1, true}, small{zstd, 1, kKiB, 16, false};
  EXPECT_TRUE(device_decodes({&zstd, 1}, read_of(small), 16, 0));
  EXPECT_TRUE(device_decodes({&zstd, 1}, read_of(small), 16, kKiB));
  EXPECT_FALSE(device_decodes({&zstd, 1}, read_of(small), 16, kKiB + 1));
  EXPECT_FALSE(device_decodes({&zstd, 1}, read_of(large), 1, SIZE_MAX));
}

TEST(DecodeCost, CountsWhatHasToBeCopied) {
  const Kind zstd = Kind::zstd;
  const DecodeWork read{64, 32 << 20, 64 << 20, 64 << 20};
  const DecodeCost all = decode_cost({&zstd, 1}, read, 16);
  DecodeWork part = read;
  part.wanted_nbytes = 64;
  EXPECT_LT(decode_cost({&zstd, 1}, part, 16).host_us, all.host_us);
  EXPECT_EQ(decode_cost({&zstd, 1}, part, 16).device_us, all.device_us);
  DecodeWork there = read;
  there.from_device = true;
  EXPECT_GT(decode_cost({&zstd, 1}, there, 16).host_us, all.host_us);
  EXPECT_LT(decode_cost({&zstd, 1}, there, 16).device_us, all.device_us);
  DecodeWork back = read;
  back.to_device = false;
  EXPECT_LT(decode_cost({&zstd, 1}, back, 16).host_us, all.host_us);
  EXPECT_GT(decode_cost({&zstd, 1}, back, 16).device_us, all.device_us);
}

TEST(DecodeCost, MoreThreadsHelpTheHostAsFarAsThereAreChunks) {
  const Kind zstd = Kind::zstd;
  const auto host_us = [&](std::size_t chunks, int threads) {
    return decode_cost({&zstd, 1}, {chunks, 1 << 20, 2 << 20, 2 << 20}, threads).host_us;
  };
  EXPECT_EQ(host_us(1, 1), host_us(1, 16));
  EXPECT_LT(host_us(16, 16), host_us(16, 4));
  EXPECT_EQ(host_us(16, 16), host_us(16, 64));
}

TEST(DecodeCost, TellsFromWhereOnTheDeviceDecodes) {
  for (const Kind kind : {Kind::zstd, Kind::lz4, Kind::blosc, Kind::gzip}) {
    const auto alone = least_on_device(kind, 1, 16);
    ASSERT_TRUE(alone);
    const auto device = [&](std::size_t nbytes) {
      return device_decodes({&kind, 1}, {1, nbytes / 2, nbytes, nbytes}, 16, std::nullopt);
    };
    EXPECT_TRUE(device(*alone));
    EXPECT_FALSE(device(*alone - 1));
    EXPECT_GT(least_on_device(kind, 16, 16).value_or(0), *alone);
    EXPECT_LT(least_on_device(kind, 16, 1).value_or(0), least_on_device(kind, 16, 16).value_or(0));
  }
}

}  // namespace
}  // namespace headrace
