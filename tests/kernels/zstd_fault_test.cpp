#include "kernels/zstd_handmade.h"

namespace headrace::test {
namespace {

struct Sample {
  std::string name;
  Bytes encoded, original;
};

// Small frames that use all of the format between them.
std::vector<Sample> samples() {
  std::vector<Sample> all;
  const auto add = [&](const char* name, const Bytes& original, const Compression& how) {
    all.push_back({name, compress(original, how), original});
  };
  add("text", text(700, 1), {.level = 19});
  add("packed field", packed_field(600, 2), {.level = 3});
  add("flushed", text(900, 3), {.level = 6, .content_size = false, .flush_every = 180});
  add("few values", random_bytes(2500, 4, 3), {.level = 3});
  add("checksum", text(300, 5), {.checksum = true});
  add("two frames", {}, {});
  all.back().original = text(200, 6) + Bytes(300, 1);
  all.back().encoded = compress(text(200, 6)) + compress(Bytes(300, 1));
  Model model;
  Bytes content = random_bytes(40, 8), blocks = block(BlockType::raw, content) + rle_block(7, 90);
  model.content = content + Bytes(90, 7);
  std::size_t used = 0;
  const std::vector<TestSequence> sequences{{1, 5, 20}, {0, 4, 1}, {3, 9, 3}, {0, 3, 3}, {2, 7, 2}};
  const Bytes literals(20, 0x66);
  for (const TestSequence& sequence : sequences) model.execute(sequence, literals, used);
  blocks = blocks + block(BlockType::compressed,
                          repeated_literals(0x66, used) + sequences_section(sequences));
  all.push_back({"handmade", frame(model.content.size(), blocks + kEndBlock), model.content});
  return all;
}

// Next to libzstd: what it refuses must be refused, what both take must be the same. libzstd 1.5
// lets pass what RFC 8878 forbids: sequence and Huffman streams that are not used up exactly,
// reserved bits of the modes, and a repeat offset of 0, which it takes for 1.
struct Verdicts {
  std::size_t same = 0, both_refuse = 0, stricter = 0;
};
void compare(const Place& place,
             const std::vector<Bytes>& variants,
             std::size_t nbytes,
             Verdicts& verdicts) {
  const Decoded got = decode(
      place, place.kernels->zstd, variants, std::vector<std::size_t>(variants.size(), nbytes));
  for (std::size_t i = 0; i < variants.size(); ++i) {
    Bytes expected(nbytes);
    const bool valid = reference_decode(variants[i], expected);
    const bool accepted = got.faults[i] == Fault::none;
    if (!valid) {
      ++verdicts.both_refuse;
      EXPECT_FALSE(accepted) << "variant " << i;
    } else if (accepted) {
      ++verdicts.same;
      EXPECT_TRUE(got.chunks[i] == expected) << "variant " << i;
    } else {
      ++verdicts.stricter;
      EXPECT_EQ(got.faults[i], Fault::malformed) << "variant " << i;
    }
  }
}

TEST(ZstdFaults, EveryTruncation) {
  for (const Place& place : places())
    for (const Sample& sample : samples()) {
      SCOPED_TRACE(sample.name);
      std::vector<Bytes> variants;
      for (std::size_t n = 0; n < sample.encoded.size(); ++n)
        variants.emplace_back(sample.encoded.begin(),
                              sample.encoded.begin() + static_cast<std::ptrdiff_t>(n));
      Verdicts verdicts;
      compare(place, variants, sample.original.size(), verdicts);
      EXPECT_EQ(verdicts.both_refuse, variants.size());
    }
}

TEST(ZstdFaults, EveryChangedByte) {
  for (const Place& place : places())
    for (const Sample& sample : samples()) {
      SCOPED_TRACE(sample.name);
      std::vector<Bytes> variants;
      for (std::size_t i = 0; i < sample.encoded.size(); ++i)
        for (const unsigned change : {0x01, 0x80, 0xff}) {
          variants.push_back(sample.encoded);
          variants.back()[i] = static_cast<std::uint8_t>(variants.back()[i] ^ change);
        }
      Verdicts verdicts;
      compare(place, variants, sample.original.size(), verdicts);
      EXPECT_GT(verdicts.same, 0u);
      EXPECT_GT(verdicts.both_refuse, 0u);
    }
}

struct Bad {
  const char* name;
  Bytes encoded;
  std::size_t nbytes;
  Fault fault;
};

// Chunks that are wrong in one way each stand between good ones.
void expect_faults(const std::vector<Bad>& all) {
  const Bytes good = packed_field(700, 1), good_encoded = compress(good);
  for (const Place& place : places())
    for (const HostHas host_has : kHostHas) {
      std::vector<Bytes> encoded;
      std::vector<std::size_t> nbytes;
      for (const Bad& bad : all) {
        encoded.push_back(bad.encoded);
        nbytes.push_back(bad.nbytes);
        encoded.push_back(good_encoded);
        nbytes.push_back(good.size());
      }
      const Decoded got = decode(place, place.kernels->zstd, encoded, nbytes, 1, host_has);
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(got.faults[2 * i], all[i].fault) << all[i].name;
        EXPECT_EQ(got.faults[2 * i + 1], Fault::none) << "behind " << all[i].name;
        EXPECT_TRUE(got.chunks[2 * i + 1] == good) << "behind " << all[i].name;
      }
    }
}

TEST(ZstdFaults, OfFrames) {
  const Bytes content = text(500, 1);
  const Bytes encoded = compress(content), with_checksum = compress(content, {.checksum = true});
  const Bytes unsized = compress(content, {.content_size = false});
  const auto changed = [](Bytes bytes, std::size_t at, unsigned to) {
    bytes[at] = static_cast<std::uint8_t>(to);
    return bytes;
  };
  const Bytes wrong_checksum =
      changed(with_checksum, with_checksum.size() - 1, with_checksum.back() ^ 1u);
  const Bytes magic = little_endian(0xfd2fb528, 4);
  expect_faults({
      {"smaller than wanted", encoded, 501, Fault::wrong_size},
      {"larger than wanted", encoded, 499, Fault::wrong_size},
      {"smaller, size unknown", unsized, 501, Fault::wrong_size},
      {"larger, size unknown", unsized, 499, Fault::wrong_size},
      {"nothing", {}, 1, Fault::wrong_size},
      {"two frames for one", encoded + encoded, 500, Fault::wrong_size},
      {"no frame", Bytes(20, 1), 500, Fault::malformed},
      {"bytes behind the frame", encoded + Bytes{1}, 500, Fault::truncated},
      {"junk behind the frame", encoded + Bytes(9, 1), 500, Fault::malformed},
      {"skippable frame cut", {0x50, 0x2a, 0x4d, 0x18, 9, 0, 0, 0, 1}, 0, Fault::truncated},
      {"checksum", wrong_checksum, 500, Fault::checksum},
      {"checksum of nothing", changed(compress({}, {.checksum = true}), 9, 0), 0, Fault::checksum},
      {"another content size",
       frame(501, block(BlockType::raw, content) + kEndBlock),
       500,
       Fault::wrong_size},
      {"content size too small",
       frame(499, block(BlockType::raw, content) + kEndBlock),
       500,
       Fault::malformed},
      {"content size of nothing", frame(1, kEndBlock), 1, Fault::malformed},
      {"reserved bit",
       magic + Bytes{0x28, 1} + block(BlockType::raw, {7}) + kEndBlock,
       1,
       Fault::malformed},
      {"dictionary",
       magic + Bytes{0x21, 3, 1} + block(BlockType::raw, {7}) + kEndBlock,
       1,
       Fault::unsupported},
      {"window",
       magic + Bytes{0x00, 0xb0} + block(BlockType::raw, {7}) + kEndBlock,
       1,
       Fault::unsupported},
      {"block type", frame(1, block_header(BlockType{3}, 1, true) + Bytes{1}), 1, Fault::malformed},
      {"raw block too large",
       frame(131073, block(BlockType::raw, Bytes(131073)) + kEndBlock),
       131073,
       Fault::malformed},
      {"RLE block too large",
       frame(131073, rle_block(1, 131073) + kEndBlock),
       131073,
       Fault::malformed},
  });
}

// `count` blocks of one byte, and blocks of nothing in between.
Bytes tiny_blocks(std::size_t count, const Bytes& nothing = {}) {
  Bytes blocks;
  for (std::size_t i = 0; i < count; ++i)
    blocks = std::move(blocks) + block(BlockType::raw, {static_cast<std::uint8_t>(i)}) + nothing;
  return frame(count, blocks + kEndBlock);
}

// What blocks cost before anything is decoded is bounded by what comes out of them.
TEST(ZstdFaults, OfTinyBlocks) {
  constexpr std::size_t kMost = 1024 + 4;  // for 1028 bytes
  const Bytes no_sequences{0};
  const Bytes huffman_table = block(BlockType::compressed, Bytes{2, 0x40, 0, 0} + no_sequences);
  expect_faults({
      {"one too many", tiny_blocks(kMost + 1), kMost + 1, Fault::unsupported},
      {"tables of Huffman codes alone",
       tiny_blocks(kMost / 2 + 1, huffman_table),
       kMost / 2 + 1,
       Fault::unsupported},
      {"many too many", tiny_blocks(5000), 5000, Fault::unsupported},
  });
  const Bytes empty = block(BlockType::raw, {}) + rle_block(7, 0) +
                      block(BlockType::compressed, repeated_literals(7, 0) + no_sequences);
  const std::vector<Bytes> good{tiny_blocks(kMost), tiny_blocks(1000, empty)};
  for (const Place& place : places())
    for (const HostHas host_has : kHostHas) {
      const Decoded got = decode(place, place.kernels->zstd, good, {kMost, 1000}, 1, host_has);
      for (std::size_t i = 0; i < good.size(); ++i) {
        Bytes expected(got.chunks[i].size());
        EXPECT_TRUE(reference_decode(good[i], expected));
        EXPECT_EQ(got.faults[i], Fault::none);
        EXPECT_TRUE(got.chunks[i] == expected);
      }
    }
}

// One block, behind a raw one of 100 bytes.
Bad bad_block(const char* name, const Bytes& content, std::size_t nbytes) {
  return {name,
          frame(100 + nbytes,
                block(BlockType::raw, random_bytes(100, 1)) +
                    block(BlockType::compressed, content) + kEndBlock),
          100 + nbytes,
          Fault::malformed};
}

Bytes literals_header(unsigned type, unsigned format, std::uint64_t count, std::uint64_t nbytes) {
  const unsigned bits = format < 2 ? 10 : format == 2 ? 14 : 18;
  return little_endian(type | format << 2 | count << 4 | nbytes << (4 + bits),
                       format < 2 ? 3 : format + 2);
}

TEST(ZstdFaults, OfLiterals) {
  const Bytes streams = Bytes(6) + Bytes(8, 0x55);
  const Bytes table{0x83, 0x11, 0x22};  // weights 1, 1, 2, 2: the last one is 1 + 1 + 2 + 2 -> 2
  expect_faults({
      bad_block("empty block", {}, 0),
      bad_block("header cut", {0x0c}, 4),
      bad_block("stored ones cut", little_endian(50 << 4 | 3 << 2, 3) + Bytes(20), 50),
      bad_block("too many", repeated_literals(1, 131073) + Bytes{0}, 131073),
      bad_block("no table before", literals_header(3, 1, 50, 14) + streams + Bytes{0}, 50),
      bad_block("longer than the block", literals_header(2, 1, 50, 60) + streams + Bytes{0}, 50),
      bad_block("four streams of five", literals_header(2, 1, 5, 14) + streams + Bytes{0}, 5),
      bad_block("no streams", literals_header(2, 1, 50, 3) + table + Bytes{0}, 50),
      bad_block("table cut", literals_header(2, 1, 50, 1) + Bytes{0x90, 0}, 50),
      bad_block("weights all zero", literals_header(2, 0, 9, 4) + Bytes{0x81, 0, 0x55, 0x55, 0}, 9),
      bad_block(
          "weight too large", literals_header(2, 0, 9, 4) + Bytes{0x81, 0xc1, 0x55, 0x55, 0}, 9),
      bad_block(
          "one longest code", literals_header(2, 0, 9, 4) + Bytes{0x80, 0x20, 0x55, 0x55, 0}, 9),
      bad_block(
          "sum not filled up", literals_header(2, 0, 9, 4) + Bytes{0x82, 0x44, 0x10, 0x55, 0}, 9),
      bad_block(
          "stream without an end", literals_header(2, 0, 9, 4) + Bytes{0x80, 0x10, 0x55, 0, 0}, 9),
      bad_block("stream too long",
                literals_header(2, 0, 9, 5) + Bytes{0x80, 0x10, 0x55, 0x55, 0x05, 0},
                9),
      bad_block("stream too short", literals_header(2, 0, 9, 3) + Bytes{0x80, 0x10, 0x55, 0}, 9),
      bad_block(
          "weights' table", literals_header(2, 0, 9, 6) + Bytes{3, 0xff, 0xff, 1, 5, 5, 0}, 9),
  });
}

TEST(ZstdFaults, OfSequences) {
  const auto with = [](const std::vector<TestSequence>& sequences, std::size_t literals = 2) {
    return stored_literals(Bytes(literals, 1)) + sequences_section(sequences);
  };
  const Bytes good = with({{2, 3, 10}});
  const auto cut = [&](std::size_t n) { return Bytes(good.begin(), good.end() - long(n)); };
  const Bytes none = stored_literals(Bytes(2, 1));
  Bad too_far_in_frame = bad_block("", with({{0, 3, 13}}), 5);
  too_far_in_frame.name = "into the frame before";
  const Bytes first = frame(100, block(BlockType::raw, Bytes(100)) + kEndBlock);
  const Bytes second = frame(15,
                             block(BlockType::raw, Bytes(10)) +
                                 block(BlockType::compressed, with({{0, 3, 15}})) + kEndBlock);
  too_far_in_frame.encoded = first + second;
  too_far_in_frame.nbytes = 115;
  Bytes reserved = good;
  reserved[6] = 1;
  expect_faults({
      bad_block("before the frame", with({{1, 3, 105}}), 5),
      bad_block("far before the frame", with({{1, 3, 1u << 28}}), 5),
      bad_block("at no offset, by value", with({{1, 3, 4}, {0, 3, 3}}), 8),
      bad_block("at no offset, by repeat", with({{0, 3, 3}}), 5),
      {"repeat offset before the frame",
       frame(5, block(BlockType::compressed, with({{2, 3, 2}})) + kEndBlock),
       5,
       Fault::malformed},
      too_far_in_frame,
      bad_block("more literals than there are", with({{3, 3, 10}}), 5),
      bad_block("more literals in the end", with({{1, 3, 10}, {2, 3, 10}}), 8),
      bad_block("larger than a block", with({{2, 70000, 10}, {0, 70000, 10}}), 140002),
      bad_block("literals make it too large", with({{0, 3, 10}, {0, 131000, 10}}, 100), 131103),
      bad_block("count cut", none + Bytes{0xff, 1}, 2),
      bad_block("modes cut", none + Bytes{1}, 2),
      bad_block("nothing coded", none + Bytes{1, 0}, 5),
      bad_block("no stream", cut(1), 5),
      bad_block("behind none", none + Bytes{0, 0}, 2),
      bad_block("none in two bytes", none + Bytes{0x80, 0, 0}, 2),
      bad_block("more than fit", none + Bytes{0xff, 0xff, 0xff, 0}, 131072),
      bad_block("table never told", none + Bytes{1, 0xc0, 1}, 5),
      bad_block("RLE code cut", none + Bytes{1, 0x54, 1}, 5),
      bad_block("RLE literal length", none + Bytes{1, 0x54, 36, 2, 0, 5}, 5),
      bad_block("RLE offset", none + Bytes{1, 0x54, 2, 32, 0, 5}, 5),
      bad_block("RLE match length", none + Bytes{1, 0x54, 2, 2, 53, 5}, 5),
      bad_block("FSE log", none + Bytes{1, 0x80, 0xff, 0xff, 0xff, 0xff}, 5),
      bad_block("FSE table cut", none + Bytes{1, 0x80, 0x10}, 5),
      bad_block("stream without an end", good + Bytes{0}, 5),
      bad_block("stream too long", good + Bytes{1}, 5),
      bad_block("reserved mode bits", reserved, 5),
  });
}

// Nothing shows which of several faults of a chunk counts, or that other chunks notice.
TEST(ZstdFaults, FramesMayShareAChunk) {
  const Bytes content = text(300, 1), encoded = compress(content);
  Bytes bad = encoded;
  bad.resize(bad.size() - 5);
  for (const Place& place : places()) {
    const auto queue = place.make_queue(1);
    const Bytes padded = encoded + Bytes(64);
    const auto good_source = Scratch<std::uint8_t>::of(*queue, padded.data(), padded.size());
    const Bytes bad_padded = bad + Bytes(64);
    const auto bad_source = Scratch<std::uint8_t>::of(*queue, bad_padded.data(), bad_padded.size());
    const Scratch<std::uint8_t> target(*queue, 3 * content.size());
    const auto to = [&](std::size_t i) { return target.data() + i * content.size(); };
    const std::vector<Frame> frames{{good_source.data(), encoded.size(), to(0), content.size(), 0},
                                    {bad_source.data(), bad.size(), to(1), content.size(), 0},
                                    {good_source.data(), encoded.size(), to(2), content.size(), 1}};
    std::uint32_t faults[2] = {};
    const auto device_faults = Scratch<std::uint32_t>::of(*queue, faults, 2);
    place.kernels->zstd(*queue, {frames, {}, device_faults.data()});
    Bytes got(content.size());
    queue->download(faults, device_faults.data(), sizeof(faults));
    queue->download(got.data(), to(2), got.size());
    queue->synchronize();
    EXPECT_EQ(faults[0], static_cast<std::uint32_t>(Fault::truncated));
    EXPECT_EQ(faults[1], static_cast<std::uint32_t>(Fault::none));
    EXPECT_TRUE(got == content);
  }
}

}  // namespace
}  // namespace headrace::test
