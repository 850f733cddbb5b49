#pragma once

// Literals to the pool. A Huffman stream is split among lanes: each decodes blind from a bit before
// its segment, by which time it has nearly always fallen into step with the true code boundaries
// (Weissenberger and Schmidt, ICPP'18), and decodes again where its start is not its neighbour's
// end. Lane 0 starts at a true boundary, so the result is right by induction.

#include "kernels/zstd/bits.h"
#include "kernels/zstd/format.h"
#include "kernels/zstd/huffman.h"
#include "kernels/zstd/huffman_stream.h"

namespace headrace::SIMT_SPACE::zstd {

struct LiteralWork {
  const Source* sources;
  const Block* blocks;
  const u32* list;  // blocks with literals in the pool
  u32 count;
  u8* literals;
  u32* faults;
};

// A stream of the one or four of a block, which lie behind each other. Four have their sizes, but
// for the last one's, in the 6 bytes in front of them.
// https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1.3.1.6
struct StreamPlace {
  u32 at, nbytes;    // in the source
  u32 first, count;  // literals
};
SIMT_DEVICE StreamPlace place_stream(const u8* data, const Block& block, u32 at, u32 stream) {
  const u32 end = block.literals_at + block.literals_nbytes;
  if (block.streams == 1) return {at, end - at, 0, block.literal_count};
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

// A CTA a block: its table, then a warp a stream.
struct LiteralDecoder {
  static constexpr unsigned kThreads = 4 * simt::kWarp;
  // Of a multiprocessor: with the registers for 6, as the compiler would have it, sequences beside
  // literals take half as long again (one NVIDIA H200).
  static constexpr unsigned kMinCtas = 8;
  struct Shared {
    HuffmanTable table;
    union {
      HuffmanBuilder builder;
      HuffmanStream::Ring rings[kThreads];
    };
  };

  SIMT_DEVICE static void run(const LiteralWork& work, u32 item, Shared& shared) {
    const u32 thread = simt::thread_index();
    if (thread >= kThreads) return;
    const Block& block = work.blocks[work.list[item]];
    const Source& source = work.sources[block.source];
    u8* const to = work.literals + block.literals;
    if (block.literal_kind == Literals::repeated) {
      const u8 value = source.data[block.literals_at];
      for (u32 i = thread; i < block.literal_count; i += kThreads) to[i] = value;
      return;
    }
    HuffmanTable& table = shared.table;
    if (simt::warp_index() == 0)
      read_huffman_table(table, shared.builder, source.data, block.huffman_at, block.huffman_end);
    simt::sync_cta();
    bool good = table.log != 0;
    if (good) fill_huffman_table(table, shared.builder, thread, kThreads);
    simt::sync_cta();
    if (good) {
      const bool own = block.huffman_at == block.literals_at;
      const u32 at = own ? block.literals_at + table.nbytes : block.literals_at;
      good = decode(shared, source.data, block, at, to);
    }
    if (!good) raise(work.faults, source.chunk, Fault::malformed);
  }

 private:
  // Bits by which a lane starts early. Codes fall into step after 5 to 12 symbols on average.
  static constexpr i32 kWarmUp = 384;

  SIMT_DEVICE static bool decode(
      Shared& shared, const u8* data, const Block& block, u32 at, u8* to) {
    const u32 index = simt::warp_index(), lane = simt::lane_index();
    if (index >= block.streams) return true;
    const StreamPlace place = place_stream(data, block, at, index);
    if (place.nbytes == 0 || data[place.at + place.nbytes - 1] == 0) return false;
    const auto [quads, skipped] = words_of<simt::Quad>(data + place.at);
    const i32 stop = static_cast<i32>(skipped * 8);
    const i32 top = stop + static_cast<i32>((place.nbytes - 1) * 8 +
                                            highest_bit(data[place.at + place.nbytes - 1]));
    HuffmanStream stream(shared.table, shared.rings[simt::thread_index()], quads);

    // Bits [low, high) are this lane's: the codes that start in there.
    const i32 each = (top - stop + static_cast<i32>(simt::kWarp) - 1) / i32{simt::kWarp};
    i32 high = top - static_cast<i32>(lane) * each;
    if (high < stop) high = stop;
    const i32 low = high - each < stop ? stop : high - each;
    stream.start(high + kWarmUp < top ? high + kWarmUp : top);
    stream.skip_to(high);
    i32 start = stream.position();
    u32 count = stream.skip_to(low);
    for (;;) {
      const i32 before = simt::shuffle_up(stream.position(), 1);
      const bool wrong = lane && before != start;
      if (!simt::any(wrong)) break;
      if (!wrong) continue;
      start = before;
      stream.start(start);
      count = stream.skip_to(low);
    }
    const u32 sum = simt::inclusive_sum(count);
    const u32 total = simt::shuffle(sum, simt::kWarp - 1);
    const i32 last = simt::shuffle(stream.position(), simt::kWarp - 1);
    if (total != place.count || last != stop) return false;
    stream.start(start);
    stream.write(to + place.first + (sum - count), count);
    return true;
  }
};

}  // namespace headrace::SIMT_SPACE::zstd
