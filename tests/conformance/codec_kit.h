#pragma once

// What every codec and every implementation of it must do. A codec's own test gives the kit its
// configurations and adds what the format alone asks for.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/registry.h"
#include "headrace/error.h"

namespace headrace::kit {

using Bytes = std::vector<std::byte>;

// Smooth float32 with some noise in the mantissa: compresses about as climate data do.
inline Bytes smooth_floats(std::size_t nbytes, unsigned seed = 1) {
  std::mt19937 random(seed);
  Bytes out(nbytes);
  for (std::size_t i = 0; i + 4 <= nbytes; i += 4) {
    const double x = static_cast<double>(i) * 1e-4;
    const auto v = static_cast<float>(280 + 10 * std::sin(x) + 1e-3 * (random() % 256));
    std::memcpy(out.data() + i, &v, 4);
  }
  for (std::size_t i = nbytes / 4 * 4; i < nbytes; ++i) out[i] = std::byte(random());
  return out;
}

inline Bytes noise(std::size_t nbytes, unsigned seed = 1) {
  std::mt19937 random(seed);
  Bytes out(nbytes);
  for (std::byte& b : out) b = std::byte(random());
  return out;
}

// Runs and repeats: the match copies of every LZ decoder.
inline Bytes repetitive(std::size_t nbytes, unsigned seed = 1) {
  std::mt19937 random(seed);
  Bytes out;
  while (out.size() < nbytes) {
    const std::size_t n = 1 + random() % 300;
    if (out.empty() || random() % 4 == 0) {
      for (std::size_t i = 0; i < n % 40; ++i) out.push_back(std::byte(random()));
    } else {
      const std::size_t distance = 1 + random() % out.size();
      for (std::size_t i = 0; i < n; ++i) out.push_back(out[out.size() - distance]);
    }
  }
  out.resize(nbytes);
  return out;
}

inline std::vector<Bytes> samples(std::size_t unit = 1) {
  std::vector<Bytes> out;
  for (std::size_t n : {0u, 1u, 7u, 8u, 63u, 1000u, 65537u}) {
    out.push_back(smooth_floats(n * unit));
    out.push_back(noise(n * unit));
    out.push_back(repetitive(n * unit));
    out.emplace_back(n * unit, std::byte{0});
  }
  out.push_back(smooth_floats((700u << 10) / unit * unit));  // enough for decoders' threads
  return out;
}

inline CodecPtr make(const CodecSpec& spec,
                     std::string_view implementation = {},
                     const DType& dtype = DType::float32,
                     const Shape& shape = {},
                     CodecPosition position = CodecPosition::after_bytes) {
  Implementations chosen;
  if (!implementation.empty()) {
    chosen.emplace(canonical_codec_name(spec.name), implementation);
  }
  return resolve_codec(spec, {{dtype, shape, {}}, position, &chosen}, chosen);
}

inline std::vector<std::string> implementations_of(std::string_view codec) {
  std::vector<std::string> out;
  for (const CodecEntry& e : codec_entries()) {
    if (e.codec == codec) out.emplace_back(e.implementation);
  }
  return out;
}

inline Bytes encode(const Codec& codec, ConstBytes data) {
  Buffer encoded;
  codec.encode(data, encoded);
  const ConstBytes bytes = encoded;
  return {bytes.begin(), bytes.end()};
}

inline Bytes decode(const Codec& codec, ConstBytes encoded, std::size_t nbytes, int threads = 1) {
  Bytes out(nbytes, std::byte{0xA5});
  codec.decode(encoded, out, {threads});
  return out;
}

// Wants some ranges, checks what it is given against the whole, and that it is given all it wants.
class CheckingSink final : public PieceSink {
 public:
  CheckingSink(ConstBytes expected, unsigned seed)
      : expected_(expected),
        wanted_(expected.size(), 0),
        given_(expected.size(), 0),
        direct_memory_(expected.size()) {
    std::mt19937 random(seed);
    offer_direct_ = random() % 2 == 0;
    const unsigned ranges = 1 + random() % 3;
    for (unsigned r = 0; r < ranges && !expected.empty(); ++r) {
      const std::size_t a = random() % expected.size();
      const std::size_t n = 1 + random() % (random() % 2 == 0 ? 16 : expected.size());
      const std::size_t b = std::min(a + n, expected.size());
      std::memset(wanted_.data() + a, 1, b - a);
      begin_ = r == 0 ? a : std::min(begin_, a);
      end_ = std::max(end_, b);
    }
    if (random() % 8 == 0) {
      std::fill(wanted_.begin(), wanted_.end(), 1);
      begin_ = 0;
      end_ = expected.size();
    }
  }

