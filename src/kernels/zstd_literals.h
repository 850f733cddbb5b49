#pragma once

// Literals to the pool. A Huffman stream is split among lanes: each decodes blind from a bit before
// its segment, by which time it has nearly always fallen into step with the true code boundaries
// (Weissenberger and Schmidt, ICPP'18), and decodes again where its start is not its neighbour's
// end. Lane 0 starts at a true boundary, so the result is right by induction.

#include "kernels/zstd_bits.h"
#include "kernels/zstd_format.h"
#include "kernels/zstd_huffman.h"

namespace headrace::SIMT_SPACE::zstd {

struct LiteralWork {
  const Source* sources;
  const Block* blocks;
  const u32* list;  // blocks with literals in the pool
  u32 count;
  u8* literals;
  u32* faults;
};

struct HuffmanWindow {
  u32 low, high;
};
// The 64 bits below a position above 0.
SIMT_DEVICE HuffmanWindow window_at(const u64* words, i32 position) {
  words += position >> 6;
  const u32 r = position & 63;
  const u64 bits =
      simt::load_constant(words) << 1 << (63 - r) | simt::load_constant(words - 1) >> r;
  return {static_cast<u32>(bits), static_cast<u32>(bits >> 32)};
}

// Decodes one stream of codes backward.
struct HuffmanStream {
  const u16* table;  // symbol << 8 | code length, by the next bits
  u32 shift;         // 32 minus their number
  const u64* words;

  SIMT_DEVICE u32 take(HuffmanWindow& window) const {
    const u32 entry = table[window.high >> shift];
    const u32 length = entry & 255;  // 1 to 11
    window.high = simt::funnel_right(window.low, window.high, 32 - length);
    window.low <<= length;
    return entry;
  }

  // Counts symbols until the position is at or below `stop`; gives that position.
  SIMT_DEVICE i32 skip(i32 position, i32 stop, u32& count) const {
    while (position > stop + 5 * static_cast<i32>(kMaxHuffmanLog)) {
      HuffmanWindow window = window_at(words, position);
      const u32 a = take(window), b = take(window), c = take(window), d = take(window),
                e = take(window);
      position -= static_cast<i32>((a & 255) + (b & 255) + (c & 255) + (d & 255) + (e & 255));
      count += 5;
    }
    while (position > stop) {
      HuffmanWindow window = window_at(words, position);
      position -= static_cast<i32>(take(window) & 255);
      ++count;
    }
    return position;
  }

  // Writes `count` symbols, which the stream must hold.
  SIMT_DEVICE void write(u8* to, u32 count, i32 position) const {
    u8* const end = to + count;
    for (; to < end && reinterpret_cast<std::uintptr_t>(to) % 4; ++to) write_one(to, position);
    for (; to + 4 <= end; to += 4) {
      HuffmanWindow window = window_at(words, position);
      const u32 a = take(window), b = take(window), c = take(window), d = take(window);
      position -= static_cast<i32>((a & 255) + (b & 255) + (c & 255) + (d & 255));
      *reinterpret_cast<u32*>(to) = simt::permute_bytes(
          simt::permute_bytes(a, b, 0x51), simt::permute_bytes(c, d, 0x51), 0x5410);
    }
    for (; to < end; ++to) write_one(to, position);
  }

 private:
  SIMT_DEVICE void write_one(u8* to, i32& position) const {
    HuffmanWindow window = window_at(words, position);
    const u32 entry = take(window);
    position -= static_cast<i32>(entry & 255);
    *to = static_cast<u8>(entry >> 8);
  }
};

// Of the up to four streams of a block, which lie behind each other.
struct StreamPlace {
  u32 at, nbytes;    // in the source
  u32 first, count;  // literals
};
SIMT_DEVICE StreamPlace place_stream(const u8* data, const Block& block, u32 at, u32 stream) {
  const u32 end = block.literals_at + block.literals_nbytes;
  if (block.streams == 1) {
    if (stream) return {at, 0, 0, 0};
    return {at, end - at, 0, block.literal_count};
  }
  const u32 each = (block.literal_count + 3) / 4;
  StreamPlace place{at + 6, 0, stream * each, stream < 3 ? each : block.literal_count - 3 * each};
  if (end - at < 6) return {at, 0, 0, 0};
  u32 left = end - place.at;
  for (u32 i = 0; i <= stream; ++i) {
    if (i) place.at += place.nbytes;
    place.nbytes = i < 3 ? data[at + 2 * i] | data[at + 2 * i + 1] << 8 : left;
    if (place.nbytes > left) return {at, 0, 0, 0};
    left -= place.nbytes;
  }
  return place;
}

template <unsigned kLanes_, unsigned kBlocks_>
struct LiteralDecoder {
  static constexpr unsigned kLanes = kLanes_;    // of a stream
  static constexpr unsigned kBlocks = kBlocks_;  // of a thread block
  static constexpr unsigned kGroup = 4 * kLanes;
  static constexpr unsigned kThreads = kGroup * kBlocks;
  static_assert(kGroup % simt::kWarp == 0);
  struct Shared {
    HuffmanTable tables[kBlocks];
    HuffmanBuilder builders[kBlocks];
  };

