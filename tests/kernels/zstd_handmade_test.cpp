#include "kernels/zstd_handmade.h"

namespace headrace::test {
namespace {

void expect_like_reference(const std::vector<Bytes>& encoded,
                           const std::vector<Bytes>& originals,
                           std::uint64_t seed = 1) {
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    Bytes decoded(originals[i].size());
    ASSERT_TRUE(reference_decode(encoded[i], decoded)) << i;
    ASSERT_TRUE(decoded == originals[i]) << i;
  }
  for (const Place& place : places())
    expect_decodes(place, place.kernels->zstd, encoded, originals, seed);
}

Bytes first_of(const Bytes& bytes, std::size_t count) {
  return Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
}

// Sequences of one block with whatever lengths and offsets fit, and literals behind them.
Bytes random_block(Model& model, std::mt19937_64& random, std::size_t limit) {
  const auto below = [&](std::size_t n) { return static_cast<u32>(random() % n); };
  const auto length = [&] { return below(random() % 40 ? 12 : random() % 4 ? 300 : 40000); };
  const Bytes literals = random_bytes(limit, random(), 7);
  std::vector<TestSequence> sequences;
  std::size_t used = 0, nbytes = 0;
  for (;;) {
    TestSequence sequence{length(), 3 + length(), 1 + below(3)};
    const std::size_t position = model.content.size() + sequence.literal_length;
    if (position && random() % 3)
      sequence.offset_value = 4 + below(random() % 2 ? position : 1 + below(position));
    const u32 offset = model.offset_of(sequence);
    if (offset == 0 || offset > position) continue;
    if (nbytes + sequence.literal_length + sequence.match_length > limit) break;
    nbytes += sequence.literal_length + sequence.match_length;
    model.execute(sequence, literals, used);
    sequences.push_back(sequence);
  }
  model.append(literals, used, below(limit - nbytes + 1));
  return stored_literals(first_of(literals, used)) + sequences_section(sequences);
}

TEST(ZstdHandmade, RandomSequences) {
  std::mt19937_64 random(1);
  std::vector<Bytes> encoded, originals;
  for (std::size_t limit : {50, 300, 5000, 131072})
    for (int round = 0; round < (limit > 10000 ? 1 : 4); ++round) {
      Model model;
      Bytes blocks;
      for (int i = 0; i < 3; ++i)
        blocks = blocks + block(BlockType::compressed, random_block(model, random, limit));
      encoded.push_back(frame(model.content.size(), blocks + kEndBlock));
      originals.push_back(model.content);
    }
  for (std::uint64_t seed = 1; seed < 3; ++seed) expect_like_reference(encoded, originals, seed);
}

// More than the 64 bits that the fast chain handles in one step, and less than one.
TEST(ZstdHandmade, SequencesOfManyBitsAndOfNone) {
  std::vector<Bytes> encoded, originals;
  {
    Model model;
    model.content = random_bytes(131072, 1);
    Bytes blocks = block(BlockType::raw, model.content);
    const Bytes literals = random_bytes(40000, 2);
    std::size_t used = 0;
    std::vector<TestSequence> sequences(500, {1, 4, 100000});
    sequences[100] = {33000, 66000, 132000};
    for (const TestSequence& sequence : sequences) model.execute(sequence, literals, used);
    model.append(literals, used, 10);
    blocks =
        blocks + block(BlockType::compressed,
                       stored_literals(first_of(literals, used)) + sequences_section(sequences));
    encoded.push_back(frame(model.content.size(), blocks + kEndBlock));
    originals.push_back(model.content);
  }
  for (const TestSequence sequence :
       {TestSequence{2, 5, 1}, {0, 3, 1}, {1, 7, 9}, {0, 4, 2}, {12, 3, 17}}) {
    Model model;
    model.content = random_bytes(50, 1);
    Bytes blocks = block(BlockType::raw, model.content);
    const std::vector<TestSequence> sequences(1000, sequence);
    const Bytes literals(12000, 0x77);
    std::size_t used = 0;
    for (const TestSequence& each : sequences) model.execute(each, literals, used);
    const Bytes section = used ? repeated_literals(0x77, used) : stored_literals({});
    blocks = blocks + block(BlockType::compressed, section + sequences_section(sequences, true)) +
             kEndBlock;
    encoded.push_back(frame(model.content.size(), blocks));
    originals.push_back(model.content);
    expect_features(features(encoded.back(), originals.back().size()), {"rle table"});
    if (used) expect_features(features(encoded.back(), originals.back().size()), {"rle literals"});
  }
  expect_like_reference(encoded, originals);
}

TEST(ZstdHandmade, RawAndRleBlocksOfEverySize) {
  Bytes content, blocks;
  for (std::size_t nbytes : {0, 1, 2, 3, 100, 131072, 16385, 1}) {
    const Bytes raw = random_bytes(nbytes, nbytes), rle(nbytes, static_cast<std::uint8_t>(nbytes));
    content = content + raw + rle;
    blocks =
        blocks + block(BlockType::raw, raw) + rle_block(static_cast<std::uint8_t>(nbytes), nbytes);
  }
  expect_like_reference({frame(content.size(), blocks + kEndBlock)}, {content});
}

// Repeat offsets pass through blocks without sequences, and start anew with each frame.
TEST(ZstdHandmade, RepeatOffsetsAcrossBlocks) {
  std::vector<Bytes> encoded(1), originals(1);
  for (int round = 0; round < 3; ++round) {
    Model model;
    model.content = random_bytes(100, 4);
    Bytes blocks = block(BlockType::raw, model.content);
    const Bytes literals = random_bytes(300, 5);
    for (const TestSequence sequence : {TestSequence{3, 5, 33},
                                        {0, 3, 1},
                                        {0, 4, 2},
                                        {0, 5, 3},
                                        {2, 3, 3},
                                        {0, 9, 2},
                                        {1, 3, 1},
                                        {0, 3, 3},
                                        {0, 3, 3},
                                        {1, 8, 2}}) {
      std::size_t used = 0;
      model.execute(sequence, literals, used);
      blocks = blocks +
               block(BlockType::compressed,
                     stored_literals(first_of(literals, used)) + sequences_section({sequence})) +
               rle_block(9, 4);
      model.content.insert(model.content.end(), 4, 9);
    }
    encoded[0] = encoded[0] + frame(model.content.size(), blocks + kEndBlock);
    originals[0] = originals[0] + model.content;
  }
  expect_like_reference(encoded, originals);
}

}  // namespace
}  // namespace headrace::test
