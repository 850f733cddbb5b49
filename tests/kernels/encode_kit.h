#pragma once

#include "kernels/decode_kit.h"
#include "kernels/filter_kit.h"
#include "simt/host_queue.h"

namespace headrace::test {

struct Encoded {
  std::vector<Bytes> chunks;
  std::vector<Fault> faults;
};

// Gives encode(queue, batch) the chunks, with targets of the given sizes.
template <class EncodeIt>
Encoded encode(const Place& place,
               const std::vector<Bytes>& chunks,
               const std::vector<std::size_t>& capacities,
               std::uint64_t seed,
               EncodeIt encode_it) {
  std::mt19937_64 random(seed);
  const auto queue = place.make_queue(seed);
  Scratch<std::uint32_t> faults(*queue, chunks.size());
  Scratch<std::uint64_t> sizes(*queue, chunks.size());
  queue->fill(faults.data(), 0, chunks.size() * sizeof(std::uint32_t));
  Encoded result;
  result.chunks =
      run_frames(*queue, random, chunks, capacities, [&](Queue& q, std::span<const Frame> frames) {
        encode_it(q, EncodeBatch{frames, sizes.data(), faults.data()});
      });
  result.faults.resize(chunks.size());
  std::vector<std::uint64_t> nbytes(chunks.size());
  queue->download(result.faults.data(), faults.data(), chunks.size() * sizeof(std::uint32_t));
  queue->download(nbytes.data(), sizes.data(), chunks.size() * sizeof(std::uint64_t));
  queue->synchronize();
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    EXPECT_LE(nbytes[i], capacities[i]) << "chunk " << i;
    result.chunks[i].resize(nbytes[i]);
  }
  return result;
}

// places(), where few bytes are cut into short segments with a history, and a device that is small
// enough for long segments without one.
inline std::vector<Place> encode_places() {
  std::vector<Place> all = places();
  if (!all.empty() && all[0].name == "simt")
    all.push_back(
        {"simt, long segments", all[0].kernels, [](std::uint64_t seed) -> std::unique_ptr<Queue> {
           auto queue = std::make_unique<HostQueue>(seed);
           queue->tune_for(0);
           return queue;
         }});
  return all;
}

// Copies of what lies up to 3000 bytes back, with noise between.
inline Bytes repeats(std::size_t nbytes, std::mt19937_64& random) {
  Bytes bytes;
  while (bytes.size() < nbytes) {
    const std::size_t n = 1 + random() % 300;
    if (bytes.empty() || random() % 4 == 0) {
      const Bytes noise = random_bytes(random, n % 40);
      bytes.insert(bytes.end(), noise.begin(), noise.end());
    } else {
      const std::size_t distance = 1 + random() % std::min<std::size_t>(bytes.size(), 3000);
      for (std::size_t i = 0; i < n; ++i) bytes.push_back(bytes[bytes.size() - distance]);
    }
  }
  bytes.resize(nbytes);
  return bytes;
}

inline Bytes noise_bytes(std::size_t nbytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  return random_bytes(random, nbytes);
}

// The same `period` bytes again and again.
inline Bytes periodic(std::size_t nbytes, std::size_t period) {
  Bytes bytes = noise_bytes(nbytes, period);
  for (std::size_t i = period; i < nbytes; ++i) bytes[i] = bytes[i - period];
  return bytes;
}

// Words with the same slot and the same tag in the encoders' tables of hashes (common/match.h), in
// any order: all but the last bits of their products with its factor are 0.
inline Bytes colliding_words(std::size_t nbytes, std::uint64_t seed) {
  constexpr std::uint32_t kFactor = 0x9e3779b1;
  std::uint32_t inverse = 1;
  for (int i = 0; i < 5; ++i) inverse *= 2 - kFactor * inverse;
  std::mt19937_64 random(seed);
  Bytes bytes((nbytes + 3) / 4 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    const auto word = static_cast<std::uint32_t>(random() % 32 * inverse);
    std::memcpy(&bytes[i], &word, 4);
  }
  bytes.resize(nbytes);
  return bytes;
}

// What the search for matches may stumble over: windows of 32 positions, segments of 8 to 32 KiB,
// matches that are followed for 8 and 16 bytes by a lane and then by all.
inline std::vector<Bytes> match_cases() {
  std::vector<Bytes> cases;
  // Around a window, in which runs begin and end.
  for (std::size_t n : {31, 32, 33, 63, 64, 65, 96, 97, 127, 129}) {
    cases.push_back(periodic(n, 1));
    cases.push_back(periodic(n, 7));
    cases.push_back(periodic(n, 32));
  }
  // Around segments, over whose borders runs and repeats go on.
  for (const std::size_t border : {8192, 16384, 32768})
    for (const std::size_t n : {border - 33, border - 1, border, border + 1, border + 40}) {
      cases.push_back(periodic(n, 1));
      cases.push_back(periodic(n, 1000));
    }
  for (const std::size_t period :
       {2, 3, 4, 5, 15, 16, 17, 31, 33, 64, 100, 40960, 49151, 49152, 65537})
    cases.push_back(periodic(70'000 + period, period));
  // Matches of every length, from one window into the next and farther, between noise.
  Bytes lengths = noise_bytes(600, 1);
  for (std::size_t n = 1; n < 600; n += n < 80 ? 1 : 37) {
    const Bytes between = noise_bytes(n % 23, n);
    lengths.insert(lengths.end(), between.begin(), between.end());
    for (std::size_t i = 0; i < n; ++i) lengths.push_back(lengths[i]);
  }
  cases.push_back(lengths);
  cases.push_back(noise_bytes(50'000, 2));
  cases.push_back(colliding_words(40'000, 3));
  Bytes rare = noise_bytes(100'000, 4);  // segments without a match, and one match in one of them
  std::copy_n(rare.begin() + 70'000, 100, rare.begin() + 75'000);
  cases.push_back(rare);
  return cases;
}

}  // namespace headrace::test
