// Streams that hardly shrink, which a scout walks (kernels/lz/sparse.h), and records that do not
// all fit at once.

#include <gtest/gtest.h>
#include <lz4.h>

#include "kernels/lz/decode.h"
#include "kernels/lz/lz4_dialect.h"
#include "kernels/lz_data.h"
#include "simt/host_queue.h"

namespace headrace::host {
namespace {

using test::Bytes;

// A block of LZ4 by hand, and what it decodes to.
class Block {
 public:
  explicit Block(std::uint64_t seed) : random_(seed) {}

  // Noise, then `match` bytes (4 or more) as `distance` bytes before; the last token has none.
  void add(std::size_t literals, std::size_t match = 0, std::size_t distance = 0) {
    const std::size_t code = match ? match - 4 : 0;
    const auto nibble = [](std::size_t n) { return std::min<std::size_t>(n, 15); };
    put(nibble(literals) << 4 | nibble(code));
    put_run(literals);
    for (std::size_t i = 0; i < literals; ++i) {
      original.push_back(static_cast<std::uint8_t>(random_()));
      put(original.back());
    }
    if (match == 0) return;
    put(distance & 255);
    put(distance >> 8);
    put_run(code);
    for (std::size_t i = 0; i < match; ++i)
      original.push_back(original[original.size() - distance]);
  }

  Bytes bytes, original;

 private:
  void put(std::size_t byte) { bytes.push_back(static_cast<std::uint8_t>(byte)); }
  void put_run(std::size_t n) {
    if (n < 15) return;
    for (n -= 15; n >= 255; n -= 255) put(255);
    put(n);
  }

