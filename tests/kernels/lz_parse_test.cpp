// What a wrong parse would hide: the join repairs it.

#include <gtest/gtest.h>
#include <lz4.h>

#include <span>

#include "kernels/lz/decode.h"
#include "kernels/lz/lz4_dialect.h"
#include "kernels/lz_data.h"
#include "simt/host_queue.h"

namespace headrace::host {
namespace {

using test::Bytes;

Bytes compress(const Bytes& bytes) {
  Bytes block(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(bytes.size()))));
  const int n = LZ4_compress_default(reinterpret_cast<const char*>(bytes.data()),
                                     reinterpret_cast<char*>(block.data()),
                                     static_cast<int>(bytes.size()),
                                     static_cast<int>(block.size()));
  block.resize(static_cast<std::size_t>(n));
  return block;
}

// By hand: where the chain of tokens is when it reaches each group, and what is in the group.
std::vector<LzStretch> walk_groups(const Bytes& block, u32 group_nbytes) {
  const auto end = static_cast<u32>(block.size());
  std::vector<LzStretch> groups;
  LzStretch at{};
  for (u32 low = 0; low < end; low += group_nbytes) {
    at.entry = at.exit;
    follow<Lz4>(block.data(), end, std::min(end, low + group_nbytes), at);
    groups.push_back(at);
  }
  return groups;
}

template <class T>
std::vector<T> read(const T* device, std::size_t n) {
  return {device, device + n};  // the host run's device is the host
}

struct OneStream {
  OneStream(Queue& queue, const Bytes& block, u32 nbytes, u32 group_nbytes)
      : padded(block),
        n_groups((static_cast<u32>(block.size()) + group_nbytes - 1) / group_nbytes),
        target(nbytes),
        stream{nullptr, target.data(), static_cast<u32>(block.size()), nbytes, 0, 0, 0},
        segments(queue, std::size_t{n_groups} * 32),
        groups(queue, n_groups) {
    padded.resize(block.size() + kSourcePadding);
    stream.source = padded.data();
  }
  LzTables tables() const {
    return {{&stream, 1, {}, nullptr, nullptr, false}, n_groups, segments.data(), groups.data()};
  }

  Bytes padded;
  u32 n_groups;
  Bytes target;
  LzStream stream;
  Scratch<LzStretch> segments, groups;
};

TEST(LzMap, IsExact) {
  for (const test::Sample& sample : test::lz_samples()) {
    const Bytes block = compress(sample.bytes);
    HostQueue queue(1);
    const OneStream one(queue, block, static_cast<u32>(sample.bytes.size()), LzMapCut::kGroup);
    const std::size_t n = one.n_groups;
    const Scratch<u32> exits(queue, n * LzMapCut::kSegment), common(queue, n), entries(queue, n);
    const Scratch<u8> paths(queue, n * kLzPaths);
    const LzMapTables map{one.tables(), exits.data(), paths.data(), common.data(), entries.data()};
    simt::launch(queue, (n + 3) / 4, LzMap<Lz4>{map});
    simt::launch(queue, 1, LzLink<Lz4>{map});
    simt::launch(queue, (n + 3) / 4, LzCount<Lz4>{map});
    const std::vector<LzStretch> expected = walk_groups(block, LzMapCut::kGroup);
    const std::vector<LzStretch> got = read(one.groups.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(got[i].entry, expected[i].entry) << sample.name << " group " << i;
      EXPECT_EQ(got[i].exit, expected[i].exit) << sample.name << " group " << i;
      EXPECT_EQ(got[i].tokens, expected[i].tokens) << sample.name << " group " << i;
      EXPECT_EQ(got[i].nbytes, expected[i].nbytes) << sample.name << " group " << i;
    }
  }
}

TEST(LzGuess, IsRightForPackedFields) {
  std::size_t groups = 0, wrong = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Bytes original = test::packed_field(1 << 20, seed), block = compress(original);
    HostQueue queue(seed);
    const OneStream one(queue, block, static_cast<u32>(original.size()), Lz4::Guess::kGroup);
    simt::launch(queue, (one.n_groups + 3) / 4, LzGuess<Lz4>{one.tables()});
    const std::vector<LzStretch> expected = walk_groups(block, Lz4::Guess::kGroup);
    const std::vector<LzStretch> got = read(one.groups.data(), one.n_groups);
    groups += got.size();
    for (std::size_t i = 0; i < got.size(); ++i)
      wrong += got[i].entry != expected[i].entry || got[i].exit != expected[i].exit;
  }
  EXPECT_GT(groups, 100u);
  EXPECT_LE(wrong * 50, groups);
}

// One stream that is parsed, to be executed in some way.
struct Parsed : OneStream {
  Parsed(Queue& queue, const Bytes& original)
      : OneStream(
            queue, compress(original), static_cast<u32>(original.size()), Lz4::Guess::kGroup) {
    listed =
        slab.sums.add<Lz4>({padded.data(), stream.source_nbytes, target.data(), original.size(), 0},
                           slab.group<Lz4>());
    records = Scratch<LzRecord>(queue, slab.sums.records);
    parse_lz<Lz4>(queue, batch(), slab, tuning_of(queue).lz, [](const LzBatch&) {});
  }
  LzBatch batch() {
    return {&listed, 1, {records.data(), &taken, slab.sums.records}, &parsed, &fault, false};
  }

  LzSlab slab{LzParse::guessed};
  LzStream listed{};
  Scratch<LzRecord> records;
  LzParsed parsed{};
  u64 taken = 0;
  u32 fault = 0;
};