  // Bits by which a lane starts early. Codes fall into step after 5 to 12 symbols on average.
  static constexpr i32 kWarmUp = 384;

  SIMT_HOST_DEVICE static u32 groups(u32 count) { return (count + kBlocks - 1) / kBlocks; }

  SIMT_DEVICE static void run(const LiteralWork& work, u32 group, Shared& shared) {
    const u32 sub = simt::thread_index() / kGroup, thread = simt::thread_index() % kGroup;
    const u32 item = group * kBlocks + sub;
    const bool on = sub < kBlocks && item < work.count;
    if (!on) return;
    const Block& block = work.blocks[work.list[item]];
    const Source& source = work.sources[block.source];
    u8* const to = work.literals + block.literals;
    if (block.literal_kind == Literals::repeated) {
      const u8 value = source.data[block.literals_at];
      for (u32 i = thread; i < block.literal_count; i += kGroup) to[i] = value;
    }
    const bool huffman = block.literal_kind == Literals::huffman;
    HuffmanTable& table = shared.tables[sub];
    if (huffman && thread < simt::kWarp)
      read_huffman_table(
          table, shared.builders[sub], source.data, block.huffman_at, block.huffman_end);
    simt::sync_block();
    if (huffman && table.log) fill_huffman_table(table, shared.builders[sub], thread, kGroup);
    simt::sync_block();
    if (!huffman) return;
    bool good = table.log != 0;
    if (good) {
      const bool own = block.huffman_at == block.literals_at;
      const u32 at = own ? block.literals_at + table.nbytes : block.literals_at;
      good = decode(table, source.data, block, at, thread, to);
    }
    if (!good) raise(work.faults, source.chunk, Fault::malformed);
  }

 private:
  SIMT_DEVICE static bool decode(
      const HuffmanTable& table, const u8* data, const Block& block, u32 at, u32 thread, u8* to) {
    const u32 index = thread / kLanes, lane = thread % kLanes;
    const StreamPlace place = place_stream(data, block, at, index);
    const bool unused = index >= block.streams;
    const bool valid = !unused && place.nbytes && data[place.at + place.nbytes - 1] != 0;
    i32 stop = 0, top = 0;
    HuffmanStream stream{table.entries, 32 - table.log, nullptr};
    if (valid) {
      const auto [words, skipped] = words_of<u64>(data + place.at);
      stream.words = words;
      stop = static_cast<i32>(skipped * 8);
      top = stop + static_cast<i32>((place.nbytes - 1) * 8 +
                                    highest_bit(data[place.at + place.nbytes - 1]));
    }

    // Bits [low, high) are this lane's: the codes that start in there.
    const i32 each = (top - stop + static_cast<i32>(kLanes) - 1) / static_cast<i32>(kLanes);
    i32 high = top - static_cast<i32>(lane) * each;
    if (high < stop) high = stop;
    const i32 low = high - each < stop ? stop : high - each;
    u32 count = 0;
    i32 start = high;
    if (lane) start = stream.skip(high + kWarmUp < top ? high + kWarmUp : top, high, count);
    count = 0;
    i32 end = stream.skip(start, low, count);
    for (;;) {
      const i32 before = simt::shuffle_up(end, 1, kLanes);
      const bool wrong = lane && before != start;
      if (!simt::any(wrong)) break;
      if (!wrong) continue;
      start = before;
      count = 0;
      end = stream.skip(start, low, count);
    }
    u32 sum = count;
    for (unsigned d = 1; d < kLanes; d <<= 1) {
      const u32 before = simt::shuffle_up(sum, d, kLanes);
      if (lane >= d) sum += before;
    }
    const u32 total = simt::shuffle(sum, kLanes - 1, kLanes);
    const i32 last = simt::shuffle(end, kLanes - 1, kLanes);
    if (unused) return true;
    if (!valid || total != place.count || last != stop) return false;
    stream.write(to + place.first + (sum - count), count, start);
    return true;
  }
};

}  // namespace headrace::SIMT_SPACE::zstd
