#include "kernels/zstd/stages.h"

namespace headrace::SIMT_SPACE::zstd {
namespace {

// A warp a source goes through its blocks, 32 at a time: running sums of sizes, and the functions
// of repeat offsets composed. They begin with 1, 4 and 8 in each frame and go on from block to
// block (https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1.5), which would make blocks serial.
struct PlaceBlocks {
  static constexpr unsigned kThreads = 128;
  using Shared = simt::NoShared;
  const Source* sources;
  const Frame* frames;
  const Block* blocks;
  const BlockResult* results;
  Record* records;
  PlacedBlock* placed;
  u32 count;
  u32* faults;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 index = simt::cta_index() * (kThreads / simt::kWarp) + simt::warp_index();
    if (index >= count) return;
    const Source& source = sources[index];
    const u32 chunk = source.chunk, lane = simt::lane_index();
    if (source.fault != Fault::none) {
      if (lane == 0) raise(faults, chunk, source.fault);
      return;
    }
    if (simt::shuffle(simt::load_shared_cache(faults + chunk), 0) != 0) return;
    Fault fault = Fault::none;
    State state;
    for (u32 b = source.first_block; b < source.end_block; b += simt::kWarp) {
      const Fault found = place(b + lane, b + lane < source.end_block, state);
      if (fault == Fault::none) fault = found;
    }
    if (fault != Fault::none) raise(faults, chunk, fault);
    if (lane == 0 && state.at != source.target_nbytes) raise(faults, chunk, Fault::wrong_size);
  }

 private:
  struct State {
    u64 at = 0;           // in the target
    u64 frame_start = 0;  // in the target
    RepeatOffsets repeats{};
  };
  SIMT_DEVICE static RepeatOffsets initial() { return {{1, 4, 8}}; }

  // Blocks that have no sequences to decode.
  SIMT_DEVICE BlockResult whole(const Block& block) const {
    Record* const to = records + block.records;
    u32 last = 0;
    if (block.record_count == 2) to[last++] = make_record(1, 1, 1);
    to[last] = make_record(block.nbytes, block.literal_count, 1);
    return {block.nbytes, unchanged(), 0, {}, {}};
  }

  SIMT_DEVICE Fault place(u32 index, bool on, State& state) const {
    const u32 lane = simt::lane_index();
    BlockResult result{0, unchanged(), 0, {}, {}};
    Frame frame{};
    if (on) {
      const Block& block = blocks[index];
      frame = frames[block.frame];
      result = block.sequence_count ? results[index] : whole(block);
    }
    const bool first = on && frame.first_block == index;

    RepeatOffsets steps = result.repeats;
    if (first) steps = compose(steps, initial());
    for (unsigned d = 1; d < simt::kWarp; d <<= 1) {
      const RepeatOffsets before = from_lane_below(steps, d);
      if (lane >= d) steps = compose(steps, before);
    }
    steps = compose(steps, state.repeats);
    RepeatOffsets repeats = from_lane_below(steps, 1);
    if (lane == 0) repeats = state.repeats;
    if (first) repeats = initial();
    SIMT_UNROLL
    for (u32& slot : steps.slot) slot = simt::shuffle(slot, simt::kWarp - 1);
    state.repeats = steps;

    const u64 end = state.at + simt::inclusive_sum(u64{result.nbytes});
    const u64 start = end - result.nbytes;
    state.at = simt::shuffle(end, simt::kWarp - 1);
    u64 frame_start = first ? start : state.frame_start;
    for (unsigned d = 1; d < simt::kWarp; d <<= 1) {
      const u64 before = simt::shuffle_up(frame_start, d);
      if (lane >= d && before > frame_start) frame_start = before;
    }
    state.frame_start = simt::shuffle(frame_start, simt::kWarp - 1);
    if (!on) return Fault::none;

    placed[index] = {static_cast<u32>(start), repeats};
    return sound(result, repeats, start - frame_start) &&
                   (frame.end_block != index + 1 || frame.content_nbytes == kUnknown ||
                    frame.content_nbytes == end - frame_start)
               ? Fault::none
               : Fault::malformed;
  }

  SIMT_DEVICE static RepeatOffsets from_lane_below(const RepeatOffsets& offsets, unsigned delta) {
    RepeatOffsets below;
    SIMT_UNROLL
    for (u32 slot = 0; slot < 3; ++slot)
      below.slot[slot] = simt::shuffle_up(offsets.slot[slot], delta);
    return below;
  }

  // All matches stay within the frame.
  SIMT_DEVICE static bool sound(const BlockResult& result,
                                const RepeatOffsets& repeats,
                                u64 before) {
    bool good = result.reach <= before;
    SIMT_UNROLL
    for (u32 slot = 0; slot < 3; ++slot) {
      const u32 offset = repeats.slot[slot];
      if (result.least[slot])
        good &= offset >= result.least[slot] && offset <= result.most[slot] + before;
    }
    return good;
  }
};

}  // namespace

void place_blocks(Queue& queue, const Plan& plan, const Stages& stages, u32* faults) {
  constexpr std::size_t kSources = PlaceBlocks::kThreads / simt::kWarp;
  simt::launch(queue,
               (plan.sources.size() + kSources - 1) / kSources,
               PlaceBlocks{plan.device_sources,
                           plan.frames,
                           plan.blocks,
                           stages.results.data(),
                           stages.records.data(),
                           stages.placed.data(),
                           static_cast<u32>(plan.sources.size()),
                           faults});
}

}  // namespace headrace::SIMT_SPACE::zstd
