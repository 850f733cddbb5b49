// Chunks of blosc 1: blocks are shuffled to scratch memory, their streams are encoded together,
// whatever chunk they are of, and copied to where the sizes of those before them tell.

#include "kernels/blosc/encode.h"

#include <algorithm>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "kernels/blosc/chunk.h"
#include "kernels/common/access.h"
#include "kernels/common/encode_jobs.h"
#include "kernels/common/fault.h"
#include "kernels/filters/shuffle.h"
#include "kernels/lz/lz4_encode.h"
#include "kernels/tuning.h"
#include "kernels/zstd/encode/frames.h"

namespace headrace::SIMT_SPACE {
namespace {

constexpr u64 kMaxInput = 0x7fffffff - kBloscHeader;
constexpr u32 kMaxTypesize = 255;

// Its items are streams.
struct ChunkJob : EncodeJob {
  BloscHeader header;
};

struct StreamJob {
  const u8* bytes;    // shuffled
  const u8* encoded;  // into fewer bytes, where it could be
  u32 at;             // in the chunk, decoded
  u32 nbytes;
  u32 block;
  bool begins_block;
};

// How a chunk turned out.
struct ChunkPlace {
  bool fits, is_copy;
};

SIMT_DEVICE void put_le_32(u8* p, u32 value) {
  for (u32 i = 0; i < 4; ++i) p[i] = static_cast<u8>(value >> 8 * i);
}

// A warp a chunk.
struct PlaceStreams {
  static constexpr unsigned kThreads = simt::kWarp;
  using Shared = simt::NoShared;
  Work<ChunkJob> jobs;
  const StreamJob* streams;
  u64 n_streams;
  const u64* sizes;  // 0: did not become smaller
  u32* places;       // of streams, in their chunks
  ChunkPlace* chunks;
  u32* faults;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 index = simt::cta_index(), lane = simt::lane_index();
    const ChunkJob& job = jobs.entries[index];
    const BloscHeader& header = job.header;
    const u64 end = index + 1 < jobs.count ? (&job)[1].first : n_streams;
    const u64 most = kBloscHeader + u64{header.nbytes};
    u64 at = kBloscHeader + 4 * u64{header.n_blocks};
    for (u64 first = job.first; first < end; first += simt::kWarp) {
      const u64 i = first + lane;
      const u64 nbytes = i < end ? 4 + (sizes[i] ? sizes[i] : streams[i].nbytes) : 0;
      const u64 through = simt::inclusive_sum(nbytes);
      if (i < end) places[i] = static_cast<u32>(at + through - nbytes);
      at += simt::shuffle(through, simt::kWarp - 1);
    }
    const bool is_copy = header.is_copy || at >= most;
    if (is_copy) at = most;
    if (lane != 0) return;
    const bool fits = at <= job.capacity;
    chunks[index] = {fits, is_copy};
    *job.encoded_nbytes = fits ? at : 0;
    if (!fits) return raise(faults, job.chunk, Fault::wrong_size);
    BloscHeader put = header;
    put.is_copy = is_copy;
    put_blosc_header(put, static_cast<u32>(at), job.target);
  }
};

struct CopyStreams {
  static constexpr unsigned kThreads = 256;
  using Shared = simt::NoShared;
  Work<ChunkJob> jobs;
  const StreamJob* streams;
  const u64* sizes;
  const u32* places;
  const ChunkPlace* chunks;

  SIMT_DEVICE void operator()(Shared&) const {
    const u64 index = simt::cta_index();
    const ChunkJob& job = jobs.find(index);
    const ChunkPlace place = chunks[&job - jobs.entries];
    const StreamJob& stream = streams[index];
    if (!place.fits) return;
    if (place.is_copy)
      return copy_bytes<kThreads>(
          job.target + kBloscHeader + stream.at, job.source + stream.at, stream.nbytes);
    const u64 size = sizes[index];
    const u32 nbytes = size ? static_cast<u32>(size) : stream.nbytes;
    u8* const out = job.target + places[index];
    copy_bytes<kThreads>(out + 4, size ? stream.encoded : stream.bytes, nbytes);
    if (simt::thread_index() != 0) return;
    put_le_32(out, nbytes);
    if (stream.begins_block) put_le_32(job.target + kBloscHeader + 4 * stream.block, places[index]);
  }
};

class SlabEncoder {
 public:
  SlabEncoder(Queue& queue,
              const EncodeBatch& batch,
              const BloscFormat& format,
              std::span<const Frame> frames)
      : queue_(queue), batch_(batch), format_(format) {
    u64 nbytes = 0;
    for (const Frame& frame : frames) {
      headers_.push_back(lay_out_blosc(static_cast<u32>(frame.source_nbytes), format));
      if (!headers_.back().is_copy)
        nbytes += u64{headers_.back().n_blocks} * aligned(headers_.back().blocksize);
    }
    shuffled_ = Scratch<u8>(queue, nbytes + kSourcePadding);
    encoded_ = Scratch<u8>(queue, nbytes);
    for (std::size_t i = 0; i < frames.size(); ++i) add_chunk(frames[i], headers_[i]);
  }

