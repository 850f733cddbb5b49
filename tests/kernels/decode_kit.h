#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/queues.h"

namespace headrace::test {

using Bytes = std::vector<std::uint8_t>;

struct Decoded {
  std::vector<Bytes> chunks;
  std::vector<Fault> faults;
};

// What the host has of the sources of a batch.
enum class HostHas : std::uint8_t { bytes, headers, nothing };
inline constexpr HostHas kHostHas[] = {HostHas::bytes, HostHas::headers, HostHas::nothing};

// Null for decoders that ask for nothing before.
inline ReadHeaders header_reader(const Kernels& kernels, Decode decoder) {
  if (decoder == kernels.zstd) return kernels.zstd_headers;
  if (decoder == kernels.blosc) return kernels.blosc_headers;
  return nullptr;
}

// Decodes `encoded` to chunks of the given sizes in one batch. What surrounds a source is random,
// as are the alignments of sources and targets; bytes around each target are checked to be
// untouched.
inline Decoded decode(const Place& place,
                      Decode decoder,
                      const std::vector<Bytes>& encoded,
                      const std::vector<std::size_t>& nbytes,
                      std::uint64_t seed = 1,
                      HostHas host_has = HostHas::bytes) {
  constexpr std::size_t kGuard = 64;
  const auto queue = place.make_queue(seed);
  std::mt19937_64 random(seed);
  const auto arbitrary = [&](std::size_t n) {
    Bytes bytes(n);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    return bytes;
  };
  std::vector<Scratch<std::uint8_t>> sources, targets;
  std::vector<Bytes> before;
  std::vector<std::size_t> target_offsets;
  std::vector<Frame> frames;
  std::vector<const std::uint8_t*> host_sources;
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    const std::size_t shift = kSourcePadding + random() % 16;
    Bytes padded = arbitrary(shift + encoded[i].size() + kSourcePadding);
    if (!encoded[i].empty())
      std::memcpy(padded.data() + shift, encoded[i].data(), encoded[i].size());
    sources.push_back(Scratch<std::uint8_t>::of(*queue, padded.data(), padded.size()));
    target_offsets.push_back(kGuard + random() % 16);
    before.push_back(arbitrary(target_offsets[i] + nbytes[i] + kGuard));
    targets.push_back(Scratch<std::uint8_t>::of(*queue, before[i].data(), before[i].size()));
    frames.push_back({sources[i].data() + shift,
                      encoded[i].size(),
                      targets[i].data() + target_offsets[i],
                      nbytes[i],
                      static_cast<std::uint32_t>(i)});
    host_sources.push_back(encoded[i].data());
  }
  Scratch<std::uint32_t> faults(*queue, encoded.size());
  queue->fill(faults.data(), 0, encoded.size() * sizeof(std::uint32_t));
  DecodeBatch batch{frames, {}, faults.data()};
  std::vector<std::unique_ptr<const Headers>> read;
  std::vector<const Headers*> headers;
  const ReadHeaders read_headers = header_reader(*place.kernels, decoder);
  if (host_has == HostHas::headers && read_headers) {
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      // In memory of their own, for nothing is read beyond.
      const auto exact = std::make_unique<std::uint8_t[]>(encoded[i].size());
      std::ranges::copy(encoded[i], exact.get());
      read.push_back(read_headers(exact.get(), encoded[i].size(), nbytes[i]));
      headers.push_back(read.back().get());
    }
    batch.headers = headers;
  }
  if (host_has == HostHas::bytes) batch.host_sources = host_sources;
  decoder(*queue, batch);

  Decoded result;
  result.faults.resize(encoded.size());
  queue->download(result.faults.data(), faults.data(), encoded.size() * sizeof(std::uint32_t));
  std::vector<Bytes> after;
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    after.emplace_back(before[i].size());
    queue->download(after[i].data(), targets[i].data(), after[i].size());
  }
  queue->synchronize();
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    const std::size_t begin = target_offsets[i], end = begin + nbytes[i];
    EXPECT_EQ(std::memcmp(after[i].data(), before[i].data(), begin), 0) << "before chunk " << i;
    EXPECT_EQ(std::memcmp(after[i].data() + end, before[i].data() + end, kGuard), 0)
        << "behind chunk " << i;
    result.chunks.emplace_back(after[i].begin() + static_cast<std::ptrdiff_t>(begin),
                               after[i].begin() + static_cast<std::ptrdiff_t>(end));
  }
  return result;
}

// Every chunk decodes without a fault to what it was made of.
inline void expect_decodes(const Place& place,
                           Decode decoder,
                           const std::vector<Bytes>& encoded,
                           const std::vector<Bytes>& originals,
                           std::uint64_t seed = 1) {
  std::vector<std::size_t> nbytes;
  for (const Bytes& original : originals) nbytes.push_back(original.size());
  for (const HostHas host_has : kHostHas) {
    const Decoded got = decode(place, decoder, encoded, nbytes, seed, host_has);
    for (std::size_t i = 0; i < originals.size(); ++i) {
      EXPECT_EQ(got.faults[i], Fault::none) << place.name << " chunk " << i;
      EXPECT_TRUE(got.chunks[i] == originals[i]) << place.name << " chunk " << i;
    }
  }
}

// Data as arrays hold it, little-endian float32: a smooth field packed to 16 bits and back.
inline Bytes packed_field(std::size_t nbytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> noise(0, 0.35);
  Bytes bytes(nbytes);
  double slope = 0, value = 280;
  for (std::size_t i = 0; i + 4 <= nbytes; i += 4) {
    slope = 0.98 * slope + 0.02 * noise(random);
    value += slope + 0.01 * noise(random);
    const float x = static_cast<float>(250 + 0.0018 * static_cast<int>((value - 250) / 0.0018));
    std::memcpy(bytes.data() + i, &x, 4);
  }
  return bytes;
}

inline Bytes text(std::size_t nbytes, std::uint64_t seed) {
  static const char* const kWords[] = {"the ",
                                       "river ",
                                       "runs ",
                                       "past ",
                                       "a ",
                                       "mill, ",
                                       "wheel ",
                                       "and ",
                                       "on ",
                                       "again. ",
                                       "to ",
                                       "water "};
  std::mt19937_64 random(seed);
  Bytes bytes;
  while (bytes.size() < nbytes)
    for (const char* c = kWords[random() % std::size(kWords)]; *c; ++c)
      bytes.push_back(static_cast<std::uint8_t>(random() % 50 ? *c : 'a' + random() % 26));
  bytes.resize(nbytes);
  return bytes;
}

}  // namespace headrace::test