// Several rounds of tiles, so that matches reach into what an earlier round wrote.
TEST(LzJump, GoesOnWhereARoundEnds) {
  for (const Bytes& original : {test::echoes(200'000, 1), Bytes(100'001, 3)})
    for (const u32 tiles_at_once : {1u, 2u, 5u}) {
      HostQueue queue(tiles_at_once);
      Parsed one(queue, original);
      execute_jumping<Lz4>(queue, one.batch(), one.slab.sums.tiles, tiles_at_once);
      EXPECT_EQ(one.fault, 0u);
      EXPECT_TRUE(one.target == original) << tiles_at_once;
    }
}

template <u32 tile_nbytes>
void expect_in_order(const Bytes& original, std::uint64_t seed) {
  HostQueue queue(seed);
  Parsed one(queue, original);
  simt::launch(queue, 1, LzOrder<Lz4, tile_nbytes>{one.batch()});
  EXPECT_EQ(one.fault, 0u);
  EXPECT_TRUE(one.target == original) << tile_nbytes;
}

TEST(LzOrder, TilesOfEverySizeGiveTheSame) {
  // With fewer tokens in a tile than are taken at once, and with more.
  for (const Bytes& original : {test::echoes(100'000, 2),
                                test::byte_planes(test::packed_field(100'000, 3), 4),
                                Bytes(100'001, 3),
                                test::random_bytes(100'000, 4)})
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      expect_in_order<4096>(original, seed);
      expect_in_order<16384>(original, seed);
      expect_in_order<32768>(original, seed);
    }
}

// Tokens of two bytes that give one, as snappy's and blosclz's can.
struct ShortTokens {
  static constexpr u32 kMinToken = 2, kMinOutput = 1;
  using Guess = LzCut<256, 16>;
};

constexpr Tuning::Lz kH200 = tuning_of(kMeasuredProcessors, kMeasuredProcessors).lz;

std::vector<Frame> frames_of(std::size_t n, u64 source_nbytes, u64 target_nbytes) {
  std::vector<Frame> frames(n);
  for (Frame& frame : frames) {
    frame.source_nbytes = source_nbytes;
    frame.target_nbytes = target_nbytes;
  }
  return frames;
}

TEST(LzSlabs, BoundTheScratchMemoryOfRecords) {
  constexpr u64 kMiB = 1 << 20;
  const auto check = [&]<class Dialect>(Dialect, u64 source_nbytes, u64 target_nbytes) {
    const std::vector<Frame> frames = frames_of(512, source_nbytes, target_nbytes);
    std::vector<FrameFault> refused;
    std::size_t done = 0, slabs = 0;
    for (; done < frames.size(); ++slabs) {
      const LzPlan plan =
          plan_slabs<Dialect>(std::span(frames).subspan(done), false, kH200, refused);
      ASSERT_GT(plan.n, 0u);
      std::size_t streams = 0;
      for (const LzSlab& slab : plan.slabs) {
        streams += slab.sums.streams;
        if (slab.sums.streams == 0) continue;
        const u64 tables = slab.sums.groups * u64{slab.group<Dialect>().table_nbytes};
        EXPECT_LE(tables + slab.pool_records(kH200) * sizeof(LzRecord), 800 * kMiB);
        EXPECT_LE(slab.sums.nbytes, 512 * kMiB);
        // What there is room for is enough for all that there can be.
        EXPECT_GE(slab.waves(kH200) * slab.wave_records(kH200), slab.sums.records);
        EXPECT_LE(slab.waves(kH200), 8u);
        EXPECT_EQ(slab.pool_records(kH200) < slab.sums.records, slab.waves(kH200) > 1);
      }
      EXPECT_EQ(streams, plan.n);
      done += plan.n;
    }
    EXPECT_EQ(done, frames.size());
    EXPECT_LT(slabs, 16u);
  };
  check(Lz4{}, 4 * kMiB, 4 * kMiB);
  check(Lz4{}, 2 * kMiB, 4 * kMiB);
  check(ShortTokens{}, 4 * kMiB, 4 * kMiB);
  check(ShortTokens{}, 4 * kMiB, 9 * kMiB);
  check(ShortTokens{}, kMiB, 4 * kMiB);
}

TEST(LzSlabs, TakeAStreamThatIsTooLargeByItself) {
  std::vector<Frame> frames = frames_of(3, u64{1} << 30, u64{1} << 30);
  std::vector<FrameFault> refused;
  EXPECT_EQ(plan_slabs<ShortTokens>(frames, false, kH200, refused).n, 1u);
  EXPECT_TRUE(refused.empty());
}

TEST(LzSlabs, LeadByALaneOnlyShortStreams) {
  const auto led = [](const std::vector<Frame>& frames) {
    std::vector<FrameFault> refused;
    const LzPlan plan = plan_slabs<Lz4>(frames, false, kH200, refused);
    EXPECT_EQ(plan.n, frames.size());
    return plan.slabs[0].is_led(kH200);
  };
  std::vector<Frame> frames = frames_of(16000, 8 << 10, 8 << 10);
  EXPECT_TRUE(led(frames));
  frames[7000].source_nbytes = frames[7000].target_nbytes = 200 << 20;
  EXPECT_FALSE(led(frames)) << "a lane would walk for seconds";
  EXPECT_FALSE(led(frames_of(15999, 8 << 10, 8 << 10)));
}

}  // namespace
}  // namespace headrace::host
