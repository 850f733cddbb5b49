// Elements of 2, 4, 8 and 16 bytes are shuffled in registers. A lane takes 4 elements: as words,
// one of each plane, or so many in a row. A warp's accesses are contiguous on both sides.

#include "kernels/filters/shuffle.h"

#include <algorithm>
#include <string>

#include "headrace/error.h"
#include "kernels/common/access.h"
#include "kernels/common/work.h"
#include "kernels/filters/shuffle_tiles.h"

namespace headrace::SIMT_SPACE {
namespace {

using simt::Pair;
using simt::Quad;

constexpr unsigned kCtaThreads = 256;
constexpr unsigned kLaneElements = 4;
constexpr unsigned kWarpElements = kLaneElements * simt::kWarp;
constexpr unsigned kCtaElements = kLaneElements * kCtaThreads;

// Elements [begin, end) fill whole warps and are aligned where they lie in a row.
struct Chunk {
  const u8* source;
  u8* target;
  u64 nbytes;
  u64 begin, end;
  u64 first;
};

// All but [begin, end), byte by byte.
template <bool kForward>
SIMT_DEVICE void shuffle_rest(const Chunk& c, unsigned itemsize) {
  const u64 n = c.nbytes / itemsize, skipped = (c.end - c.begin) * itemsize;
  for (u64 i = simt::thread_index(); i < c.nbytes - skipped; i += kCtaThreads) {
    const u64 at = i < c.begin * itemsize ? i : i + skipped;
    const u64 in_plane = at < n * itemsize ? at % itemsize * n + at / itemsize : at;
    c.target[kForward ? in_plane : at] = c.source[kForward ? at : in_plane];
  }
}

// Words as rows of a 4x4 matrix of bytes.
SIMT_DEVICE void transpose_bytes(u32* words) {
  const u32 a = words[0], b = words[1], c = words[2], d = words[3];
  const u32 ab_low = simt::permute_bytes(a, b, 0x5140), ab_high = simt::permute_bytes(a, b, 0x7362);
  const u32 cd_low = simt::permute_bytes(c, d, 0x5140), cd_high = simt::permute_bytes(c, d, 0x7362);
  words[0] = simt::permute_bytes(ab_low, cd_low, 0x5410);
  words[1] = simt::permute_bytes(ab_low, cd_low, 0x7632);
  words[2] = simt::permute_bytes(ab_high, cd_high, 0x5410);
  words[3] = simt::permute_bytes(ab_high, cd_high, 0x7632);
}

// Lane l gets quad l of lane i as its quad i, among each kQuads lanes. So a lane's quads, which
// follow one another in memory, become quads that the neighbouring lanes' follow.
template <unsigned kQuads>
SIMT_DEVICE void exchange_quads(Quad* quads) {
  SIMT_UNROLL
  for (unsigned d = 1; d < kQuads; d <<= 1) {
    const bool upper = simt::lane_index() & d;
    SIMT_UNROLL
    for (unsigned i = 0; i < kQuads; ++i) {
      if (i & d) continue;
      const Quad sent = upper ? quads[i] : quads[i | d];
      const Quad got = {simt::shuffle_xor(sent.x, d),
                        simt::shuffle_xor(sent.y, d),
                        simt::shuffle_xor(sent.z, d),
                        simt::shuffle_xor(sent.w, d)};
      quads[i] = upper ? got : quads[i];
      quads[i | d] = upper ? quads[i | d] : got;
    }
  }
}

// 4 elements of a lane, kItem words: from one word a plane to words in a row and back.
template <unsigned kItem>
struct LaneElements {
  static constexpr unsigned kQuads = kItem / 4;
  u32 words[kItem];

  // `warp_at`: where the elements of the warp are in a row.
  SIMT_DEVICE void store_elements(u8* warp_at) {
    SIMT_UNROLL
    for (unsigned group = 0; group < kItem; group += 4) transpose_bytes(words + group);
    Quad quads[kQuads];
    SIMT_UNROLL
    for (unsigned i = 0; i < kQuads; ++i)
      quads[i] = {word(4 * i), word(4 * i + 1), word(4 * i + 2), word(4 * i + 3)};
    exchange_quads<kQuads>(quads);
    SIMT_UNROLL
    for (unsigned i = 0; i < kQuads; ++i) store_quad(warp_at + quad_offset(i), quads[i]);
  }

  SIMT_DEVICE void load_elements(const u8* warp_at) {
    Quad quads[kQuads];
    SIMT_UNROLL
    for (unsigned i = 0; i < kQuads; ++i) quads[i] = load_quad(warp_at + quad_offset(i));
    exchange_quads<kQuads>(quads);
    SIMT_UNROLL
    for (unsigned i = 0; i < kQuads; ++i) {
      word(4 * i) = quads[i].x;
      word(4 * i + 1) = quads[i].y;
      word(4 * i + 2) = quads[i].z;
      word(4 * i + 3) = quads[i].w;
    }
    SIMT_UNROLL
    for (unsigned group = 0; group < kItem; group += 4) transpose_bytes(words + group);
  }

 private:
  // The k-th in a row.
  SIMT_DEVICE u32& word(unsigned k) { return words[k % kQuads * 4 + k / kQuads]; }
  SIMT_DEVICE static unsigned quad_offset(unsigned i) {
    const unsigned lane = simt::lane_index(), owner = lane / kQuads * kQuads + i;
    return owner * kLaneElements * kItem + lane % kQuads * 16;
  }
};

template <>
struct LaneElements<2> {
  u32 words[2];

