#pragma once

// The shuffles of src/kernels/filters/shuffle.cpp for elements of any size, and those of bits: a
// CTA brings a tile to shared memory, transposes it there, and stores it.

#include <algorithm>

#include "kernels/common/access.h"
#include "kernels/common/work.h"
#include "kernels/kernels.h"

namespace headrace::SIMT_SPACE {
namespace tiles {

constexpr unsigned kCtaThreads = 256;
constexpr unsigned kWarps = kCtaThreads / simt::kWarp;
constexpr unsigned kTileBytes = 8192;

// A tile has a multiple of 32 elements, so that rows of bits are whole words.
constexpr unsigned tile_elements(unsigned itemsize) { return kTileBytes / itemsize / 32 * 32; }
// Words from row to row in shared memory: odd where lanes read a column.
constexpr unsigned row_stride(bool bits, unsigned itemsize) {
  return bits ? tile_elements(itemsize) / 32 | 1 : tile_elements(itemsize) / 4 + 1;
}
constexpr unsigned row_count(bool bits, unsigned itemsize) {
  return bits ? 8 * itemsize : itemsize;
}
constexpr unsigned max_row_words(bool bits) {
  unsigned words = 0;
  for (unsigned itemsize = 1; itemsize < 256; ++itemsize)
    words = std::max(words, row_count(bits, itemsize) * row_stride(bits, itemsize));
  return words;
}

struct Chunk {
  const u8* source;
  u8* target;
  u64 nbytes;
  u64 elements;  // that are shuffled; the bytes behind them are copied
  u64 first;
};

// The words of so many rows, dealt to the threads of a CTA.
struct RowWords {
  u32 row, word;
  u32 words, row_step, word_step;

  SIMT_DEVICE explicit RowWords(u32 words_a_row)
      : row(simt::thread_index() / words_a_row),
        word(simt::thread_index() % words_a_row),
        words(words_a_row),
        row_step(kCtaThreads / words_a_row),
        word_step(kCtaThreads % words_a_row) {}
  SIMT_DEVICE void next() {
    row += row_step;
    word += word_step;
    if (word >= words) {
      word -= words;
      ++row;
    }
  }
};

// Rows of bytes in device memory, `pitch` from one to the next.
SIMT_DEVICE void load_rows(
    const u8* source, u64 pitch, u32 rows, u32 nbytes, u32* shared, u32 stride) {
  constexpr unsigned kUnderWay = 4;
  RowWords at((nbytes + 3) / 4);
  while (at.row < rows) {
    u32 loaded[kUnderWay], to[kUnderWay];
    unsigned n = 0;
    SIMT_UNROLL
    for (unsigned i = 0; i < kUnderWay; ++i) {
      if (at.row >= rows) continue;
      loaded[i] = load_word(source + at.row * pitch + 4 * at.word);
      to[i] = at.row * stride + at.word;
      n = i + 1;
      at.next();
    }
    SIMT_UNROLL
    for (unsigned i = 0; i < kUnderWay; ++i)
      if (i < n) shared[to[i]] = loaded[i];
  }
}

SIMT_DEVICE void store_rows(
    u8* target, u64 pitch, u32 rows, u32 nbytes, const u32* shared, u32 stride) {
  for (RowWords at(nbytes / 4 + 2); at.row < rows; at.next()) {
    u8* const row = target + at.row * pitch;
    const u32* const words = shared + at.row * stride;
    const u32 skip = misalignment(row, 4);
    const u32 begin = 4 * at.word - skip;  // of the row; wraps for its head
    if (begin < nbytes && begin + 4 <= nbytes) {
      const u32* const w = words + begin / 4;
      *reinterpret_cast<u32*>(row + begin) =
          skip ? simt::funnel_right(w[0], w[1], 8 * (4 - skip)) : w[0];
      continue;
    }
    for (u32 i = begin; i != begin + 4; ++i)
      if (i < nbytes) row[i] = reinterpret_cast<const u8*>(words)[i];
  }
}

// Lane l's bit i becomes lane i's bit l.
SIMT_DEVICE u32 transpose_bits(u32 word) {
  u32 low = 0x0000ffff;
  SIMT_UNROLL
  for (unsigned d = 16; d > 0; d >>= 1, low ^= low << d) {
    const u32 other = simt::shuffle_xor(word, d);
    word = simt::lane_index() & d ? (word & ~low) | (other >> d & low)
                                  : (word & low) | (other & low) << d;
  }
  return word;
}

template <bool kBits, bool kForward>
struct ShuffleTiles {
  static constexpr unsigned kThreads = kCtaThreads;
  struct Shared {
    u32 rows[max_row_words(kBits)];
    u32 elements[kTileBytes / 4 + 1];
  };
  Work<Chunk> chunks;
  u32 itemsize;
  u32 tile;
  u32 stride;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const Chunk c = chunks.find(simt::cta_index());
    const u64 begin = (simt::cta_index() - c.first) * tile;
    if (begin == 0)
      for (u64 i = c.elements * itemsize + simt::thread_index(); i < c.nbytes; i += kCtaThreads)
        c.target[i] = c.source[i];
    if (begin >= c.elements) return;

