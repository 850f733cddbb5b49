#include "kernels/ragged/segments.h"

#include "kernels/common/fault.h"
#include "kernels/ragged/sum.h"
#include "kernels/ragged/texts.h"
#include "simt/queue.h"

// Where an element begins is known when the size of the one before it is, a chain. It is broken by
// a guess: for each segment of a chunk, where the chain that enters it leaves it. Any four bytes
// may be a size, but those that are none lead out of the chunk soon, or far away, so that of all
// chains of a segment the one of most elements over most bytes is taken for it. Then the segments
// are linked: the exit of one is the entry of another. From its entry each is gone through once
// more, and where it is left elsewhere than guessed the rest of the chunk is left to the kernel
// that goes from element to element. So nothing depends on the guess but the time.

namespace headrace::SIMT_SPACE {
namespace {

constexpr unsigned kSegmentThreads = 128;
constexpr u32 kNone = 0;  // no exit or entry: sizes begin behind the count
// What one jump leads out of may be anything: the true chain is followed where there is no better.
constexpr u32 kLeastGuessed = 2;
constexpr u32 kMostSteps = 8192;  // of a thread that looks for a guess

// An entry each segment; chunks have theirs one behind the other.
struct Segments {
  const RaggedChunk* chunks;
  u32 chunk_count;
  u32* exits;    // where the chain leaves it: in bytes of the source, as `entries`
  u32* entries;  // where it comes in; kNone where an element reaches over the whole
  u32* counts;   // elements that begin there
  u32* firsts;   // the number of the first one
  u32* wrong;    // of each chunk: its first segment whose guess is wrong
};

// The chunk that has the segment.
SIMT_DEVICE u32 chunk_of(const Segments& all, u32 segment) {
  u32 first = 0, count = all.chunk_count;
  while (count > 1) {
    const u32 half = count / 2;
    const bool is_behind = all.chunks[first + half].first_segment <= segment;
    first += is_behind ? half : 0;
    count = is_behind ? count - half : half;
  }
  return first;
}

SIMT_DEVICE u64 begin_of(u32 k) { return kNumber + u64{k} * kSegmentBytes; }
SIMT_DEVICE u64 end_of(const RaggedChunk& chunk, u32 k) {
  return k + 1 < chunk.segments ? begin_of(k + 1) : chunk.nbytes;
}

struct Chain {
  u32 exit, count;
};

// From the size at `at` to behind `end`.
SIMT_DEVICE Chain follow(const RaggedChunk& chunk, u64 at, u64 end) {
  u32 size = 0, count = 0;
  for (; at < end; ++count)
    if (!next_element(chunk, at, size)) return {kNone, count};
  return {static_cast<u32>(at), count};
}

// A CTA a segment.
struct GuessExits {
  static constexpr unsigned kThreads = kSegmentThreads;
  static constexpr u32 kWords = kSegmentBytes / 32;
  static_assert(kWords == kThreads);
  struct Shared {
    alignas(16) u8 tile[kSegmentBytes + 32];
    u32 whole[kWords];     // bits: an element may begin there
    u32 followed[kWords];  // the one before it is in the segment, too
    u32 scores[kThreads / simt::kWarp];
    u32 chunk;
  };
  Segments all;

  SIMT_DEVICE void operator()(Shared& shared) const {
    if (simt::thread_index() == 0) shared.chunk = chunk_of(all, simt::cta_index());
    shared.followed[simt::thread_index()] = 0;
    simt::sync_cta();
    const RaggedChunk& chunk = all.chunks[shared.chunk];
    const u64 begin = begin_of(simt::cta_index() - chunk.first_segment);
    const u32 skip = load_tile(shared, chunk, begin);
    const u32 left = static_cast<u32>(chunk.nbytes - begin);
    const u32 length = left < kSegmentBytes ? left : kSegmentBytes;
    simt::sync_cta();
    for (u32 i = simt::thread_index(); i < kSegmentBytes; i += kThreads) {
      u32 next = i;
      const bool is_whole = i < length && step(shared, skip, left, next);
      const u32 votes = simt::ballot(is_whole);
      if (simt::lane_index() == 0) shared.whole[i / 32] = votes;
      if (is_whole && next < length) simt::atomic_or(&shared.followed[next / 32], 1u << next % 32);
    }
    simt::sync_cta();
    u32 score = 0;
    const Chain best = best_of(shared, skip, left, length, score);
    const u32 in_warp = simt::reduce_max(score);
    if (simt::lane_index() == 0) shared.scores[simt::warp_index()] = in_warp;
    simt::sync_cta();
    u32 of_all = 0, first_warp = 0;
    for (u32 w = kThreads / simt::kWarp; w-- > 0;) {
      if (shared.scores[w] < of_all) continue;
      of_all = shared.scores[w];
      first_warp = w;
    }
    const u32 votes = simt::ballot(score == of_all);
    if (simt::warp_index() != first_warp || simt::lane_index() != simt::trailing_zeros(votes))
      return;
    all.exits[simt::cta_index()] = of_all == 0 ? kNone : static_cast<u32>(begin + best.exit);
    all.counts[simt::cta_index()] = of_all == 0 ? 0 : best.count;
  }