  std::size_t begin() const override { return begin_; }
  std::size_t end() const override { return end_; }
  bool wants(std::size_t offset, std::size_t nbytes) const override {
    EXPECT_LE(offset + nbytes, expected_.size());
    return nbytes > 0 && std::memchr(wanted_.data() + offset, 1, nbytes) != nullptr;
  }
  void put(std::size_t offset, ConstBytes piece) override {
    ASSERT_LE(offset + piece.size(), expected_.size());
    if (piece.empty()) return;
    EXPECT_EQ(0, std::memcmp(piece.data(), expected_.data() + offset, piece.size()))
        << "piece at " << offset << " of " << piece.size();
    mark(offset, piece.size());
  }
  std::byte* direct(std::size_t offset, std::size_t nbytes) override {
    EXPECT_LE(offset + nbytes, expected_.size());
    if (!offer_direct_ || nbytes == 0) return nullptr;
    if (std::memchr(wanted_.data() + offset, 0, nbytes) != nullptr) return nullptr;
    mark(offset, nbytes);
    std::lock_guard lock(mutex_);
    direct_ranges_.emplace_back(offset, nbytes);
    return direct_memory_.data() + offset;
  }

  void check() const {
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      if (wanted_[i] > given_[i]) FAIL() << "byte " << i << " was wanted and not given";
    }
    for (auto [offset, n] : direct_ranges_) {
      ASSERT_EQ(0, std::memcmp(direct_memory_.data() + offset, expected_.data() + offset, n));
    }
  }

 private:
  void mark(std::size_t offset, std::size_t nbytes) {
    std::lock_guard lock(mutex_);
    EXPECT_EQ(nullptr, std::memchr(given_.data() + offset, 1, nbytes))
        << "given twice, within " << nbytes << " bytes at " << offset;
    std::memset(given_.data() + offset, 1, nbytes);
  }

  ConstBytes expected_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool offer_direct_ = false;
  std::vector<unsigned char> wanted_, given_;
  Bytes direct_memory_;
  std::vector<std::pair<std::size_t, std::size_t>> direct_ranges_;
  std::mutex mutex_;
};

// Of codecs that have pieces; others decode the whole.
inline void check_pieces(const Codec& codec,
                         ConstBytes encoded,
                         ConstBytes decoded,
                         unsigned seeds) {
  const PieceDecoder* const decoder = codec.piece_decoder();
  if (!decoder) return;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("sink " + std::to_string(seed));
    CheckingSink sink(decoded, seed);
    decoder->decode_pieces(encoded, decoded.size(), sink, {seed % 2 == 0 ? 1 : 2});
    sink.check();
    if (::testing::Test::HasFailure()) return;
  }
}

// Any pieces of the encoded bytes, through a codec that filters them.
inline void check_filter(const PieceFilter& filter,
                         ConstBytes encoded,
                         ConstBytes decoded,
                         unsigned seeds) {
  for (unsigned seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("sink " + std::to_string(seed));
    CheckingSink sink(decoded, seed);
    const auto filtered = filter.filter(sink);
    std::mt19937 random(seed);
    for (std::size_t at = 0; at < encoded.size();) {
      const std::size_t n = std::min<std::size_t>(1 + random() % 40000, encoded.size() - at);
      if (filtered->wants(at, n)) filtered->put(at, encoded.subspan(at, n));
      at += n;
    }
    sink.check();
    if (::testing::Test::HasFailure()) return;
  }
}

