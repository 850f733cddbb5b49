#include "codec/shuffle.h"

#include "headrace/error.h"
#include "kernels/filter_kit.h"

namespace headrace::test {
namespace {

struct Way {
  const char* name;
  Filter Kernels::*filter;
  bool bits;
  bool forward;
};

constexpr Way kWays[] = {{"unshuffle", &Kernels::unshuffle, false, false},
                         {"shuffle", &Kernels::shuffle, false, true},
                         {"bit_unshuffle", &Kernels::bit_unshuffle, true, false},
                         {"bit_shuffle", &Kernels::bit_shuffle, true, true}};

Bytes on_host(const Way& way, const Bytes& input, std::size_t itemsize) {
  const std::size_t elements = input.size() / itemsize;
  const std::size_t n = way.bits ? elements / 8 * 8 : elements;
  Bytes output = input;
  const auto* in = reinterpret_cast<const std::byte*>(input.data());
  auto* out = reinterpret_cast<std::byte*>(output.data());
  std::vector<const std::byte*> from(itemsize);
  std::vector<std::byte*> to(itemsize);
  for (std::size_t j = 0; j < itemsize; ++j) {
    from[j] = in + j * n;
    to[j] = out + j * n;
  }
  if (n == 0) return output;
  if (way.bits)
    way.forward ? headrace::bit_shuffle(in, itemsize, n, out)
                : headrace::bit_unshuffle(in, itemsize, n, 0, n, out);
  else
    way.forward ? headrace::shuffle(in, itemsize, n, to.data())
                : headrace::unshuffle(from.data(), itemsize, n, out);
  return output;
}

void expect_as_on_host(const Place& place,
                       const Way& way,
                       std::uint32_t itemsize,
                       const std::vector<std::size_t>& sizes,
                       std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Bytes> inputs;
  for (const std::size_t n : sizes) inputs.push_back(random_bytes(random, n));
  const auto queue = place.make_queue(seed);
  const std::vector<Bytes> outputs =
      run_frames(*queue, random, inputs, sizes, [&](Queue& q, std::span<const Frame> frames) {
        (place.kernels->*way.filter)(q, {frames, itemsize});
      });
  for (std::size_t i = 0; i < sizes.size(); ++i)
    EXPECT_TRUE(outputs[i] == on_host(way, inputs[i], itemsize))
        << place.name << " " << way.name << " itemsize " << itemsize << ", " << sizes[i]
        << " bytes, seed " << seed;
}

TEST(KernelShuffle, MixedSizesAndAlignments) {
  for (const Place& place : places())
    for (const Way& way : kWays)
      for (const std::uint32_t itemsize : {1, 2, 3, 4, 5, 8, 12, 16, 24, 31, 64, 255})
        for (std::uint64_t seed = 0; seed < 2; ++seed) {
          std::mt19937_64 random(seed * 256 + itemsize);
          std::vector<std::size_t> sizes{0, 1, itemsize, 8 * itemsize, 20000, 17};
          for (int i = 0; i < 4; ++i) sizes.push_back(random() % 5000);
          expect_as_on_host(place, way, itemsize, sizes, seed);
        }
}

// Planes of aligned sizes, several tiles: no path for the rest.
TEST(KernelShuffle, WholeTiles) {
  for (const Place& place : places())
    for (const Way& way : kWays)
      for (const std::uint32_t itemsize : {2, 4, 8, 16, 6})
        expect_as_on_host(place, way, itemsize, {65536, 49152, 32768 + 4096}, itemsize);
}

TEST(KernelShuffle, EveryItemSize) {
  for (const Place& place : places())
    for (const Way& way : kWays)
      for (std::uint32_t itemsize = 1; itemsize < 256; ++itemsize)
        expect_as_on_host(place, way, itemsize, {40 * itemsize + itemsize / 2}, itemsize);
}

TEST(KernelShuffle, ManySmallChunks) {
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < 1500; ++i) sizes.push_back(i % 7 == 3 ? 0 : i % 90);
  for (const Place& place : places())
    for (const Way& way : kWays) expect_as_on_host(place, way, 4, sizes, 5);
}

TEST(KernelShuffle, RefusesItemSizesOutOfRange) {
  for (const Place& place : places())
    for (const Way& way : kWays)
      for (const std::uint32_t itemsize : {0, 256}) {
        const auto queue = place.make_queue(1);
        EXPECT_THROW((place.kernels->*way.filter)(*queue, {{}, itemsize}), Error);
      }
}

}  // namespace
}  // namespace headrace::test