 private:
  // From the last aligned quad before `begin` on: how many bytes that is before.
  SIMT_DEVICE static u32 load_tile(Shared& shared, const RaggedChunk& chunk, u64 begin) {
    const u32 skip = misalignment(chunk.source + begin, 16);
    const u8* const from = chunk.source + begin - skip;
    const u8* const end = chunk.source + chunk.nbytes;
    for (u32 i = 16 * simt::thread_index(); i < kSegmentBytes + 32 && from + i < end;
         i += 16 * kThreads)
      *reinterpret_cast<simt::Quad*>(shared.tile + i) =
          simt::load_constant(reinterpret_cast<const simt::Quad*>(from + i));
    return skip;
  }

  // As next_element, with places in the segment, which `left` bytes of the chunk begin with.
  SIMT_DEVICE static bool step(const Shared& shared, u32 skip, u32 left, u32& at) {
    if (left - at < kNumber) return false;
    const u32* const words = reinterpret_cast<const u32*>(shared.tile) + (skip + at) / 4;
    const u32 size = simt::funnel_right(words[0], words[1], 8 * ((skip + at) % 4));
    if (left - at - kNumber < size) return false;
    at += kNumber + size;
    return true;
  }

  // Of the chains that begin in this thread's 32 bytes, with no element before them.
  SIMT_DEVICE static Chain best_of(
      const Shared& shared, u32 skip, u32 left, u32 length, u32& score) {
    Chain best{};
    u32 steps = 0;
    const u32 word = simt::thread_index();
    for (u32 bits = shared.whole[word] & ~shared.followed[word]; bits != 0; bits &= bits - 1) {
      const u32 begin = 32 * word + simt::trailing_zeros(bits);
      u32 at = begin, count = 0;
      bool is_whole = true;
      while (is_whole && at < length) {
        is_whole = step(shared, skip, left, at);
        ++count;
      }
      const u32 own = count * (length - begin);
      if (is_whole && own > score) {
        score = own;
        best = {at, count};
      }
      steps += count;
      if (steps > kMostSteps) break;
    }
    return best;
  }
};

// A CTA a chunk. One thread goes from segment to segment.
struct LinkSegments {
  static constexpr unsigned kThreads = kSegmentThreads;
  static constexpr u32 kWindow = 1024;
  struct Shared {
    u32 exits[kWindow], counts[kWindow], entries[kWindow];
    u64 at;
    bool is_lost;
  };
  Segments all;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const RaggedChunk& chunk = all.chunks[simt::cta_index()];
    if (simt::thread_index() == 0) {
      shared.at = kNumber;
      shared.is_lost = false;
    }
    for (u32 base = 0; base < chunk.segments; base += kWindow) {
      const u32 left = chunk.segments - base, n = left < kWindow ? left : kWindow;
      const u32 first = chunk.first_segment + base;
      for (u32 k = simt::thread_index(); k < n; k += kThreads) {
        shared.exits[k] = all.exits[first + k];
        shared.counts[k] = all.counts[first + k];
        shared.entries[k] = kNone;
      }
      simt::sync_cta();
      if (simt::thread_index() == 0) link(shared, chunk, base, n);
      simt::sync_cta();
      for (u32 k = simt::thread_index(); k < n; k += kThreads) {
        all.exits[first + k] = shared.exits[k];
        all.entries[first + k] = shared.entries[k];
      }
      simt::sync_cta();
    }
  }

 private:
  SIMT_DEVICE void link(Shared& shared, const RaggedChunk& chunk, u32 base, u32 n) const {
    u64 at = shared.at;
    while (!shared.is_lost && at < chunk.nbytes) {
      const u64 segment = (at - kNumber) / kSegmentBytes;
      if (segment >= base + n) break;
      const u32 k = static_cast<u32>(segment) - base;
      shared.entries[k] = static_cast<u32>(at);
      if (shared.counts[k] < kLeastGuessed)
        shared.exits[k] = follow(chunk, at, end_of(chunk, base + k)).exit;
      at = shared.exits[k];
      if (at != kNone) continue;
      shared.is_lost = true;
      all.wrong[simt::cta_index()] = base + k;
    }
    shared.at = at;
  }
};

// A thread a segment.
struct CountElements {
  static constexpr unsigned kThreads = kSegmentThreads;
  using Shared = simt::NoShared;
  Segments all;
  u32 segments;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 segment = simt::cta_index() * kThreads + simt::thread_index();
    if (segment >= segments) return;
    const u32 number = chunk_of(all, segment);
    const RaggedChunk& chunk = all.chunks[number];
    const u32 k = segment - chunk.first_segment, entry = all.entries[segment];
    Chain chain{};
    if (entry != kNone) {
      chain = follow(chunk, entry, end_of(chunk, k));
      if (chain.exit != all.exits[segment]) simt::atomic_min(all.wrong + number, k);
    }
    all.counts[segment] = chain.count;
  }
};

