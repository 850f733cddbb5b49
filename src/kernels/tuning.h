#pragma once

// Where one way becomes faster than another, and how much is worked on at once: all figures that
// depend on the device and that more than one's own file could want to change. What only shapes one
// kernel (its threads, its tile) stands with the kernel.
//
// Measured on one NVIDIA H200 (132 multiprocessors). bench/results/device-decode.json and
// device-encode.json have the rows of the kernels, device-choice.json whole reads by either side;
// "rows" below are those that change when the figure does. The places where two ways cross were
// found by trial around these rows, and hold within some tens of percent. Counts of what fills the
// device grow with its multiprocessors; sizes that one CTA or warp gets through do not.

#include <cstddef>
#include <cstdint>
#include <limits>

#include "simt/queue.h"

namespace headrace {

struct Tuning {
  struct Zstd {
    // device-decode.json, zstd-*. With few blocks the chain of states of each is all that counts,
    // and a leader lane has tables of its own; with more, leaders and tables compete for shared
    // memory: up to `few_blocks` one stream a CTA, up to `some_blocks` two, then four, and
    // sequences and literals one after the other (rows 1x4 to 8x4 MiB | 64x4 | 512x4).
    std::uint64_t few_blocks;
    std::uint64_t some_blocks;
    // device-decode.json, zstd-* 1x4 to 64x4. One CTA executes 2 GB/s in order, all
    // together 75 GB/s by jumps: a source pays for jumps if it is more than this part of the work.
    std::uint64_t jump_part;
    // device-decode.json, zstd-* 4096x64 KiB. Sources up to here are executed with small tiles, of
    // which a multiprocessor works on eight.
    std::uint32_t small_source = 64 << 10;
    // device-decode.json, zstd-* 4096x1 MiB. Larger slabs are hardly faster. Scratch memory is
    // bounded to 1.4 bytes a decoded byte of a slab: this much, and 64 MiB of entries in the
    // execution. A source on its own may need more.
    std::uint64_t slab_nbytes = std::uint64_t{512} << 20;
    std::uint64_t slab_scratch = std::uint64_t{640} << 20;
    // device-encode.json, encode-zstd. Scratch is about 4 bytes a byte of a slab, so at most 1 GiB.
    std::uint64_t encode_slab_nbytes = std::uint64_t{256} << 20;
  } zstd;

  struct Lz {
    // device-decode.json, lz4-*, snappy, blosc-*. From so many streams on a lane a stream is the
    // fastest parse, if none is long: a lane takes 37 ns a byte, 5 ms for the longest (rows
    // 4096x64 KiB of blosc, whose streams are many times that).
    std::uint64_t lead_streams;
    std::uint32_t lead_longest = 128 << 10;
    // The same rows. Order takes the longest stream at some 2.1 GB/s (1.6 of byte planes), jump
    // everything at some 150 (60 to 70: they have long chains), and some 20 us more, in which order
    // takes the bytes of `order_head_start`.
    std::uint64_t order_streams, order_streams_of_planes;
    std::uint64_t order_head_start = 1'200'000;
    // Tiles of order: the smallest for the smallest streams, the largest while there are few
    // streams, each with a multiprocessor of its own.
    std::uint32_t small_stream = 4096, middle_stream = 16384;
    std::uint64_t few_streams;
    // What is worked on at once. It is no less because order gives each stream a multiprocessor:
    // with fewer streams at once some would have none.
    std::uint64_t slab_nbytes = std::uint64_t{512} << 20;
    // The scratch memory of a slab, 1.56 bytes a decoded byte: tables of the parse, which take 1.7
    // bytes a byte of source where streams are mapped and at most so much, the entries of jump, and
    // records with the rest. Packed floats have 0.4 (lz4) and 0.8 (snappy) bytes of records a
    // decoded byte; where there are more than fit, bytes are made in waves (lz/stream.h). A stream
    // on its own may need more. Measured on one H200 in GB/s: tables of 316 MiB instead of 400,
    // lz4 shuffled 512x1 112 of 134; 144 MiB for records instead of 512, lz4 packed 64x4 92 of 100,
    // snappy 56 of 67.
    std::uint64_t slab_tables_nbytes = std::uint64_t{400} << 20;
    std::uint64_t slab_scratch = std::uint64_t{800} << 20;
    std::uint32_t jump_tiles = 4096;  // 64 MiB decoded, whose entries take 256 MiB
    // device-encode.json, encode-lz4.
    std::uint64_t encode_slab_nbytes = std::uint64_t{512} << 20;
  } lz;