  SIMT_DEVICE void store_elements(u8* warp_at) {
    store_pair(warp_at + 8 * simt::lane_index(),
               {simt::permute_bytes(words[0], words[1], 0x5140),
                simt::permute_bytes(words[0], words[1], 0x7362)});
  }
  SIMT_DEVICE void load_elements(const u8* warp_at) {
    const Pair pair = load_pair(warp_at + 8 * simt::lane_index());
    words[0] = simt::permute_bytes(pair.x, pair.y, 0x6420);
    words[1] = simt::permute_bytes(pair.x, pair.y, 0x7531);
  }
};

template <unsigned kItem, bool kForward>
struct ShuffleWords {
  static constexpr unsigned kThreads = kCtaThreads;
  // So many bytes a thread, all of them under way before the first is stored.
  static constexpr unsigned kRounds = 64 / (kLaneElements * kItem);
  using Shared = simt::NoShared;
  Work<Chunk> chunks;

  SIMT_DEVICE void operator()(Shared&) const {
    const Chunk c = chunks.find(simt::cta_index());
    const u64 tile = simt::cta_index() - c.first;
    if (tile == 0) shuffle_rest<kForward>(c, kItem);
    const u64 n = c.nbytes / kItem;
    const u64 begin = c.begin + tile * kRounds * kCtaElements + simt::warp_index() * kWarpElements;
    const u64 rounds = begin < c.end ? (c.end - begin + kCtaElements - 1) / kCtaElements : 0;
    LaneElements<kItem> elements[kRounds];
    if constexpr (kForward) {
      SIMT_UNROLL
      for (unsigned r = 0; r < kRounds; ++r)
        if (r < rounds) elements[r].load_elements(c.source + (begin + r * kCtaElements) * kItem);
    }
    SIMT_UNROLL
    for (unsigned plane = 0; plane < kItem; ++plane) {
      const u64 offset = plane * n + begin + kLaneElements * simt::lane_index();
      SIMT_UNROLL
      for (unsigned r = 0; r < kRounds; ++r) {
        if (r >= rounds) continue;
        if constexpr (kForward)
          store_row(c.target + offset + r * kCtaElements, elements[r].words[plane]);
        else
          elements[r].words[plane] = load_word(c.source + offset + r * kCtaElements);
      }
    }
    if constexpr (!kForward) {
      SIMT_UNROLL
      for (unsigned r = 0; r < kRounds; ++r)
        if (r < rounds) elements[r].store_elements(c.target + (begin + r * kCtaElements) * kItem);
    }
  }
};

template <unsigned kItem, bool kForward>
void shuffle_words(Queue& queue, const FilterBatch& batch) {
  constexpr u64 kTile = ShuffleWords<kItem, kForward>::kRounds * kCtaElements;
  WorkList<Chunk> list;
  for (const Frame& frame : batch.frames) {
    if (frame.source_nbytes == 0) continue;
    const u64 n = frame.source_nbytes / kItem;
    const void* row = kForward ? static_cast<const void*>(frame.source) : frame.target;
    const u64 skip = -reinterpret_cast<std::uintptr_t>(row) & 15;
    const u64 begin = skip % kItem == 0 ? std::min(n, skip / kItem) : 0;
    const u64 fast = (n - begin) / kWarpElements * kWarpElements;
    list.add({frame.source, frame.target, frame.source_nbytes, begin, begin + fast, 0},
             std::max<u64>(1, (fast + kTile - 1) / kTile));
  }
  if (list.items() == 0) return;
  const auto chunks = list.upload(queue);
  simt::launch(queue, list.items(), ShuffleWords<kItem, kForward>{work_of(chunks)});
}

void check(const FilterBatch& batch) {
  if (batch.itemsize == 0 || batch.itemsize > 255)
    throw Error(ErrorCode::unsupported,
                "shuffle: elements of 1 to 255 bytes, got " + std::to_string(batch.itemsize));
  for (const Frame& frame : batch.frames)
    if (frame.source_nbytes != frame.target_nbytes)
      throw Error(ErrorCode::invalid_argument,
                  "shuffle: " + std::to_string(frame.source_nbytes) + " bytes to " +
                      std::to_string(frame.target_nbytes));
}

template <bool kForward>
void shuffle_any(Queue& queue, const FilterBatch& batch) {
  check(batch);
  switch (batch.itemsize) {
    case 2:
      return shuffle_words<2, kForward>(queue, batch);
    case 4:
      return shuffle_words<4, kForward>(queue, batch);
    case 8:
      return shuffle_words<8, kForward>(queue, batch);
    case 16:
      return shuffle_words<16, kForward>(queue, batch);
    default:
      return shuffle_tiles<false, kForward>(queue, batch);
  }
}

}  // namespace

void shuffle(Queue& queue, const FilterBatch& batch) { shuffle_any<true>(queue, batch); }
void unshuffle(Queue& queue, const FilterBatch& batch) { shuffle_any<false>(queue, batch); }

void bit_shuffle(Queue& queue, const FilterBatch& batch) {
  check(batch);
  shuffle_tiles<true, true>(queue, batch);
}

void bit_unshuffle(Queue& queue, const FilterBatch& batch) {
  check(batch);
  shuffle_tiles<true, false>(queue, batch);
}

}  // namespace headrace::SIMT_SPACE
