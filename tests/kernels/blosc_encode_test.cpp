#include <blosc.h>

#include "headrace/error.h"
#include "kernels/blosc/chunk.h"
#include "kernels/encode_kit.h"

namespace headrace::test {
namespace {

using Inner = BloscFormat::Inner;
using Filter = BloscFormat::Filter;

Encoded encode(const Place& place,
               const std::vector<Bytes>& chunks,
               const BloscFormat& format,
               std::uint64_t seed,
               std::vector<std::size_t> capacities = {}) {
  if (capacities.empty())
    for (const Bytes& chunk : chunks) capacities.push_back(chunk.size() + BLOSC_MAX_OVERHEAD);
  return test::encode(place, chunks, capacities, seed, [&](Queue& q, const EncodeBatch& batch) {
    place.kernels->blosc_encode(q, batch, format);
  });
}

Bytes by_library(const Bytes& bytes, const BloscFormat& format) {
  Bytes chunk(bytes.size() + BLOSC_MAX_OVERHEAD);
  const int n = blosc_compress_ctx(static_cast<int>(format.clevel),
                                   static_cast<int>(format.filter),
                                   format.typesize,
                                   bytes.size(),
                                   bytes.data(),
                                   chunk.data(),
                                   chunk.size(),
                                   format.inner == Inner::zstd ? "zstd" : "lz4",
                                   format.blocksize,
                                   1);
  EXPECT_GT(n, 0);
  chunk.resize(static_cast<std::size_t>(n));
  return chunk;
}

// By c-blosc and by the kernels.
void expect_decode_to(const Place& place, const Encoded& got, const std::vector<Bytes>& chunks) {
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    SCOPED_TRACE(place.name + " chunk " + std::to_string(i) + " of " +
                 std::to_string(chunks[i].size()));
    EXPECT_EQ(got.faults[i], Fault::none);
    std::size_t nbytes = 0;
    ASSERT_EQ(blosc_cbuffer_validate(got.chunks[i].data(), got.chunks[i].size(), &nbytes), 0);
    ASSERT_EQ(nbytes, chunks[i].size());
    Bytes decoded(nbytes + 1);
    const int n = blosc_decompress_ctx(got.chunks[i].data(), decoded.data(), decoded.size(), 1);
    ASSERT_EQ(n, static_cast<int>(nbytes));
    decoded.resize(nbytes);
    EXPECT_TRUE(decoded == chunks[i]);
  }
  expect_decodes(place, place.kernels->blosc, got.chunks, chunks);
}

TEST(KernelBloscEncode, EveryFilterTypeAndSize) {
  for (const Place& place : places())
    for (const Inner inner : {Inner::lz4, Inner::zstd})
      for (const Filter filter : {Filter::none, Filter::shuffle, Filter::bit_shuffle})
        for (const std::uint32_t typesize : {1, 2, 3, 4, 8, 17, 255}) {
          SCOPED_TRACE(testing::Message() << "inner " << static_cast<int>(inner) << " filter "
                                          << static_cast<int>(filter) << " type " << typesize);
          std::mt19937_64 random(typesize);
          std::vector<Bytes> chunks;
          for (const std::size_t n : {0, 1, 127, 128, 300, 40001}) {
            chunks.push_back(packed_field(n, n));
            chunks.push_back(random_bytes(random, n));
            chunks.push_back(repeats(n, random));
          }
          const BloscFormat format{inner, filter, typesize, 5, 0};
          expect_decode_to(place, encode(place, chunks, format, typesize), chunks);
        }
}

TEST(KernelBloscEncode, LaysChunksOutAsCBlosc) {
  const Bytes constant(700001, 3);  // it compresses, so that c-blosc does not fall back to a copy
  for (const Inner inner : {Inner::lz4, Inner::zstd})
    for (const std::uint32_t clevel : {0, 1, 2, 3, 4, 5, 6, 8, 9})
      for (const std::uint32_t typesize : {1, 2, 4, 7, 16, 17})
        for (const std::uint32_t blocksize : {0, 1, 1000, 70000})
          for (const std::size_t n : {100, 128, 4000, 32768, 700001}) {
            // zstd's highest levels take long.
            if (inner == Inner::zstd && clevel > 5 && (typesize != 4 || blocksize != 0)) continue;
            const BloscFormat format{inner, Filter::shuffle, typesize, clevel, blocksize};
            const Bytes wanted = by_library(
                Bytes(constant.begin(), constant.begin() + static_cast<std::ptrdiff_t>(n)), format);
            Bytes header(host::kBloscHeader);
            host::put_blosc_header(host::lay_out_blosc(static_cast<std::uint32_t>(n), format),
                                   static_cast<std::uint32_t>(wanted.size()),
                                   header.data());
            EXPECT_TRUE(std::equal(header.begin(), header.end(), wanted.begin()))
                << "inner " << static_cast<int>(inner) << " clevel " << clevel << " typesize "
                << typesize << " blocksize " << blocksize << " of " << n;
          }
}

TEST(KernelBloscEncode, ManyBlocksOfEveryKind) {
  for (const Place& place : places())
    for (const Inner inner : {Inner::lz4, Inner::zstd}) {
      std::mt19937_64 random(4);
      Bytes mixed = packed_field(300000, 1);
      const Bytes noise = random_bytes(random, 150000);
      mixed.insert(mixed.end(), noise.begin(), noise.end());
      mixed.insert(mixed.end(), 200001, 0);
      const std::vector<Bytes> chunks{mixed, noise, packed_field(400000, 2), Bytes(300000, 1)};
      for (const std::uint32_t clevel : {0, 5}) {
        const Encoded got = encode(place, chunks, {inner, Filter::shuffle, 4, clevel, 0}, clevel);
        expect_decode_to(place, got, chunks);
        EXPECT_EQ(got.chunks[1].size(), noise.size() + BLOSC_MAX_OVERHEAD);  // a copy
      }
    }
}

// At most 10 % larger than what c-blosc makes of it, with zstd's level 1 inside for zstd.
TEST(KernelBloscEncode, CompressesAsWellAsCBlosc) {
  for (const Place& place : places())
    for (const Inner inner : {Inner::lz4, Inner::zstd})
      for (const Filter filter : {Filter::none, Filter::shuffle, Filter::bit_shuffle}) {
        const Bytes chunk = packed_field(1 << 20, 5);
        const BloscFormat format{inner, filter, 4, inner == Inner::zstd ? 1u : 5u, 0};
        const std::size_t library = by_library(chunk, format).size();
        const Encoded got = encode(place, {chunk}, format, 1);
        EXPECT_LT(static_cast<double>(got.chunks[0].size()), 1.1 * static_cast<double>(library))
            << place.name << " inner " << static_cast<int>(inner) << " filter "
            << static_cast<int>(filter);
      }
}

TEST(KernelBloscEncode, TargetsThatAreTooSmall) {
  std::mt19937_64 random(1);
  const Bytes noise = random_bytes(random, 1000), zeros(1000, 0);
  for (const Place& place : places()) {
    const Encoded got = encode(place,
                               {noise, noise, zeros, zeros, {}},
                               {Inner::lz4, Filter::shuffle, 4, 5, 0},
                               1,
                               {1015, 1016, 15, 200, 15});
    const std::vector<Fault> expected{
        Fault::wrong_size, Fault::none, Fault::wrong_size, Fault::none, Fault::wrong_size};
    EXPECT_EQ(got.faults, expected) << place.name;
    EXPECT_TRUE(got.chunks[0].empty());
  }
}

TEST(KernelBloscEncode, RefusesWhatTheFormatHasNoWordFor) {
  const Frame large{nullptr, 0x7ffffff0, nullptr, 0}, empty{};
  for (const Place& place : places()) {
    const auto queue = place.make_queue(1);
    const auto run = [&](const Frame& frame, const BloscFormat& format) {
      place.kernels->blosc_encode(*queue, {{&frame, 1}, nullptr, nullptr}, format);
    };
    EXPECT_THROW(run(large, {}), Error);
    EXPECT_THROW(run(empty, {Inner::lz4, Filter::none, 0, 5, 0}), Error);
    EXPECT_THROW(run(empty, {Inner::lz4, Filter::none, 256, 5, 0}), Error);
    EXPECT_THROW(run(empty, {Inner::lz4, Filter::none, 1, 10, 0}), Error);
  }
}

}  // namespace
}  // namespace headrace::test
