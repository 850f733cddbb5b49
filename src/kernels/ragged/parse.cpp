#include "kernels/ragged/parse.h"

#include "kernels/common/access.h"
#include "kernels/common/fault.h"
#include "kernels/ragged/utf8.h"
#include "simt/recycling_vector.h"

namespace headrace::SIMT_SPACE {
namespace {

constexpr u32 kSourceTile = 8192;  // bytes of a source in shared memory
constexpr u32 kMostFound = 1024;   // elements found there at a time
constexpr u32 kNumber = 4;         // bytes of a count or a size

struct RaggedChunk {
  const u8* source;
  u64 nbytes;
  RaggedElement* elements;
  u64 count;
  u32 chunk;
};

// A CTA a chunk. Where an element begins is known when the size of the one before it is: one thread
// goes from size to size in shared memory, then all take the elements that it has found.
struct ParseRagged {
  static constexpr unsigned kThreads = 128;
  struct Shared {
    alignas(16) u8 tile[kSourceTile + 16];
    u64 begins[kMostFound];
    u32 sizes[kMostFound];
    u64 at;     // the next size
    u32 found;  // elements
    Fault fault;
  };
  const RaggedChunk* chunks;
  RaggedFormat format;
  u32* faults;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const RaggedChunk chunk = chunks[simt::cta_index()];
    u64 at = kNumber;
    if (const Fault fault = check_count(chunk); fault != Fault::none) return fail(chunk, fault);
    for (u64 done = 0; done < chunk.count;) {
      const u64 tile = load_tile(shared, chunk, at);
      simt::sync_cta();
      if (simt::thread_index() == 0) find(shared, chunk, tile, at, chunk.count - done);
      simt::sync_cta();
      if (shared.fault != Fault::none) return fail(chunk, shared.fault);
      at = shared.at;
      const u32 found = shared.found;
      take(shared, chunk, done, found);
      done += found;
    }
    if (at != chunk.nbytes) fail(chunk, Fault::malformed);
  }

 private:
  SIMT_DEVICE static Fault check_count(const RaggedChunk& chunk) {
    if (chunk.nbytes < kNumber) return Fault::truncated;
    return load_word(chunk.source) == chunk.count ? Fault::none : Fault::wrong_size;
  }

  SIMT_DEVICE void fail(const RaggedChunk& chunk, Fault fault) const {
    if (simt::thread_index() == 0) raise(faults, chunk.chunk, fault);
  }

  // From the last aligned quad before `at` on. Gives where in the source that is, which may be
  // before its beginning: less than 0, modulo 2^64.
  SIMT_DEVICE static u64 load_tile(Shared& shared, const RaggedChunk& chunk, u64 at) {
    const u8* const begin = chunk.source + at - misalignment(chunk.source + at, 16);
    const u8* const end = chunk.source + chunk.nbytes;
    for (u32 i = 16 * simt::thread_index(); i < kSourceTile && begin + i < end; i += 16 * kThreads)
      *reinterpret_cast<simt::Quad*>(shared.tile + i) =
          simt::load_constant(reinterpret_cast<const simt::Quad*>(begin + i));
    return static_cast<u64>(begin - chunk.source);
  }

  // As far as the sizes lie in the tile.
  SIMT_DEVICE static void find(
      Shared& shared, const RaggedChunk& chunk, u64 tile, u64 at, u64 wanted) {
    const u32* const words = reinterpret_cast<const u32*>(shared.tile);
    const u32 most = wanted < kMostFound ? static_cast<u32>(wanted) : kMostFound;
    u32 found = 0;
    shared.fault = Fault::none;
    while (found < most && at - tile + kNumber <= kSourceTile) {
      const u32 in_tile = static_cast<u32>(at - tile);
      if (chunk.nbytes - at < kNumber) {
        shared.fault = Fault::truncated;
        break;
      }
      const u32 word = in_tile / 4;
      const u32 size = simt::funnel_right(words[word], words[word + 1], 8 * (in_tile % 4));
      at += kNumber;
      if (chunk.nbytes - at < size) {
        shared.fault = Fault::truncated;
        break;
      }
      shared.begins[found] = at;
      shared.sizes[found] = size;
      ++found;
      at += size;
    }
    shared.at = at;
    shared.found = found;
  }

  // Whole warps: texts of more than a slice are checked by all lanes of one.
  SIMT_DEVICE void take(const Shared& shared, const RaggedChunk& chunk, u64 done, u32 found) const {
    bool bad = false;
    for (u32 first = simt::warp_index() * simt::kWarp; first < found; first += kThreads) {
      const u32 i = first + simt::lane_index();
      const bool is_one = i < found;
      const u64 begin = is_one ? shared.begins[i] : 0;
      const u32 size = is_one ? shared.sizes[i] : 0;
      if (is_one) chunk.elements[done + i] = {chunk.source + begin, size};
      bad = bad || size % format.unit != 0;
      if (!format.utf8) continue;
      if (0 < size && size <= kUtf8Slice)
        bad = bad || !is_utf8_slice(chunk.source + begin, size, 0);
      for (u32 longs = simt::ballot(size > kUtf8Slice); longs != 0; longs &= longs - 1) {
        const unsigned lane = simt::trailing_zeros(longs);
        const u8* const text = chunk.source + simt::shuffle(begin, lane);
        const u64 nbytes = simt::shuffle(size, lane);
        for (u64 from = u64{simt::lane_index()} * kUtf8Slice; from < nbytes;
             from += u64{simt::kWarp} * kUtf8Slice)
          bad = bad || !is_utf8_slice(text, nbytes, from);
      }
    }
    if (bad) raise(faults, chunk.chunk, Fault::malformed);
  }
};

}  // namespace

void parse_ragged(Queue& queue, const DecodeBatch& batch, const RaggedFormat& format) {
  if (batch.frames.empty()) return;
  RecyclingVector<RaggedChunk> chunks;
  for (const Frame& frame : batch.frames)
    chunks.push_back({frame.source,
                      frame.source_nbytes,
                      reinterpret_cast<RaggedElement*>(frame.target),
                      frame.target_nbytes / sizeof(RaggedElement),
                      frame.chunk});
  const auto there = Scratch<RaggedChunk>::of(queue, chunks.data(), chunks.size());
  simt::launch(queue, chunks.size(), ParseRagged{there.data(), format, batch.faults});
}

}  // namespace headrace::SIMT_SPACE
