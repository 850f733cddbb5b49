#pragma once

// Frames by libzstd, and what is in them.

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "kernels/decode_kit.h"
#include "kernels/zstd/parse.h"

namespace headrace::test {

struct Compression {
  int level = 3;
  bool checksum = false;
  bool content_size = true;
  int window_log = 0;
  bool long_distance = false;
  std::size_t flush_every = 0;  // bytes of input after which a block ends
};

inline Bytes compress(const Bytes& bytes, const Compression& how = {}) {
  const std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(),
                                                                        ZSTD_freeCCtx);
  const auto set = [&](ZSTD_cParameter parameter, int value) {
    EXPECT_FALSE(ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), parameter, value)));
  };
  set(ZSTD_c_compressionLevel, how.level);
  set(ZSTD_c_checksumFlag, how.checksum);
  set(ZSTD_c_contentSizeFlag, how.content_size);
  if (how.window_log) set(ZSTD_c_windowLog, how.window_log);
  if (how.long_distance) set(ZSTD_c_enableLongDistanceMatching, 1);
  const auto size = how.content_size ? bytes.size() : ZSTD_CONTENTSIZE_UNKNOWN;
  EXPECT_FALSE(ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(context.get(), size)));
  const std::size_t step = how.flush_every ? how.flush_every : bytes.size() + 1;
  Bytes encoded(ZSTD_compressBound(bytes.size()) + (bytes.size() / step + 1) * 64);
  ZSTD_outBuffer out{encoded.data(), encoded.size(), 0};
  std::size_t at = 0;
  for (bool last = false; !last;) {
    const std::size_t n = std::min(step, bytes.size() - at);
    last = at + n == bytes.size();
    ZSTD_inBuffer in{bytes.data() + at, n, 0};
    EXPECT_EQ(ZSTD_compressStream2(context.get(), &out, &in, last ? ZSTD_e_end : ZSTD_e_flush), 0u);
    at += n;
  }
  encoded.resize(out.pos);
  return encoded;
}

// What libzstd makes of it; false if it finds a fault or another size.
inline bool reference_decode(const Bytes& encoded, Bytes& decoded) {
  const std::size_t got =
      ZSTD_decompress(decoded.data(), decoded.size(), encoded.data(), encoded.size());
  return !ZSTD_isError(got) && got == decoded.size();
}

inline Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Bytes random_bytes(std::size_t nbytes, std::uint64_t seed, unsigned values = 256) {
  std::mt19937_64 random(seed);
  Bytes bytes(nbytes);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random() % values);
  return bytes;
}

inline Bytes shuffled(const Bytes& bytes) {
  Bytes result(bytes.size());
  const std::size_t n = bytes.size() / 4;
  for (std::size_t i = 0; i < 4 * n; ++i) result[i % 4 * n + i / 4] = bytes[i];
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(4 * n),
            bytes.end(),
            result.begin() + static_cast<std::ptrdiff_t>(4 * n));
  return result;
}

struct Kind {
  std::string name;
  Bytes (*make)(std::size_t nbytes, std::uint64_t seed);
};
inline const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"packed", packed_field},
      {"shuffled",
       [](std::size_t n, std::uint64_t seed) { return shuffled(packed_field(n, seed)); }},
      {"noise", [](std::size_t n, std::uint64_t seed) { return random_bytes(n, seed); }},
      {"few values", [](std::size_t n, std::uint64_t seed) { return random_bytes(n, seed, 5); }},
      {"constant", [](std::size_t n, std::uint64_t) { return Bytes(n, 0x5a); }},
      {"text", text},
  };
  return all;
}

// Features of the format that frames use: tests assert that they see what they are for.
inline std::set<std::string> features(const Bytes& encoded, std::size_t nbytes) {
  namespace zstd = host::zstd;
  const auto size = static_cast<u32>(encoded.size());
  zstd::Parser counter(encoded.data(), size, static_cast<u32>(nbytes), 0, {});
  EXPECT_EQ(counter.run({}), Fault::none);
  const zstd::Tally tally = counter.tally();
  std::vector<zstd::Frame> frames(tally.frames);
  std::vector<zstd::Block> blocks(tally.blocks);
  std::vector<u32> lists[2] = {std::vector<u32>(tally.with_sequences),
                               std::vector<u32>(tally.with_pool_literals)};
  zstd::Parser(encoded.data(), size, static_cast<u32>(nbytes), 0, {})
      .run({tally.blocks, frames.data(), blocks.data(), lists[0].data(), lists[1].data()});
  std::set<std::string> found;
  for (const zstd::Block& block : blocks) {
    const bool huffman = block.literal_kind == zstd::Literals::huffman;
    if (block.literal_kind == zstd::Literals::repeated) found.insert("rle literals");
    if (huffman) found.insert(block.streams == 1 ? "1 stream" : "4 streams");
    if (huffman && block.huffman_at != block.literals_at) found.insert("treeless");
    if (huffman) found.insert(encoded[block.huffman_at] < 128 ? "fse weights" : "direct weights");
    if (block.record_count == 2 && block.sequence_count == 0) found.insert("rle block");
    if (block.sequence_count == 0) found.insert("no sequences");
    if (block.sequence_count > 127) found.insert("many sequences");
    if (block.sequence_count == 0) continue;
    static const char* const kModes[] = {"predefined", "rle table", "fse table", "repeated table"};
    for (unsigned shift : {2u, 4u, 6u}) found.insert(kModes[encoded[block.modes_at] >> shift & 3]);
  }
  return found;
}

inline void expect_features(const std::set<std::string>& seen,
                            const std::vector<std::string>& wanted) {
  for (const std::string& feature : wanted) EXPECT_TRUE(seen.contains(feature)) << feature;
}

}  // namespace headrace::test
