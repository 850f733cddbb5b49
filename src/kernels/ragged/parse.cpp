#include "kernels/ragged/parse.h"

#include "kernels/common/fault.h"
#include "kernels/ragged/segments.h"
#include "kernels/ragged/texts.h"
#include "simt/recycling_vector.h"

namespace headrace::SIMT_SPACE {
namespace {

constexpr u32 kSourceTile = 8192;  // bytes of a source in shared memory
constexpr u32 kMostFound = 1024;   // elements found there at a time

// Chunks of more bytes have segments.
constexpr u64 kLeastSegmented = u64{4} * kSegmentBytes;

// A CTA a chunk, for what the segments did not find. One thread goes from size to size in shared
// memory, then all take the elements that it has found.
struct ParseRest {
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
  const RaggedProgress* progress;  // null: nothing is found
  RaggedFormat format;
  u32* faults;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const RaggedChunk chunk = chunks[simt::cta_index()];
    if (const Fault fault = check_count(chunk); fault != Fault::none) return fail(chunk, fault);
    auto [at, done] = progress ? progress[simt::cta_index()] : RaggedProgress{kNumber, 0};
    while (done < chunk.count) {
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

  SIMT_DEVICE void take(const Shared& shared, const RaggedChunk& chunk, u64 done, u32 found) const {
    bool bad = false;
    for (u32 first = simt::warp_index() * simt::kWarp; first < found; first += kThreads) {
      const u32 i = first + simt::lane_index();
      const bool is_one = i < found;
      const u8* const data = chunk.source + (is_one ? shared.begins[i] : 0);
      const u32 size = is_one ? shared.sizes[i] : 0;
      if (is_one) chunk.elements[done + i] = {data, size};
      bad = is_bad(format, data, size) || bad;
    }
    if (bad) raise(faults, chunk.chunk, Fault::malformed);
  }
};

}  // namespace

void parse_ragged(Queue& queue, const DecodeBatch& batch, const RaggedFormat& format) {
  if (batch.frames.empty()) return;
  RecyclingVector<RaggedChunk> chunks;
  u32 segments = 0;
  for (const Frame& frame : batch.frames) {
    const u64 nbytes = frame.source_nbytes;
    // Segments have places of 32 bits.
    const bool is_large = nbytes > kLeastSegmented && nbytes >> 32 == 0;
    const u64 own = is_large ? (nbytes - kNumber + kSegmentBytes - 1) / kSegmentBytes : 0;
    chunks.push_back({frame.source,
                      nbytes,
                      reinterpret_cast<RaggedElement*>(frame.target),
                      frame.target_nbytes / sizeof(RaggedElement),
                      frame.chunk,
                      segments,
                      static_cast<u32>(own)});
    segments += static_cast<u32>(own);
  }
  const auto there = Scratch<RaggedChunk>::of(queue, chunks.data(), chunks.size());
  Scratch<RaggedProgress> progress;
  if (segments > 0) {
    progress = Scratch<RaggedProgress>(queue, chunks.size());
    find_by_segments(queue, chunks, there.data(), format, batch.faults, progress.data());
  }
  simt::launch(
      queue, chunks.size(), ParseRest{there.data(), progress.data(), format, batch.faults});
}

}  // namespace headrace::SIMT_SPACE