// Round trip, the promised sizes, and all else that the codec says it can. For lossless codecs.
inline void check_round_trip(const Codec& codec, ConstBytes data) {
  SCOPED_TRACE(std::string(codec.name()) + "/" + std::string(codec.implementation()) + ", " +
               std::to_string(data.size()) + " bytes");
  const Bytes plain(data.begin(), data.end());
  const Bytes encoded = encode(codec, data);
  const EncodedNbytes promised = codec.encoded_nbytes(data.size());
  ASSERT_LE(encoded.size(), promised.most);
  if (promised.fixed) {
    ASSERT_EQ(*promised.fixed, encoded.size());
  }
  for (int threads : {1, 2}) ASSERT_EQ(decode(codec, encoded, data.size(), threads), plain);
  if (codec.transform() == Transform::identity) {
    ASSERT_EQ(encoded, plain);
  }
  if (codec.transform() == Transform::in_place) {
    Bytes both = encoded;
    codec.decode(both, both, {});
    ASSERT_EQ(both, plain);
  }
  for (std::size_t slack : {0u, 1000u}) {
    if (codec.kind() != CodecKind::bytes_to_bytes) continue;  // the decoded size is the chunk's
    Buffer unknown;
    codec.decode_unknown(encoded, data.size() + slack, unknown);
    ASSERT_EQ(unknown.size(), data.size());
    ASSERT_TRUE(std::equal(plain.begin(), plain.end(), unknown.data()));
  }
  const unsigned seeds = data.size() > 100000 ? 6 : 12;
  check_pieces(codec, encoded, data, seeds);
  if (const PieceFilter* filter = codec.piece_filter()) check_filter(*filter, encoded, data, seeds);
  if (const ViewDecoder* decoder = codec.view_decoder()) {
    const ConstBytes view = decoder->decode_view(encoded);
    ASSERT_EQ(Bytes(view.begin(), view.end()), plain);
  }
}

// A decode of bytes that may be anything: an error of the closed set or the exact size.
inline void decode_hostile(const Codec& codec, ConstBytes encoded, std::size_t nbytes) {
  const Bytes exact(encoded.begin(), encoded.end());  // so that ASan sees a read past the end
  const auto expect_error = [&](auto&& call) {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_TRUE(e.code() == ErrorCode::corrupt || e.code() == ErrorCode::unsupported) << e.what();
      EXPECT_NE(std::string(e.what()), "");
    }
  };
  expect_error([&] { decode(codec, exact, nbytes); });
  expect_error([&] {
    Buffer out;
    codec.decode_unknown(exact, nbytes, out);
    EXPECT_LE(out.size(), nbytes);
  });
  expect_error([&] {
    struct AnySink : PieceSink {
      std::size_t n;
      explicit AnySink(std::size_t size) : n(size) {}
      std::size_t begin() const override { return n / 3; }
      std::size_t end() const override { return n - n / 3; }
      bool wants(std::size_t, std::size_t) const override { return true; }
      void put(std::size_t offset, ConstBytes piece) override {
        EXPECT_LE(offset + piece.size(), n);
      }
      std::byte* direct(std::size_t, std::size_t) override { return nullptr; }
    } sink(nbytes);
    if (const PieceDecoder* decoder = codec.piece_decoder())
      decoder->decode_pieces(exact, nbytes, sink, {});
  });
  expect_error([&] {
    if (const ViewDecoder* decoder = codec.view_decoder()) {
      EXPECT_LE(decoder->decode_view(exact).size(), exact.size());
    }
  });
}

// Encoded bytes with some of them changed.
inline void check_flipped(const Codec& codec,
                          const Bytes& encoded,
                          std::size_t decoded_nbytes,
                          int flips) {
  std::mt19937 random(7);
  for (int i = 0; i < flips && !encoded.empty(); ++i) {
    Bytes bad = encoded;
    for (unsigned k = 0; k <= random() % 4; ++k) {
      bad[random() % (i % 2 == 0 ? bad.size() : std::min<std::size_t>(bad.size(), 40))] =
          std::byte(random());
    }
    decode_hostile(codec, bad, decoded_nbytes);
  }
}

// `strict`: a stream cut short anywhere is an error.
inline void check_hostile(const Codec& codec,
                          ConstBytes data,
                          bool strict = true,
                          int flips = 2000) {
  SCOPED_TRACE(std::string(codec.name()) + "/" + std::string(codec.implementation()));
  const Bytes encoded = encode(codec, data);
  for (std::size_t n = 0; n < encoded.size(); ++n) {
    const ConstBytes cut(encoded.data(), n);
    decode_hostile(codec, cut, data.size());
    if (strict) {
      EXPECT_THROW(decode(codec, cut, data.size()), Error) << "cut to " << n;
    }
  }
  // Too small and too large a place.
  EXPECT_THROW(decode(codec, encoded, data.size() + 1), Error);
  if (!data.empty()) {
    EXPECT_THROW(decode(codec, encoded, data.size() - 1), Error);
    Buffer out;
    EXPECT_THROW(codec.decode_unknown(encoded, data.size() - 1, out), Error);
  }
  check_flipped(codec, encoded, data.size(), flips);
}

}  // namespace headrace::kit
