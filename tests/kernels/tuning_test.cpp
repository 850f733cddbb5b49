// Figures of kernels/tuning.h: those of the device that they were measured on, how they follow
// another one, and that the kernels which other figures choose decode the same.

#include "kernels/tuning.h"

#include <lz4.h>

#include "headrace/error.h"
#include "kernels/common/encode_jobs.h"
#include "kernels/deflate_kit.h"
#include "kernels/zstd_frames.h"
#include "simt/host_queue.h"

namespace headrace::test {
namespace {

TEST(Tuning, IsThatOfAnH200WhereItWasMeasured) {
  const Tuning t = tuning_of(132, 132);
  EXPECT_EQ(t.zstd.few_blocks, 600u);
  EXPECT_EQ(t.zstd.some_blocks, 2500u);
  EXPECT_EQ(t.zstd.jump_part, 40u);
  EXPECT_EQ(t.lz.lead_streams, 16000u);
  EXPECT_EQ(t.lz.order_streams, 70u);
  EXPECT_EQ(t.lz.order_streams_of_planes, 42u);
  EXPECT_EQ(t.lz.few_streams, 200u);
  EXPECT_EQ(t.deflate.order_streams, 60u);
  EXPECT_EQ(t.deflate.search_streams, 132u);
  EXPECT_EQ(t.deflate.turn_streams, 132u);
  EXPECT_EQ(t.deflate.many_streams, 4u * 132);
  EXPECT_EQ(t.deflate.many_blocks, 8u * 132);
  EXPECT_EQ(t.deflate.tiles_at_once, 16u * 132);
  EXPECT_EQ(t.checksum.slices, 64u * 132);
}

TEST(Tuning, FollowsTheNumberOfProcessors) {
  const Tuning half = tuning_of(66, 66), one = tuning_of(1, 1);
  EXPECT_EQ(half.zstd.few_blocks, 300u);
  EXPECT_EQ(half.lz.lead_streams, 8000u);
  EXPECT_EQ(half.deflate.many_streams, 4u * 66);
  EXPECT_EQ(half.zstd.slab_nbytes, tuning_of(132, 132).zstd.slab_nbytes) << "memory, not work";
  EXPECT_EQ(one.zstd.few_blocks, 5u);
  EXPECT_EQ(one.zstd.jump_part, 1u) << "no count becomes none";
}

TEST(Tuning, OfAShareOfADeviceIsThatOfASmallerOne) {
  const Tuning third = tuning_of(44, 132), whole = tuning_of(132, 132);
  EXPECT_EQ(third.zstd.some_blocks, tuning_of(44, 44).zstd.some_blocks);
  EXPECT_EQ(third.deflate.search_streams, 44u) << "no search where other slabs fill the device";
  EXPECT_EQ(third.deflate.turn_streams, 44u) << "nor CTAs that wait";
  EXPECT_EQ(third.deflate.many_streams, 4u * 44);
  EXPECT_EQ(third.deflate.tiles_at_once, whole.deflate.tiles_at_once) << "memory, not work";
  EXPECT_EQ(third.checksum.slices, whole.checksum.slices);
}

TEST(Tuning, OfTheHostIsWhatAnH200WouldRun) {
  HostQueue queue;
  EXPECT_EQ(tuning_of(queue).zstd.few_blocks, 600u);
  queue.tune_for(66);
  EXPECT_EQ(tuning_of(queue).zstd.few_blocks, 300u);
}

// Of blocks of 128 KiB, by a device that searches 2640 segments at once.
TEST(Tuning, SegmentsOfAnEncoderFillItsRounds) {
  const auto chosen = [](std::uint64_t blocks) {
    return host::choose_segment_nbytes(128 << 10, blocks, 2640);
  };
  EXPECT_EQ(chosen(32), 8u << 10) << "one round, the shorter the sooner it ends";
  EXPECT_EQ(chosen(512), 26'240u) << "one round of five a block; six are two";
  EXPECT_EQ(chosen(2048), 26'240u) << "four rounds, of five a block as of four";
  EXPECT_EQ(chosen(1 << 20), 32u << 10) << "the fewer, the less is history";
}

TEST(Tuning, SegmentsOfAnEncoderAreWindowsOfAnyPart) {
  for (const std::uint64_t nbytes : {0u, 1u, 31u, 8191u, 8193u, 32'769u, 100'000u, 1u << 31})
    for (const std::uint64_t at_once : {0u, 1u, 2640u}) {
      const std::uint32_t segment = host::choose_segment_nbytes(nbytes, 3, at_once);
      EXPECT_EQ(segment % 32, 0u) << nbytes;
      EXPECT_GE(segment, 32u) << nbytes;
      EXPECT_LE(segment, 32u << 10) << nbytes;
      EXPECT_LE((nbytes + segment - 1) / segment, nbytes / (8 << 10) + 1)
          << "not shorter than it is worth";
    }
}

Place tuned_for(unsigned processors) {
  static unsigned wanted;
  wanted = processors;
  return {"simt tuned for " + std::to_string(processors),
          &host_kernels(),
          [](std::uint64_t seed) -> std::unique_ptr<Queue> {
            auto queue = std::make_unique<HostQueue>(seed);
            queue->tune_for(wanted);
            return queue;
          }};
}

// No more shared memory than a CTA of the oldest GPUs has.
Place of_little_shared_memory() {
  return {"simt with 64 KiB of shared memory",
          &host_kernels(),
          [](std::uint64_t seed) -> std::unique_ptr<Queue> {
            auto queue = std::make_unique<HostQueue>(seed);
            queue->limit_shared(kSharedEverywhere);
            return queue;
          }};
}

Bytes lz4_block(const Bytes& bytes) {
  Bytes block(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(bytes.size()))));
  const int size = LZ4_compress_default(reinterpret_cast<const char*>(bytes.data()),
                                        reinterpret_cast<char*>(block.data()),
                                        static_cast<int>(bytes.size()),
                                        static_cast<int>(block.size()));
  block.resize(static_cast<std::size_t>(size));
  return block;
}

// As many chunks as bring a device of one multiprocessor to the kernels that large batches have on
// an H200, and one chunk that is most of the work.
TEST(Tuning, OfAnyDeviceDecodesTheSame) {
  std::vector<Bytes> originals;
  for (std::uint64_t i = 0; i < 130; ++i) originals.push_back(packed_field(400 + 4 * i, i));
  originals.push_back(packed_field(70'000, 131));
  std::vector<Bytes> zstd, lz4, gzip;
  for (const Bytes& original : originals) {
    zstd.push_back(compress(original, Compression{}));
    lz4.push_back(lz4_block(original));
    gzip.push_back(compress_libdeflate(original, 6));
  }
  for (const unsigned processors : {1u, 8u}) {
    const Place place = tuned_for(processors);
    expect_decodes(place, place.kernels->zstd, zstd, originals);
    expect_decodes(place, place.kernels->lz4, lz4, originals);
    expect_decodes(place, place.kernels->gzip, gzip, originals);
  }
}

// Fewer streams than CTAs, whose tiles these take in turns: of some streams after others have none
// left, and with a bad stream, whose tiles nobody waits for.
TEST(Tuning, DeflateStreamsInTurnsDecodeTheSame) {
  const Place place = tuned_for(4);
  ASSERT_LT(3U, tuning_of(4, HostQueue().processors()).deflate.turn_streams);
  for (const std::size_t count : {2, 3}) {
    std::vector<Bytes> originals, gzip;
    std::vector<std::size_t> sizes;
    for (std::uint64_t i = 0; i < count; ++i) {
      originals.push_back(packed_field(120'000 - 3'001 * i, i));
      gzip.push_back(compress_libdeflate(originals.back(), 6));
      sizes.push_back(originals.back().size());
    }
    const std::size_t bad = count / 2;
    if (count > 1) gzip[bad].resize(gzip[bad].size() / 2);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const Decoded got = decode(place, place.kernels->gzip, gzip, sizes, seed);
      for (std::size_t i = 0; i < count; ++i) {
        const bool good = count == 1 || i != bad;
        EXPECT_EQ(got.faults[i] == Fault::none, good) << i;
        EXPECT_TRUE(!good || got.chunks[i] == originals[i]) << i << " of " << count;
      }
    }
  }
}

// Few streams, which have the largest tiles or jump elsewhere, and many.
TEST(Tuning, WithTheSharedMemoryOfTuringDecodesTheSame) {
  const Place place = of_little_shared_memory();
  for (const std::size_t count : {1, 3, 40}) {
    std::vector<Bytes> originals;
    for (std::uint64_t i = 0; i < count; ++i)
      originals.push_back(packed_field(count == 1 ? 300'000 : 12'000 + 4 * i, i));
    std::vector<Bytes> zstd, lz4, gzip;
    for (const Bytes& original : originals) {
      zstd.push_back(compress(original, Compression{}));
      lz4.push_back(lz4_block(original));
      gzip.push_back(compress_libdeflate(original, 6));
    }
    expect_decodes(place, place.kernels->zstd, zstd, originals);
    expect_decodes(place, place.kernels->lz4, lz4, originals);
    expect_decodes(place, place.kernels->gzip, gzip, originals);
  }
}

struct TakesTooMuch {
  static constexpr unsigned kThreads = 32;
  static constexpr bool kOnlyWhereItFits = true;
  struct Shared {
    u8 bytes[kSharedFromAmpere];
  };
  SIMT_DEVICE void operator()(Shared&) const {}
};

TEST(Tuning, AKernelThatDoesNotFitIsNotRun) {
  HostQueue queue;
  EXPECT_TRUE(fits<TakesTooMuch>(queue));
  host::simt::launch(queue, 1, TakesTooMuch{});
  queue.limit_shared(kSharedEverywhere);
  EXPECT_FALSE(fits<TakesTooMuch>(queue));
  EXPECT_THROW(host::simt::launch(queue, 1, TakesTooMuch{}), Error);
}

}  // namespace
}  // namespace headrace::test
