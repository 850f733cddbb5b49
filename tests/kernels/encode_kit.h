#pragma once

#include "kernels/decode_kit.h"
#include "kernels/filter_kit.h"

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

}  // namespace headrace::test