  struct Deflate {
    // device-decode.json, gzip-*. Matches are executed in order from so many streams of equal size
    // on (rows 8x4 | 64x1).
    std::uint64_t order_streams;
    // gzip-* 1x4 to 64x4. Streams are searched for their blocks while there are fewer of them: one
    // after the other, the blocks of a stream keep a single multiprocessor busy. Less source than
    // `search_nbytes` has too few blocks to find.
    std::uint64_t search_streams;
    std::uint64_t search_nbytes = 64 << 10;
    // gzip-* 64x4. In order, streams that are fewer are executed in turns, by so many CTAs. These
    // wait for each other, which is time that the device has to spare unless slabs share it: whole
    // reads by four slabs of 65 x 4 MiB 53 GB/s by 132 CTAs, 61 in order, and of 256 x 1 MiB 59 and
    // 86 (deflate-trials.json).
    std::uint64_t turn_streams;
    // gzip-* 64x4 to 4096x1. A stream or a found block has 128 threads from so many on, 256 from
    // half as many, else 512: more shorten the way through it, and fewer at once fill the device.
    std::uint64_t many_streams, many_blocks;
    // Tiles whose entries (2 bytes a byte) are there at once: enough for two rounds of thread
    // blocks on all multiprocessors, 66 MB on an H200.
    std::uint32_t tiles_at_once;
    // Decoded bytes that are worked on together; a larger stream is a slab of its own. In order,
    // they take an eighth of that as scratch.
    std::uint64_t slab_nbytes = std::uint64_t{2} << 30;
  } deflate;

  struct Blosc {
    // device-decode.json, blosc-*. Decoded bytes that wait for their shuffle to be undone.
    std::uint64_t slab_nbytes = std::uint64_t{384} << 20;
    // blosc-* 4096x64 KiB: 2.1 ms in place of 2.5. The device begins with the first part while the
    // host lists the streams of the next; fewer chunks are not worth kernels of their own.
    std::size_t part_chunks = 512;
    // device-encode.json, encode-blosc-*. Scratch is twice as much, and that of the inner codec.
    std::uint64_t encode_slab_nbytes = std::uint64_t{256} << 20;
  } blosc;

  struct Checksum {
    std::uint64_t slices;  // warps that fill the device, each with a slice of the bytes
  } checksum;
};

// `fill` is for how many multiprocessors choices are made (Queue::tuned_for), `processors` how many
// there are to share the work (Queue::processors).
constexpr Tuning tuning_of(unsigned fill, unsigned processors) {
  const auto scaled = [&](std::uint64_t measured) {
    const std::uint64_t count = (measured * fill + kMeasuredProcessors / 2) / kMeasuredProcessors;
    return count > 0 ? count : 1;
  };
  Tuning tuning{};
  tuning.zstd.few_blocks = scaled(600);
  tuning.zstd.some_blocks = scaled(2500);
  tuning.zstd.jump_part = scaled(40);
  tuning.lz.lead_streams = scaled(16000);
  tuning.lz.order_streams = scaled(70);
  tuning.lz.order_streams_of_planes = scaled(42);
  tuning.lz.few_streams = scaled(200);
  tuning.deflate.order_streams = scaled(60);
  // The host is said to fill an H200, and would be slow at what one of them searches.
  const std::uint64_t share = fill < processors ? fill : processors;
  tuning.deflate.search_streams = share;
  tuning.deflate.turn_streams = share;
  tuning.deflate.many_streams = 4 * share;
  tuning.deflate.many_blocks = 8 * share;
  tuning.deflate.tiles_at_once = 16 * processors;
  tuning.checksum.slices = std::uint64_t{64} * processors;
  return tuning;
}

inline Tuning tuning_of(const Queue& queue) {
  Tuning tuning = tuning_of(queue.tuned_for(), queue.processors());
  // Where the tiles of jumps do not fit, all is executed in order.
  if (queue.shared_nbytes() < kSharedFromAmpere) {
    tuning.zstd.jump_part = 0;
    tuning.lz.order_head_start = std::numeric_limits<std::uint64_t>::max() / 2;
  }
  return tuning;
}

// What reads of the smallest and largest batches take on either side, for who decides where to
// decode (engine/device/decode_cost): fits of device-choice.json, one NVIDIA H200 and 16 threads of
// its host, ERA5-like float32 in zstd 3, lz4, blosc with lz4 and shuffle, gzip 5, delta and
// shuffle. Large batches are bound by reading and copying on either side, so no rate of the
// device's decoders is here; what the smallest take is the longest chain of steps within a thread
// block, whatever the number of multiprocessors.
struct DecodeRates {
  struct OfCodec {
    double host_gb_s;  // one thread, decoded bytes
    double device_us;  // the smallest batch
  };
  OfCodec zstd{0.65, 550};
  OfCodec lz4{2.2, 200};
  OfCodec blosc{2.2, 150};
  OfCodec deflate{0.40, 380};  // gzip, zlib
  OfCodec delta{2.6, 140};
  OfCodec other{4, 30};  // shuffles, swaps, casts, checksums

  double call_us = 60;      // of a batch, either way
  double fetch_gb_s = 5;    // of encoded bytes to the device, a thread
  double copy_gb_s = 45;    // between host and device
  double memory_gb_s = 36;  // decoded bytes: what all threads or the device share
};

// device-encode.json: less is encoded by the host, unless the configuration sets another limit.
inline constexpr std::size_t kMinEncodeNbytes = std::size_t{1} << 20;

}  // namespace headrace
