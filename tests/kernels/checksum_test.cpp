#include "codec/hashes.h"
#include "kernels/checksum/crc.h"
#include "kernels/checksum/verify.h"
#include "kernels/filter_kit.h"
#include "simt/host_queue.h"

namespace headrace::test {
namespace {

struct Kind {
  Checksum checksum;
  const char* name;
  std::uint32_t (*on_host)(ConstBytes);
};

constexpr Kind kKinds[] = {{Checksum::crc32c, "crc32c", headrace::crc32c},
                           {Checksum::crc32, "crc32", headrace::crc32},
                           {Checksum::adler32, "adler32", headrace::adler32},
                           {Checksum::fletcher32, "fletcher32", headrace::fletcher32}};

std::uint32_t on_host(const Kind& kind, const Bytes& bytes) {
  return kind.on_host({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
}

Bytes with_checksum(const Kind& kind, const Bytes& plain, bool at_start) {
  const std::uint32_t sum = on_host(kind, plain);
  std::uint8_t stored[4];
  std::memcpy(stored, &sum, 4);
  Bytes bytes = plain;
  bytes.insert(at_start ? bytes.begin() : bytes.end(), stored, stored + 4);
  return bytes;
}

struct Verified {
  std::vector<Bytes> plain;
  std::vector<Fault> faults;
};

Verified verify(const Place& place,
                const Kind& kind,
                bool at_start,
                const std::vector<Bytes>& encoded,
                const std::vector<std::size_t>& nbytes,
                std::uint64_t seed,
                bool with_targets = true) {
  std::mt19937_64 random(seed);
  const auto queue = place.make_queue(seed);
  Scratch<std::uint32_t> faults(*queue, encoded.size());
  queue->fill(faults.data(), 0, encoded.size() * sizeof(std::uint32_t));
  Verified result;
  result.plain =
      run_frames(*queue, random, encoded, nbytes, [&](Queue& q, std::span<const Frame> frames) {
        std::vector<Frame> given(frames.begin(), frames.end());
        if (!with_targets)
          for (Frame& frame : given) frame.target = nullptr;
        place.kernels->verify(q, kind.checksum, at_start, {given, {}, faults.data()});
      });
  result.faults.resize(encoded.size());
  queue->download(result.faults.data(), faults.data(), encoded.size() * sizeof(std::uint32_t));
  queue->synchronize();
  return result;
}

// Around the sizes of a load, a stripe, a step and a slice, and what overflows short sums.
std::vector<Bytes> plain_chunks(std::mt19937_64& random) {
  std::vector<Bytes> chunks;
  for (const std::size_t n :
       {0, 1, 2, 3, 4, 5, 15, 16, 17, 511, 512, 2047, 2049, 4096, 4097, 70001})
    chunks.push_back(random_bytes(random, n));
  chunks.push_back(Bytes(20000, 0xff));
  chunks.push_back(Bytes(20001, 0));
  chunks.push_back(Bytes(65535 * 2, 0xff));
  return chunks;
}

TEST(KernelChecksum, AcceptsWhatTheHostComputes) {
  for (const Place& place : places())
    for (const Kind& kind : kKinds)
      for (const bool at_start : {false, true})
        for (std::uint64_t seed = 0; seed < 3; ++seed) {
          std::mt19937_64 random(seed);
          const std::vector<Bytes> plain = plain_chunks(random);
          std::vector<Bytes> encoded;
          std::vector<std::size_t> nbytes;
          for (const Bytes& chunk : plain) {
            encoded.push_back(with_checksum(kind, chunk, at_start));
            nbytes.push_back(chunk.size());
          }
          const Verified got = verify(place, kind, at_start, encoded, nbytes, seed);
          for (std::size_t i = 0; i < plain.size(); ++i) {
            EXPECT_EQ(got.faults[i], Fault::none)
                << place.name << " " << kind.name << " " << plain[i].size() << " bytes";
            EXPECT_TRUE(got.plain[i] == plain[i]) << kind.name << " chunk " << i;
          }
        }
}

TEST(KernelChecksum, FindsEachFlippedBit) {
  for (const Place& place : places())
    for (const Kind& kind : kKinds)
      for (const bool at_start : {false, true}) {
        std::mt19937_64 random(7);
        std::vector<Bytes> encoded;
        std::vector<std::size_t> nbytes;
        for (std::size_t i = 0; i < 120; ++i) {
          encoded.push_back(with_checksum(kind, random_bytes(random, i * 71 + 1), at_start));
          nbytes.push_back(0);
          if (i % 3 == 0) continue;
          Bytes& bytes = encoded.back();
          bytes[random() % bytes.size()] ^= static_cast<std::uint8_t>(1 << random() % 8);
        }
        const Verified got = verify(place, kind, at_start, encoded, nbytes, 7, false);
        for (std::size_t i = 0; i < encoded.size(); ++i)
          EXPECT_EQ(got.faults[i], i % 3 == 0 ? Fault::none : Fault::checksum)
              << place.name << " " << kind.name << " chunk " << i;
      }
}

TEST(KernelChecksum, RefusesSizesThatDoNotFit) {
  for (const Place& place : places())
    for (const Kind& kind : kKinds) {
      const Bytes good = with_checksum(kind, Bytes(100, 3), false);
      const Verified got =
          verify(place, kind, false, {{}, {1, 2, 3}, good, good, good}, {0, 0, 100, 99, 101}, 1);
      const std::vector<Fault> expected{
          Fault::truncated, Fault::truncated, Fault::none, Fault::wrong_size, Fault::wrong_size};
      EXPECT_EQ(got.faults, expected) << place.name << " " << kind.name;
      EXPECT_EQ(got.plain[2], Bytes(100, 3));
    }
}

TEST(KernelChecksum, ChecksumsOfSpans) {
  std::mt19937_64 random(3);
  const std::vector<Bytes> chunks = plain_chunks(random);
  HostQueue queue(3);
  for (const Kind& kind : kKinds) {
    std::vector<Scratch<std::uint8_t>> memory;
    std::vector<host::ByteSpan> spans;
    for (const Bytes& chunk : chunks) {
      // Rounded up: whole words are read.
      Bytes padded = chunk;
      padded.resize((chunk.size() + 3) / 4 * 4);
      memory.push_back(Scratch<std::uint8_t>::of(queue, padded.data(), padded.size()));
      spans.push_back({memory.back().data(), chunk.size()});
    }
    std::vector<std::uint32_t> results(spans.size());
    host::checksums(queue, kind.checksum, spans, results.data());
    for (std::size_t i = 0; i < chunks.size(); ++i)
      EXPECT_EQ(results[i], on_host(kind, chunks[i])) << kind.name << " chunk " << i;
  }
}

struct Combine {
  static constexpr unsigned kThreads = 32;
  using Shared = host::simt::NoShared;
  std::uint32_t first, second, *combined;
  std::uint64_t nbytes;
  void operator()(Shared&) const {
    *combined = host::crc_combine<host::kCrc32>(first, second, nbytes);
  }
};

TEST(KernelChecksum, CombinesTwoMessages) {
  std::mt19937_64 random(4);
  for (const std::size_t n : {0, 1, 100, 100000}) {
    const Bytes first = random_bytes(random, 333), second = random_bytes(random, n);
    Bytes both = first;
    both.insert(both.end(), second.begin(), second.end());
    const Kind& kind = kKinds[1];
    std::uint32_t combined = 0;
    HostQueue queue(1);
    host::simt::launch(
        queue, 1, Combine{on_host(kind, first), on_host(kind, second), &combined, n});
    EXPECT_EQ(combined, on_host(kind, both)) << n;
  }
}

}  // namespace
}  // namespace headrace::test
