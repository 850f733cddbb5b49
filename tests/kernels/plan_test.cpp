// Batches of so many chunks that several threads plan them.

#include "kernels/zstd/plan.h"

#include <blosc.h>
#include <lz4.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <tuple>

#include "base/thread_pool.h"
#include "kernels/zstd_frames.h"
#include "simt/host_queue.h"

namespace headrace::test {
namespace {

constexpr std::size_t kCount = 2'600;
// Around the ends of ranges and parts.
constexpr std::size_t kBad[] = {
    0, 127, 128, 255, 256, 511, 512, 700, 1'024, 1'535, 1'536, 2'047, 2'048, kCount - 1};

Bytes blosc(const Bytes& bytes, const char* inner) {
  Bytes chunk(bytes.size() + BLOSC_MAX_OVERHEAD);
  chunk.resize(static_cast<std::size_t>(blosc_compress_ctx(
      5, BLOSC_SHUFFLE, 4, bytes.size(), bytes.data(), chunk.data(), chunk.size(), inner, 0, 1)));
  return chunk;
}

Bytes lz4(const Bytes& bytes) {
  Bytes block(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(bytes.size()))));
  block.resize(
      static_cast<std::size_t>(LZ4_compress_default(reinterpret_cast<const char*>(bytes.data()),
                                                    reinterpret_cast<char*>(block.data()),
                                                    static_cast<int>(bytes.size()),
                                                    static_cast<int>(block.size()))));
  return block;
}

class Plan : public testing::Test {
 protected:
  Plan() { set_thread_count(4); }
  ~Plan() override { set_thread_count(0); }