  std::mt19937_64 random_;
};

// Matches that a warp makes in rounds: of what one before them makes, of themselves, of literals
// between them, long ones.
Block sparse_block(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Block block(seed);
  block.add(3000 + seed, 40, 700);
  for (int i = 0; i < 70; ++i) {
    block.add(random() % 9000, 4 + random() % 12, 1 + random() % 20);
    block.add(random() % 30, 4 + random() % 8, 1 + random() % 40);  // of the match before
    if (i % 9 == 0) block.add(random() % 5000, 65 + random() % 300, 1 + random() % 200);
    if (i % 16 == 0) block.add(5, 600, 1 + random() % 9);
  }
  block.add(20);
  return block;
}

// One LZ4 token for 104 bytes of source and of target.
Block dense_block(std::size_t tokens) {
  Block block(9);
  for (std::size_t i = 0; i < tokens; ++i) block.add(100, 4, 50);
  block.add(20);
  return block;
}

// What a scout makes of a stream.
LzParsed scout(const Bytes& block, std::size_t nbytes) {
  HostQueue queue(1);
  Bytes padded(block);
  padded.resize(block.size() + kSourcePadding);
  const LzStream stream{
      padded.data(), nullptr, static_cast<u32>(block.size()), static_cast<u32>(nbytes), 0, 0, 0};
  const u64 room = scouted_records<Lz4>(block.size(), nbytes);
  std::vector<LzRecord> records(room);
  u64 taken = 0;
  LzParsed parsed{};
  simt::launch(
      queue, 1, LzScout<Lz4>{{&stream, 1, {records.data(), &taken, room}, &parsed, nullptr, true}});
  return parsed;
}

TEST(LzScout, WalksStreamsOfFewTokens) {
  const Block block = sparse_block(1);
  const LzParsed parsed = scout(block.bytes, block.original.size());
  EXPECT_TRUE(parsed.scouted);
  EXPECT_GT(parsed.n_records, 140u);
  const Bytes noise = test::random_bytes(16, 1);
  EXPECT_EQ(scout(noise, 3).n_records, 0u);
}

TEST(LzScout, GivesUpWhereTokensAreDense) {
  const Block few = dense_block(kScoutTokens / 2), many = dense_block(10 * kScoutTokens);
  EXPECT_TRUE(scout(few.bytes, few.original.size()).scouted);
  EXPECT_FALSE(scout(many.bytes, many.original.size()).scouted);
  EXPECT_EQ(scout(many.bytes, many.original.size()).n_records, 0u);
}

// Nor over one that would keep a lane for long: gigabytes of literals may hold any number of
// tokens.
TEST(LzScout, NeverWalksAloneOverAHugeStream) {
  EXPECT_TRUE(may_be_sparse(4 << 20, 4 << 20));
  EXPECT_FALSE(may_be_sparse(400 << 20, 400 << 20));
  EXPECT_FALSE(may_be_sparse(u64{17} << 20, u64{17} << 20));
  EXPECT_FALSE(may_be_sparse(96, 100));
  EXPECT_TRUE(may_be_sparse(97, 100));
}

TEST(LzScout, LeavesFaultsToTheParse) {
  Block block = sparse_block(2);
  const std::size_t nbytes = block.original.size();
  EXPECT_EQ(scout(block.bytes, nbytes + 1).n_records, 0u);
  EXPECT_EQ(scout(block.bytes, nbytes - 1).n_records, 0u);
  block.bytes.pop_back();
  EXPECT_EQ(scout(block.bytes, nbytes).n_records, 0u);
}

TEST(LzSparse, DecodesBesideStreamsThatAreNot) {
  std::vector<Bytes> blocks, originals;
  const auto add = [&](const Block& block) {
    blocks.push_back(block.bytes);
    originals.push_back(block.original);
  };
  for (std::uint64_t seed = 1; seed < 4; ++seed) add(sparse_block(seed));
  add(dense_block(700));
  add(dense_block(3));
  Block literals(5);
  literals.add(70'000);
  add(literals);
  for (const test::Place& place : test::places())
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      test::expect_decodes(place, place.kernels->lz4, blocks, originals, seed);
      test::expect_decodes(place, place.kernels->lz4, {blocks[0]}, {originals[0]}, seed);
    }
}

TEST(LzSparse, BadDistancesAreMalformed) {
  const std::pair<std::size_t, std::size_t> bad[] = {{2000, 0}, {2000, 2001}};
  for (const auto& [literals, distance] : bad) {
    Block block(1);
    block.add(literals, 4, 1);
    block.bytes[block.bytes.size() - 2] = static_cast<std::uint8_t>(distance);
    block.bytes[block.bytes.size() - 1] = static_cast<std::uint8_t>(distance >> 8);
    block.add(5000);
    ASSERT_TRUE(may_be_sparse(block.bytes.size(), block.original.size()));
    for (const test::Place& place : test::places()) {
      const test::Decoded got =
          test::decode(place, place.kernels->lz4, {block.bytes}, {block.original.size()});
      EXPECT_EQ(got.faults[0], Fault::malformed) << place.name << " distance " << distance;
    }
  }
  // Literals come last: a match may not reach into the last 5 bytes.
  Block late(2);
  late.add(3000, 8, 100);
  late.add(4);
  for (const test::Place& place : test::places())
    EXPECT_EQ(
        test::decode(place, place.kernels->lz4, {late.bytes}, {late.original.size()}).faults[0],
        Fault::malformed);
}

// A pool of records that holds one stream's at a time, or some of all.
TEST(LzWaves, GiveTheSameHoweverFewRecordsFit) {
  struct Stream {
    Bytes block, original;
  };
  std::vector<Stream> streams;
  const auto add = [&](const Bytes& original) {
    Bytes block(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(original.size()))) +
                kSourcePadding);
    const int n = LZ4_compress_default(reinterpret_cast<const char*>(original.data()),
                                       reinterpret_cast<char*>(block.data()),
                                       static_cast<int>(original.size()),
                                       static_cast<int>(block.size()));
    block.resize(static_cast<std::size_t>(n));
    streams.push_back({block, original});
  };
  for (std::uint64_t i = 0; i < 40; ++i) add(test::echoes(3'000 + 50 * i, i));
  for (std::uint64_t i = 0; i < 10; ++i) add(test::random_bytes(2'000 + i, i));
  add(test::echoes(40'000, 99));
  for (const bool planes : {false, true})
    for (const u64 nbytes : {u64{0}, u64{20'000}, u64{1} << 30})
      for (const u64 order_streams : {u64{1}, u64{1'000}}) {
        Tuning::Lz tuning = tuning_of(kMeasuredProcessors, kMeasuredProcessors).lz;
        tuning.jump_tiles = 3;
        tuning.order_streams = tuning.order_streams_of_planes = order_streams;
        tuning.order_head_start = 0;
        HostQueue queue(nbytes + order_streams);
        std::vector<Bytes> sources, targets;
        std::vector<Frame> frames;
        for (const Stream& stream : streams) {
          sources.push_back(stream.block);
          sources.back().resize(stream.block.size() + kSourcePadding);
          targets.emplace_back(stream.original.size());
        }
        for (u32 i = 0; i < streams.size(); ++i)
          frames.push_back({sources[i].data(),
                            streams[i].block.size(),
                            targets[i].data(),
                            targets[i].size(),
                            i});
        std::vector<u32> faults(streams.size());
        std::vector<FrameFault> refused;
        const LzPlan plan = plan_slabs<Lz4>(frames, planes, tuning, refused);
        tuning.slab_scratch = nbytes;
        for (const LzSlab& slab : plan.slabs) tuning.slab_scratch += slab.sums.tables_nbytes;
        u32 waves = 0, slabs = 0;
        for (const LzSlab& slab : plan.slabs) {
          if (slab.sums.streams == 0) continue;
          ++slabs;
          waves += slab.waves(tuning);
        }
        EXPECT_EQ(waves > slabs, nbytes < u64{1} << 30);
        decode_lz<Lz4>(queue, {frames, {}, faults.data(), planes, {}}, tuning);
        for (std::size_t i = 0; i < streams.size(); ++i) {
          EXPECT_EQ(faults[i], 0u) << i;
          EXPECT_TRUE(targets[i] == streams[i].original) << i << " of " << nbytes;
        }
      }
}

}  // namespace
}  // namespace headrace::host