    const u32 count = c.elements - begin < tile ? static_cast<u32>(c.elements - begin) : tile;
    const u32 nbytes = count * itemsize, rows = row_count(kBits, itemsize);
    const u64 pitch = kBits ? c.elements / 8 : c.elements, row_begin = kBits ? begin / 8 : begin;
    const u32 row_nbytes = kBits ? count / 8 : count;
    if constexpr (kForward)
      load_rows(c.source + begin * itemsize, 0, 1, nbytes, shared.elements, 0);
    else
      load_rows(c.source + row_begin, pitch, rows, row_nbytes, shared.rows, stride);
    simt::sync_cta();
    if constexpr (kBits)
      transpose_bit_rows(shared, count);
    else if constexpr (kForward)
      elements_to_rows(shared, count);
    else
      rows_to_elements(shared, nbytes);
    simt::sync_cta();
    if constexpr (kForward)
      store_rows(c.target + row_begin, pitch, rows, row_nbytes, shared.rows, stride);
    else
      store_rows(c.target + begin * itemsize, 0, 1, nbytes, shared.elements, 0);
  }

 private:
  SIMT_DEVICE void rows_to_elements(Shared& shared, u32 nbytes) const {
    const u8* const rows = reinterpret_cast<const u8*>(shared.rows);
    for (u32 i = 4 * simt::thread_index(); i < nbytes; i += 4 * kCtaThreads) {
      u32 element = i / itemsize, plane = i % itemsize, word = 0;
      SIMT_UNROLL
      for (unsigned k = 0; k < 4; ++k) {
        word |= u32{rows[plane * stride * 4 + element]} << 8 * k;
        if (++plane == itemsize) {
          plane = 0;
          ++element;
        }
      }
      shared.elements[i / 4] = word;
    }
  }

  SIMT_DEVICE void elements_to_rows(Shared& shared, u32 count) const {
    const u8* const elements = reinterpret_cast<const u8*>(shared.elements);
    for (RowWords at((count + 3) / 4); at.row < itemsize; at.next()) {
      u32 word = 0;
      SIMT_UNROLL
      for (unsigned k = 0; k < 4; ++k)
        word |= u32{elements[(4 * at.word + k) * itemsize + at.row]} << 8 * k;
      shared.rows[at.row * stride + at.word] = word;
    }
  }

  // A warp takes the 32 rows of 4 bytes of an element; of smaller elements all rows, for several
  // columns of 32 elements side by side.
  SIMT_DEVICE void transpose_bit_rows(Shared& shared, u32 count) const {
    const unsigned lane = simt::lane_index();
    const u32 side_by_side = itemsize <= 2 ? 4 / itemsize : 1, lane_rows = 32 / side_by_side;
    const u32 groups = (itemsize + 3) / 4, columns = (count + 31) / 32;
    const u32 steps = (columns + side_by_side - 1) / side_by_side;
    for (u32 task = simt::warp_index(); task < groups * steps; task += kWarps) {
      const u32 group = task / steps, column = task % steps * side_by_side;
      const u32 row = 32 * group + lane % lane_rows, row_column = column + lane / lane_rows;
      const bool has_row = row < 8 * itemsize && row_column < columns;
      const u32 piece = itemsize - 4 * group < 4 ? itemsize - 4 * group : 4;
      u32& in_row = shared.rows[has_row ? row * stride + row_column : 0];
      u32 word = 0;
      if constexpr (kForward) {
        for (u32 i = 0; i < side_by_side; ++i) {
          const u32 element = 32 * (column + i) + lane;
          if (element < count) word |= load_piece(shared, element, group, piece) << 8 * piece * i;
        }
        word = transpose_bits(word);
        if (has_row) in_row = word;
      } else {
        word = transpose_bits(has_row ? in_row : 0);
        for (u32 i = 0; i < side_by_side; ++i) {
          const u32 element = 32 * (column + i) + lane;
          if (element < count) store_piece(shared, element, group, piece, word >> 8 * piece * i);
        }
      }
    }
  }

  // Bytes [4 group, 4 group + piece) of an element.
  SIMT_DEVICE u32 load_piece(const Shared& shared, u32 element, u32 group, u32 piece) const {
    const u32 at = element * itemsize + 4 * group;
    if (itemsize % 4 == 0) return shared.elements[at / 4];
    u32 word = 0;
    for (u32 k = 0; k < piece; ++k)
      word |= u32{reinterpret_cast<const u8*>(shared.elements)[at + k]} << 8 * k;
    return word;
  }
  SIMT_DEVICE void store_piece(Shared& shared, u32 element, u32 group, u32 piece, u32 word) const {
    const u32 at = element * itemsize + 4 * group;
    if (itemsize % 4 == 0) {
      shared.elements[at / 4] = word;
      return;
    }
    for (u32 k = 0; k < piece; ++k)
      reinterpret_cast<u8*>(shared.elements)[at + k] = static_cast<u8>(word >> 8 * k);
  }
};

}  // namespace tiles

template <bool kBits, bool kForward>
void shuffle_tiles(Queue& queue, const FilterBatch& batch) {
  const u32 itemsize = batch.itemsize, tile = tiles::tile_elements(itemsize);
  WorkList<tiles::Chunk> list;
  for (const Frame& frame : batch.frames) {
    if (frame.source_nbytes == 0) continue;
    const u64 n = frame.source_nbytes / itemsize, elements = kBits ? n / 8 * 8 : n;
    list.add({frame.source, frame.target, frame.source_nbytes, elements, 0},
             std::max<u64>(1, (elements + tile - 1) / tile));
  }
  if (list.items() == 0) return;
  const auto chunks = list.upload(queue);
  simt::launch(queue,
               list.items(),
               tiles::ShuffleTiles<kBits, kForward>{
                   work_of(chunks), itemsize, tile, tiles::row_stride(kBits, itemsize)});
}

}  // namespace headrace::SIMT_SPACE
