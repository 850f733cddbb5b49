// Standard frames (RFC 8878) of blocks that know nothing of each other, so that all are encoded at
// once:
//
// 1. A warp a segment finds matches (match.cpp).
// 2. Literals are put in a row and symbols are counted (split.cpp).
// 3. Each block gets its own Huffman and FSE tables and is coded, or stays raw where that gains
//    nothing (block.cpp).
// 4. A scan over each frame's blocks finds their places.
// 5. Blocks are copied there, between the frame's header and its checksum.
//
// Matches do not leave their block, so frames larger than a block say that a window of one block is
// enough. Nor could they: a block whose literals have one value is written as that value.

#include "kernels/zstd/encode/frames.h"

#include <algorithm>
#include <string>

#include "headrace/error.h"
#include "kernels/checksum/xxh64.h"
#include "kernels/common/access.h"
#include "kernels/common/fault.h"
#include "kernels/tuning.h"
#include "kernels/zstd/encode/stages.h"

namespace headrace::SIMT_SPACE {
namespace zstd {
namespace {

constexpr u32 kMinBlock = 1024;
constexpr u32 kBlockHeader = 3, kChecksum = 4;
constexpr u32 kMaxFrameHeader = 10;

struct FrameHeader {
  u8 bytes[kMaxFrameHeader];
  u32 nbytes = 0;

  SIMT_DEVICE void add(u64 value, u32 n) {
    for (u32 i = 0; i < n; ++i) bytes[nbytes++] = static_cast<u8>(value >> 8 * i);
  }
};

// Of a frame with its content's size.
SIMT_DEVICE FrameHeader frame_header(u64 content, bool checksum) {
  constexpr u32 kMagic = 0xfd2fb528, kSingleSegment = 1 << 5, kHasChecksum = 1 << 2;
  constexpr u32 kWindowOfBlock = 7 << 3;  // 2^(10 + 7) bytes
  const bool single = content <= kMaxEncodedBlock;
  const u32 size_code = content < 256 ? 0 : content < 65536 + 256 ? 1 : 2;
  FrameHeader header;
  header.add(kMagic, 4);
  header.add(size_code << 6 | (single ? kSingleSegment : 0) | (checksum ? kHasChecksum : 0), 1);
  if (!single) header.add(kWindowOfBlock, 1);
  header.add(size_code == 1 ? content - 256 : content, 1u << size_code);
  return header;
}

// A warp a frame.
struct PlaceEncoded {
  static constexpr unsigned kThreads = simt::kWarp;
  using Shared = simt::NoShared;
  FrameJobs jobs;
  u64 blocks;
  bool checksum;
  const EncodedBlock* results;
  BlockPlace* places;
  u32* faults;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 index = simt::cta_index(), lane = simt::lane_index();
    const FrameJob& job = jobs.entries[index];
    const u64 end = index + 1 < jobs.count ? (&job)[1].first : blocks;
    u64 at = frame_header(job.nbytes, checksum).nbytes;
    for (u64 first = job.first; first < end; first += simt::kWarp) {
      const u64 block = first + lane;
      const u64 nbytes = block < end ? kBlockHeader + results[block].nbytes : 0;
      const u64 through = simt::inclusive_sum(nbytes);
      if (block < end) places[block].at = at + through - nbytes;
      at += simt::shuffle(through, simt::kWarp - 1);
    }
    if (checksum) at += kChecksum;
    const bool fits = at <= job.capacity;
    for (u64 block = job.first + lane; block < end; block += simt::kWarp) places[block].fits = fits;
    if (lane != 0) return;
    *job.encoded_nbytes = fits ? at : 0;
    if (!fits) raise(faults, job.chunk, Fault::wrong_size);
  }
};

struct AssembleFrames {
  static constexpr unsigned kThreads = 256;
  using Shared = simt::NoShared;
  FrameJobs jobs;
  u32 block_nbytes;
  bool checksum;
  const EncodedBlock* results;
  const BlockPlace* places;
  const u8* encoded;

  SIMT_DEVICE void operator()(Shared&) const {
    const u64 block = simt::cta_index();
    const FrameJob& job = jobs.find(block);
    const BlockInput input = block_input(job, block, block_nbytes);
    const EncodedBlock result = results[block];
    if (!places[block].fits) return;
    u8* const out = job.target + places[block].at;
    const u64 end = (block - job.first) * block_nbytes + input.nbytes;
    const u8* const from = result.kind == BlockKind::raw
                               ? input.source
                               : encoded + block * (u64{block_nbytes} + kEncodedSlack);
    copy_bytes<kThreads>(out + kBlockHeader, from, result.nbytes);
    if (simt::thread_index() != 0) return;
    const u32 size = result.kind == BlockKind::constant ? input.nbytes : result.nbytes;
    const u32 header = (end == job.nbytes) | static_cast<u32>(result.kind) << 1 | size << 3;
    for (u32 i = 0; i < kBlockHeader; ++i) out[i] = static_cast<u8>(header >> 8 * i);
    if (block != job.first) return;
    const FrameHeader frame = frame_header(job.nbytes, checksum);
    for (u32 i = 0; i < frame.nbytes; ++i) job.target[i] = frame.bytes[i];
  }
};

// A warp a frame, behind its last block.
struct PutChecksums {
  static constexpr unsigned kThreads = simt::kWarp;
  using Shared = simt::NoShared;
  FrameJobs jobs;