  // Chunks of several sizes, some of them cut short: they have the faults that they have alone.
  void expect_right(Decode Kernels::*decoder, const std::function<Bytes(const Bytes&)>& encode) {
    std::vector<Bytes> originals, encoded;
    std::vector<std::size_t> nbytes;
    for (std::size_t i = 0; i < kCount; ++i) {
      originals.push_back(packed_field(4 * (130 + i % 50), i));
      nbytes.push_back(originals[i].size());
      encoded.push_back(encode(originals[i]));
    }
    for (const std::size_t i : kBad) encoded[i].resize(encoded[i].size() - 1);
    for (const Place& place : places()) {
      const auto run = [&](const std::vector<Bytes>& chunks,
                           const std::vector<std::size_t>& sizes) {
        return decode(place, place.kernels->*decoder, chunks, sizes);
      };
      const Decoded got = run(encoded, nbytes);
      std::vector<Fault> faults(kCount, Fault::none);
      for (const std::size_t i : kBad) {
        faults[i] = run({encoded[i]}, {nbytes[i]}).faults[0];
        EXPECT_NE(faults[i], Fault::none);
      }
      EXPECT_EQ(got.faults, faults) << place.name;
      for (std::size_t i = 0; i < kCount; ++i)
        EXPECT_TRUE(faults[i] != Fault::none || got.chunks[i] == originals[i])
            << place.name << " chunk " << i;
    }
  }
};

TEST_F(Plan, OfZstd) {
  expect_right(&Kernels::zstd, [](const Bytes& bytes) { return compress(bytes); });
}

// More blocks than their sizes tell.
TEST_F(Plan, OfZstdInSmallBlocks) {
  expect_right(&Kernels::zstd,
               [](const Bytes& bytes) { return compress(bytes, {.flush_every = 200}); });
}

TEST_F(Plan, OfLz4) { expect_right(&Kernels::lz4, lz4); }

TEST_F(Plan, OfBloscLz4) {
  expect_right(&Kernels::blosc, [](const Bytes& bytes) { return blosc(bytes, "lz4"); });
}

TEST_F(Plan, OfBloscZstd) {
  expect_right(&Kernels::blosc, [](const Bytes& bytes) { return blosc(bytes, "zstd"); });
}

using host::zstd::Block;

// All that parsing sets, with padding left out.
auto fields(const Block& b) {
  return std::tuple(std::array{b.records, b.literals},
                    std::array{b.source,
                               b.frame,
                               b.end,
                               b.literals_at,
                               b.literals_nbytes,
                               b.literal_count,
                               b.huffman_at,
                               b.huffman_end,
                               b.sequence_count,
                               b.modes_at,
                               b.record_count,
                               b.nbytes},
                    std::to_array(b.tables_at),
                    std::to_array(b.tables_end),
                    b.literal_kind,
                    b.streams);
}

auto fields(const host::zstd::Frame& f) {
  return std::tuple(
      f.source, f.first_block, f.end_block, f.content_nbytes, f.checksum, f.has_checksum);
}

auto fields(const host::zstd::Source& s) {
  return std::tuple(
      s.data, s.chunk, s.first_block, s.end_block, s.first_frame, s.end_frame, s.fault);
}

// What parsing on the device finds, for slabs that begin and end within what a thread takes.
TEST_F(Plan, OfZstdIsTheSameOnHostAndDevice) {
  std::vector<Bytes> encoded;
  std::vector<Frame> frames;
  std::vector<const std::uint8_t*> host_sources;
  for (std::size_t i = 0; i < 400; ++i) {
    const Bytes original = i % 3 ? text(200 + i, i) : packed_field(2'000, i);
    encoded.push_back(compress(original, {.checksum = i % 2 == 0, .flush_every = 300}));
    if (i % 50 == 17) encoded[i].pop_back();
    encoded[i].resize(encoded[i].size() + kSourcePadding);
  }
  for (std::uint32_t i = 0; i < encoded.size(); ++i) {
    host_sources.push_back(encoded[i].data());
    // A slab holds 73 of these, a thread takes 4.
    frames.push_back({encoded[i].data(), encoded[i].size() - kSourcePadding, nullptr, 7 << 20, i});
  }
  HostQueue queue;
  std::vector<std::unique_ptr<const Headers>> read;
  std::vector<const Headers*> headers;
  for (const Frame& frame : frames) {
    read.push_back(host_kernels().zstd_headers(
        host_sources[frame.chunk], frame.source_nbytes, frame.target_nbytes));
    headers.push_back(read.back().get());
  }
  const host::zstd::HostParse of_bytes(frames, host_sources);
  const host::zstd::HostParse of_headers(headers);
  const auto counted = host::zstd::count_on_device(queue, frames);
  const auto expect_same = [](const auto* a, const auto* b, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(fields(a[i]), fields(b[i])) << i;
  };
  for (const host::zstd::HostParse* const parse : {&of_bytes, &of_headers}) {
    std::size_t slabs = 0;
    for (std::size_t first = 0; first < frames.size(); ++slabs) {
      const auto on_host = parse->upload(queue, frames, first);
      const auto on_device = host::zstd::parse_on_device(
          queue, std::span(frames).subspan(first), std::span(counted).subspan(first));
      ASSERT_EQ(on_host.sources.size(), on_device.sources.size());
      ASSERT_EQ(on_host.total.blocks, on_device.total.blocks);
      ASSERT_EQ(on_host.total.frames, on_device.total.frames);
      expect_same(on_host.device_sources, on_device.device_sources, on_host.sources.size());
      expect_same(on_host.frames, on_device.frames, on_host.total.frames);
      expect_same(on_host.blocks, on_device.blocks, on_host.total.blocks);
      EXPECT_TRUE(std::equal(on_host.with_sequences,
                             on_host.with_sequences + on_host.total.with_sequences,
                             on_device.with_sequences));
      EXPECT_TRUE(std::equal(on_host.with_pool_literals,
                             on_host.with_pool_literals + on_host.total.with_pool_literals,
                             on_device.with_pool_literals));
      first += on_host.sources.size();
    }
    EXPECT_EQ(slabs, 6u);
  }
}

}  // namespace
}  // namespace headrace::test
