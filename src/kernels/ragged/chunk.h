#pragma once

// A chunk of elements of variable length: how many there are, then of each its size and its bytes.

#include "kernels/common/access.h"
#include "kernels/kernels.h"

namespace headrace::SIMT_SPACE {

inline constexpr u32 kNumber = 4;           // bytes of a count or a size
inline constexpr u32 kSegmentBytes = 4096;  // whose elements are found side by side

struct RaggedChunk {
  const u8* source;
  u64 nbytes;
  RaggedElement* elements;
  u64 count;
  u32 chunk;
  // Those of its segments are first_segment to first_segment + segments - 1. None: it is small.
  u32 first_segment, segments;
};

// How far a chunk is known: where the size of the next element lies, and which one that is.
struct RaggedProgress {
  u64 at, done;
};

// Goes on from the size at `at` to the next one. False: there is no whole element.
SIMT_DEVICE bool next_element(const RaggedChunk& chunk, u64& at, u32& size) {
  const u64 left = chunk.nbytes - at;
  if (left < kNumber) return false;
  size = load_word(chunk.source + at);
  if (left - kNumber < size) return false;
  at += kNumber + size;
  return true;
}

}  // namespace headrace::SIMT_SPACE
