#pragma once

#include <libdeflate.h>
#include <zlib.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "kernels/decode_kit.h"

namespace headrace::test {

struct ZlibOptions {
  int level = 6;
  int strategy = Z_DEFAULT_STRATEGY;
  int window_bits = 15;  // as deflateInit2: negative is raw, 16 more is gzip
  int flush = Z_NO_FLUSH;
  std::size_t flush_every = 0;
};

inline Bytes compress(const Bytes& data, const ZlibOptions& options, gz_header* header = nullptr) {
  z_stream stream{};
  EXPECT_EQ(
      deflateInit2(&stream, options.level, Z_DEFLATED, options.window_bits, 8, options.strategy),
      Z_OK);
  if (header) deflateSetHeader(&stream, header);
  const std::size_t step = options.flush_every ? options.flush_every : data.size() + 1;
  Bytes out(deflateBound(&stream, data.size()) + 1000 + data.size() / step * 16);
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  for (std::size_t at = 0;; at += step) {
    const std::size_t n = std::min(step, data.size() - at);
    const bool last = at + n == data.size();
    stream.next_in = const_cast<Bytef*>(data.data() + at);
    stream.avail_in = static_cast<uInt>(n);
    const int status = deflate(&stream, last ? Z_FINISH : options.flush);
    EXPECT_EQ(status, last ? Z_STREAM_END : Z_OK);
    if (last) break;
  }
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline Bytes compress_libdeflate(const Bytes& data, int level) {
  const std::unique_ptr<libdeflate_compressor, void (*)(libdeflate_compressor*)> compressor(
      libdeflate_alloc_compressor(level), libdeflate_free_compressor);
  Bytes out(libdeflate_gzip_compress_bound(compressor.get(), data.size()));
  out.resize(
      libdeflate_gzip_compress(compressor.get(), data.data(), data.size(), out.data(), out.size()));
  EXPECT_FALSE(out.empty());
  return out;
}

// zlib's verdict on a whole stream.
struct Verdict {
  bool good;
  Bytes bytes;
};
inline Verdict inflate_all(const Bytes& encoded, std::size_t room, int window_bits) {
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, window_bits), Z_OK);
  Verdict verdict{false, Bytes(room + 1)};
  stream.next_in = const_cast<Bytef*>(encoded.data());
  stream.avail_in = static_cast<uInt>(encoded.size());
  stream.next_out = verdict.bytes.data();
  stream.avail_out = static_cast<uInt>(verdict.bytes.size());
  verdict.good = inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.avail_in == 0;
  verdict.bytes.resize(stream.total_out);
  inflateEnd(&stream);
  return verdict;
}

inline Bytes constant(std::size_t nbytes) { return Bytes(nbytes, 42); }
inline Bytes noise(std::size_t nbytes) {
  std::mt19937_64 random(nbytes);
  Bytes bytes(nbytes);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}
inline Bytes sentences(std::size_t nbytes) { return text(nbytes, nbytes); }
inline Bytes field(std::size_t nbytes) { return packed_field(nbytes, nbytes); }
inline Bytes shuffled(std::size_t nbytes) {
  const Bytes plain = field(nbytes);
  Bytes bytes = plain;
  const std::size_t n = nbytes / 4;
  for (std::size_t i = 0; i < 4 * n; ++i) bytes[i % 4 * n + i / 4] = plain[i];
  return bytes;
}
// Bytes with skewed frequencies: codes of all lengths, few matches.
inline Bytes skewed(std::size_t nbytes) {
  std::mt19937_64 random(nbytes);
  std::geometric_distribution<int> value(0.08);
  Bytes bytes(nbytes);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(value(random));
  return bytes;
}
// Two values at random: codes of a bit or two, and long far matches.
inline Bytes coin(std::size_t nbytes) {
  Bytes bytes = noise(nbytes);
  for (auto& byte : bytes) byte &= 1;
  return bytes;
}

inline const std::vector<std::function<Bytes(std::size_t)>> kKinds = {
    constant, noise, sentences, field, shuffled, skewed, coin};

enum class Form { raw, zlib, gzip };
inline Decode decoder(const Place& place, Form form) {
  return form == Form::raw    ? place.kernels->deflate
         : form == Form::zlib ? place.kernels->zlib
                              : place.kernels->gzip;
}
inline int window_bits(Form form) { return form == Form::raw ? -15 : form == Form::zlib ? 15 : 31; }

inline Bytes joined(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Many streams that one byte, or the end, tells from a good one.
inline void expect_zlibs_verdict(const Place& place,
                                 Form form,
                                 const std::vector<Bytes>& encoded,
                                 std::size_t nbytes) {
  const Decoded got = decode(place,
                             decoder(place, form),
                             encoded,
                             std::vector<std::size_t>(encoded.size(), nbytes),
                             encoded.size());
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    const Verdict wanted = inflate_all(encoded[i], nbytes, window_bits(form));
    const bool good = wanted.good && wanted.bytes.size() == nbytes;
    EXPECT_EQ(got.faults[i] == Fault::none, good) << i;
    EXPECT_TRUE(!good || got.chunks[i] == wanted.bytes) << i;
  }
}

class DeflatePlaces : public testing::TestWithParam<std::size_t> {
 protected:
  const Place& place() const { return places()[GetParam()]; }
};

}  // namespace headrace::test