  SIMT_DEVICE void operator()(Shared&) const {
    const FrameJob& job = jobs.entries[simt::cta_index()];
    const u64 nbytes = *job.encoded_nbytes;
    if (nbytes == 0) return;
    const u64 hash = Xxh64::hash(job.source, static_cast<u32>(job.nbytes));
    if (simt::lane_index() < kChecksum)
      job.target[nbytes - kChecksum + simt::lane_index()] =
          static_cast<u8>(hash >> 8 * simt::lane_index());
  }
};

// The entropy stages take a CTA a block, of which a multiprocessor has room for eight. A few large
// ones leave it idle, and small ones describe more tables: those of 32 KiB take 1 % more than those
// of 128 for packed float32, and as much for the others.
constexpr u32 kFewBlocksNbytes = 32 << 10;
constexpr u64 kBlocksAProcessor = 4;
u32 choose_block_nbytes(std::span<const Frame> frames, u32 most, u64 processors) {
  u64 nbytes = 0;
  for (const Frame& frame : frames) nbytes += frame.source_nbytes;
  u32 block = most;
  while (block / 2 >= kFewBlocksNbytes && nbytes / block < kBlocksAProcessor * processors)
    block /= 2;
  return block;
}

void encode_slab(Queue& queue,
                 const EncodeBatch& batch,
                 const ZstdFormat& format,
                 std::span<const Frame> frames) {
  const u32 block_nbytes = choose_block_nbytes(frames, format.block_nbytes, queue.tuned_for());
  WorkList<FrameJob> list;
  for (const Frame& frame : frames)
    list.add(job_of(batch, frame),
             frame.source_nbytes ? (frame.source_nbytes - 1) / block_nbytes + 1 : 1);
  const auto entries = list.upload(queue);
  const FrameJobs jobs = work_of(entries);
  const u64 blocks = list.items();
  const u32 segment = choose_segment_nbytes(block_nbytes, blocks, sequences_at_once(queue));
  const EncodeStages stages(queue, blocks, block_nbytes, segment);
  const Scratch<BlockPlace> places(queue, blocks);
  find_sequences(queue, jobs, blocks, stages);
  split_blocks(queue, jobs, blocks, stages);
  encode_blocks(queue, jobs, blocks, stages);
  simt::launch(
      queue,
      jobs.count,
      PlaceEncoded{
          jobs, blocks, format.checksum, stages.results.data(), places.data(), batch.faults});
  simt::launch(queue,
               blocks,
               AssembleFrames{jobs,
                              block_nbytes,
                              format.checksum,
                              stages.results.data(),
                              places.data(),
                              stages.encoded.data()});
  if (format.checksum) simt::launch(queue, jobs.count, PutChecksums{jobs});
}

}  // namespace

EncodeStages::EncodeStages(Queue& queue, u64 blocks, u32 block_size, u32 segment_size)
    : block_nbytes(block_size), segment_nbytes(segment_size) {
  const SequencePool pool{nullptr, nullptr, block_nbytes, segment_nbytes};
  const u64 segments = blocks * pool.segments_per_block();
  sequences = Scratch<u64>(queue, segments * pool.room());
  sequence_counts = Scratch<u32>(queue, segments);
  literals = Scratch<u8>(queue, (blocks * block_nbytes + 15) / 16 * 16);  // read by quads
  statistics = Scratch<BlockStatistics>(queue, blocks);
  encoded = Scratch<u8>(queue, blocks * (block_nbytes + kEncodedSlack));
  results = Scratch<EncodedBlock>(queue, blocks);
}

SequencePool pool_of(const EncodeStages& stages) {
  return {stages.sequences.data(),
          stages.sequence_counts.data(),
          stages.block_nbytes,
          stages.segment_nbytes};
}

}  // namespace zstd

void zstd_encode(Queue& queue, const EncodeBatch& batch, const ZstdFormat& format) {
  if (format.block_nbytes < zstd::kMinBlock || format.block_nbytes > zstd::kMaxEncodedBlock)
    throw Error(ErrorCode::invalid_argument,
                "zstd: blocks of " + std::to_string(format.block_nbytes) + " bytes; from " +
                    std::to_string(zstd::kMinBlock) + " to " +
                    std::to_string(zstd::kMaxEncodedBlock));
  u64 largest = zstd::kMinBlock;
  for (const Frame& frame : batch.frames) largest = std::max(largest, frame.source_nbytes);
  if (largest >> 32)
    throw Error(ErrorCode::unsupported,
                "zstd: a frame of " + std::to_string(largest) + " bytes, fewer than 4 GiB");
  ZstdFormat used = format;  // scratch is by blocks, however small the frames are
  used.block_nbytes = static_cast<u32>(std::min<u64>(format.block_nbytes, largest));
  each_slab(
      batch.frames,
      tuning_of(queue).zstd.encode_slab_nbytes,
      [&](const Frame& frame) { return std::max<u64>(frame.source_nbytes, used.block_nbytes); },
      [&](std::span<const Frame> slab) { zstd::encode_slab(queue, batch, used, slab); });
}

}  // namespace headrace::SIMT_SPACE