// A CTA a chunk: numbers of elements, and how far the chunk is right.
struct NumberElements {
  static constexpr unsigned kThreads = kSegmentThreads;
  struct Shared {
    SumShared<kThreads> sum;
    u32 right;
  };
  Segments all;
  RaggedProgress* progress;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const RaggedChunk& chunk = all.chunks[simt::cta_index()];
    const u32 wrong = all.wrong[simt::cta_index()];
    if (simt::thread_index() == 0) {
      shared.right = wrong < chunk.segments ? wrong : chunk.segments;
      // ParseRest says so: nothing is found that could be another fault.
      if (chunk.segments > 0 && load_word(chunk.source) != chunk.count) shared.right = 0;
    }
    simt::sync_cta();
    u64 before = 0;
    for (u32 base = 0; base < chunk.segments; base += kThreads) {
      const u32 k = base + simt::thread_index(), segment = chunk.first_segment + k;
      const bool is_one = k < chunk.segments;
      const u32 own = is_one ? all.counts[segment] : 0;
      u64 sum = 0;
      const u64 end = before + sum_in_cta(shared.sum, own, sum);
      if (is_one) all.firsts[segment] = static_cast<u32>(end - own);
      if (is_one && end > chunk.count) simt::atomic_min(&shared.right, k);
      before += sum;
    }
    simt::sync_cta();
    if (simt::thread_index() != 0) return;
    const u32 right = shared.right, segment = chunk.first_segment + right;
    all.wrong[simt::cta_index()] = right;
    progress[simt::cta_index()] = chunk.segments == 0 ? RaggedProgress{kNumber, 0}
                                  : right == chunk.segments
                                      ? RaggedProgress{chunk.nbytes, before}
                                      : RaggedProgress{all.entries[segment], all.firsts[segment]};
  }
};

// A thread a segment.
struct WriteElements {
  static constexpr unsigned kThreads = kSegmentThreads;
  using Shared = simt::NoShared;
  Segments all;
  u32 segments;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 segment = simt::cta_index() * kThreads + simt::thread_index();
    if (segment >= segments) return;
    const u32 number = chunk_of(all, segment);
    const RaggedChunk& chunk = all.chunks[number];
    const u32 k = segment - chunk.first_segment, count = all.counts[segment];
    if (k >= all.wrong[number]) return;
    u64 at = all.entries[segment];
    RaggedElement* const elements = chunk.elements + all.firsts[segment];
    for (u32 i = 0; i < count; ++i) {
      u32 size = 0;
      next_element(chunk, at, size);
      elements[i] = {chunk.source + at - size, size};
    }
  }
};

// A warp a segment.
struct CheckElements {
  static constexpr unsigned kThreads = kSegmentThreads;
  using Shared = simt::NoShared;
  Segments all;
  u32 segments;
  RaggedFormat format;
  u32* faults;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 segment = simt::cta_index() * (kThreads / simt::kWarp) + simt::warp_index();
    if (segment >= segments) return;
    const u32 number = chunk_of(all, segment);
    const RaggedChunk& chunk = all.chunks[number];
    if (segment - chunk.first_segment >= all.wrong[number]) return;
    const u32 count = all.counts[segment];
    const RaggedElement* const elements = chunk.elements + all.firsts[segment];
    bool bad = false;
    for (u32 first = 0; first < count; first += simt::kWarp) {
      const u32 i = first + simt::lane_index();
      const RaggedElement element = i < count ? elements[i] : RaggedElement{};
      bad = is_bad(format, element.data, static_cast<u32>(element.nbytes)) || bad;
    }
    if (bad) raise(faults, chunk.chunk, Fault::malformed);
  }
};

}  // namespace

void find_by_segments(Queue& queue,
                      std::span<const RaggedChunk> chunks,
                      const RaggedChunk* there,
                      const RaggedFormat& format,
                      u32* faults,
                      RaggedProgress* progress) {
  const u32 n = chunks.back().first_segment + chunks.back().segments;
  const u32 ctas = (n + kSegmentThreads - 1) / kSegmentThreads;
  const Scratch<u32> memory(queue, 4 * std::size_t{n} + chunks.size());
  u32* const words = memory.data();
  const Segments all{there,
                     static_cast<u32>(chunks.size()),
                     words,
                     words + n,
                     words + 2 * std::size_t{n},
                     words + 3 * std::size_t{n},
                     words + 4 * std::size_t{n}};
  queue.fill(all.wrong, 0xff, chunks.size() * sizeof(u32));
  simt::launch(queue, n, GuessExits{all});
  simt::launch(queue, chunks.size(), LinkSegments{all});
  simt::launch(queue, ctas, CountElements{all, n});
  simt::launch(queue, chunks.size(), NumberElements{all, progress});
  simt::launch(queue, ctas, WriteElements{all, n});
  if (format.utf8 || format.unit != 1)
    simt::launch(queue,
                 (n + kSegmentThreads / simt::kWarp - 1) / (kSegmentThreads / simt::kWarp),
                 CheckElements{all, n, format, faults});
}

}  // namespace headrace::SIMT_SPACE
