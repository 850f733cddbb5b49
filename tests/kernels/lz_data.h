#pragma once

// Data that LZ compressors make very different streams of.

#include <string>

#include "kernels/decode_kit.h"

namespace headrace::test {

struct Sample {
  std::string name;
  Bytes bytes;
};

inline Bytes random_bytes(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(n);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

inline Bytes byte_planes(const Bytes& elements, std::size_t itemsize) {
  Bytes planes(elements.size());
  const std::size_t n = elements.size() / itemsize;
  for (std::size_t i = 0; i < n * itemsize; ++i)
    planes[i % itemsize * n + i / itemsize] = elements[i];
  for (std::size_t i = n * itemsize; i < elements.size(); ++i) planes[i] = elements[i];
  return planes;
}

// Repeats of every distance and length, short ones most often.
inline Bytes echoes(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes = random_bytes(16, seed);
  while (bytes.size() < n) {
    const std::size_t back =
        1 + random() % std::min<std::size_t>(bytes.size(), std::size_t{1} << random() % 17);
    const std::size_t length = 4 + random() % (std::size_t{1} << random() % 12);
    for (std::size_t i = 0; i < length; ++i) bytes.push_back(bytes[bytes.size() - back]);
    for (std::size_t i = random() % 20; i > 0; --i)
      bytes.push_back(static_cast<std::uint8_t>(random()));
  }
  bytes.resize(n);
  return bytes;
}

// What a library makes of a stream that must decode to n bytes; false: it refuses it.
using LibraryDecodes = bool (*)(const Bytes& stream, std::size_t n, Bytes& bytes);

// All streams of one batch: a bad one must not touch the others.
inline void expect_as_library(Decode Kernels::*decoder,
                              LibraryDecodes library_decodes,
                              const std::vector<Bytes>& streams,
                              std::size_t nbytes) {
  for (const Place& place : places()) {
    const Decoded got = decode(
        place, place.kernels->*decoder, streams, std::vector<std::size_t>(streams.size(), nbytes));
    Bytes expected;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (library_decodes(streams[i], nbytes, expected)) {
        EXPECT_EQ(got.faults[i], Fault::none) << place.name << " stream " << i;
        EXPECT_EQ(got.chunks[i], expected) << place.name << " stream " << i;
      } else {
        EXPECT_NE(got.faults[i], Fault::none) << place.name << " stream " << i;
      }
    }
  }
}

inline std::vector<Sample> lz_samples() {
  std::vector<Sample> samples;
  for (const std::size_t n : {0, 1, 2, 5, 11, 12, 13, 14, 17, 64, 255, 300})
    for (const bool noise : {false, true})
      samples.push_back({"tiny", noise ? random_bytes(n, n) : Bytes(n, 7)});
  for (const std::size_t n : {65535, 65536, 65537})
    samples.push_back({"packed " + std::to_string(n), packed_field(n, n)});
  samples.push_back({"packed", packed_field(300'000, 1)});
  samples.push_back({"planes", byte_planes(packed_field(260'000, 2), 4)});
  samples.push_back({"noise", random_bytes(100'001, 3)});
  samples.push_back({"constant", Bytes(300'003, 9)});
  samples.push_back({"text", text(150'000, 4)});
  samples.push_back({"echoes", echoes(200'000, 5)});
  Bytes mixed = random_bytes(70'000, 6);  // long literal runs between long matches
  mixed.insert(mixed.end(), 50'000, 0);
  const Bytes more = random_bytes(20'000, 7);
  mixed.insert(mixed.end(), more.begin(), more.end());
  mixed.insert(mixed.end(), mixed.begin() + 40'000, mixed.begin() + 60'000);
  samples.push_back({"runs", mixed});
  return samples;
}

}  // namespace headrace::test