  void run() {
    const Scratch<u64> sizes(queue_, streams_.size());
    queue_.fill(sizes.data(), 0, sizes.size() * sizeof(u64));
    if (!blocks_.empty())
      (format_.filter == BloscFormat::Filter::shuffle ? shuffle : bit_shuffle)(
          queue_, {blocks_, format_.typesize});
    if (!frames_.empty()) encode_streams(sizes.data());

    const auto entries = jobs_.upload(queue_);
    const auto jobs = work_of(entries);
    const auto streams = Scratch<StreamJob>::of(queue_, streams_.data(), streams_.size());
    const Scratch<u32> places(queue_, streams_.size());
    const Scratch<ChunkPlace> chunks(queue_, entries.size());
    simt::launch(queue_,
                 entries.size(),
                 PlaceStreams{jobs,
                              streams.data(),
                              streams_.size(),
                              sizes.data(),
                              places.data(),
                              chunks.data(),
                              batch_.faults});
    simt::launch(queue_,
                 streams_.size(),
                 CopyStreams{jobs, streams.data(), sizes.data(), places.data(), chunks.data()});
  }

 private:
  static u64 aligned(u64 nbytes) { return (nbytes + 15) / 16 * 16; }

  void add_chunk(const Frame& frame, const BloscHeader& header) {
    const std::size_t before = streams_.size();
    for (u32 block = 0; block < header.n_blocks; ++block) add_block(frame, header, block);
    jobs_.add({job_of(batch_, frame), header}, streams_.size() - before);
  }

  void add_block(const Frame& frame, const BloscHeader& header, u32 block) {
    const u32 nbytes = header.block_nbytes(block), at = block * header.blocksize;
    const u8* bytes = frame.source + at;
    if (header.is_copy) {
      streams_.push_back({bytes, nullptr, at, nbytes, block, true});
      return;
    }
    if (header.filter_of(block) != BloscFilter::none) {
      u8* const planes = shuffled_.data() + used_;
      blocks_.push_back({bytes, nbytes, planes, nbytes, frame.chunk});
      bytes = planes;
    }
    const u32 n = header.n_streams(block), each = nbytes / n;
    for (u32 i = 0; i < n; ++i) {
      u8* const encoded = encoded_.data() + used_ + i * each;
      // What does not become smaller stays as it is.
      frames_.push_back(
          {bytes + i * each, each, encoded, each - 1, static_cast<u32>(streams_.size())});
      streams_.push_back({bytes + i * each, encoded, at + i * each, each, block, i == 0});
    }
    used_ += aligned(header.blocksize);
  }

  void encode_streams(u64* sizes) {
    const Scratch<u32> not_smaller(queue_, streams_.size());
    queue_.fill(not_smaller.data(), 0, streams_.size() * sizeof(u32));
    const EncodeBatch batch{frames_, sizes, not_smaller.data()};
    if (format_.inner == BloscFormat::Inner::zstd)
      zstd_encode(queue_, batch, {});
    else
      lz4_encode(queue_, batch);
  }

  Queue& queue_;
  const EncodeBatch& batch_;
  const BloscFormat& format_;
  std::vector<BloscHeader> headers_;
  WorkList<ChunkJob> jobs_;
  std::vector<StreamJob> streams_;
  std::vector<Frame> blocks_;  // to shuffle
  std::vector<Frame> frames_;  // streams to encode
  Scratch<u8> shuffled_, encoded_;
  u64 used_ = 0;  // of both
};

void check(const EncodeBatch& batch, const BloscFormat& format) {
  if (format.typesize == 0 || format.typesize > kMaxTypesize || format.clevel > 9)
    throw Error(ErrorCode::invalid_argument,
                "blosc: typesize " + std::to_string(format.typesize) + ", clevel " +
                    std::to_string(format.clevel));
  for (const Frame& frame : batch.frames)
    if (frame.source_nbytes > kMaxInput)
      throw Error(ErrorCode::unsupported,
                  "blosc: a chunk of " + std::to_string(frame.source_nbytes) + " bytes, at most " +
                      std::to_string(kMaxInput));
}

}  // namespace

void blosc_encode(Queue& queue, const EncodeBatch& batch, const BloscFormat& format) {
  check(batch, format);
  each_slab(
      batch.frames,
      tuning_of(queue).blosc.encode_slab_nbytes,
      [](const Frame& frame) { return frame.source_nbytes; },
      [&](std::span<const Frame> slab) { SlabEncoder(queue, batch, format, slab).run(); });
}

}  // namespace headrace::SIMT_SPACE
