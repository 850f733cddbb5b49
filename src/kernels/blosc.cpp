// Chunks of blosc 1: their streams are decoded together, whatever chunk and block they are of, one
// batch an inner codec; then their shuffle is undone, from scratch memory to the target.

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "kernels/blosc_chunk.h"
#include "kernels/copy.h"
#include "kernels/fault_list.h"
#include "kernels/lz.h"
#include "kernels/shuffle.h"
#include "kernels/table.h"
#include "simt/recycling_vector.h"

namespace headrace::SIMT_SPACE {
namespace {

// Decoded bytes that wait for their shuffle to be undone.
constexpr u64 kSlab = u64{384} << 20;

struct Block {
  u32 frame;  // index into the batch
  u32 index;  // within the chunk
  u32 n_streams;
  u64 first_stream;
};

struct BlockSource {
  const u8* chunk;
  u32 chunk_nbytes;
  u32 index;
  u32 n_streams;
  u64 first_stream;
};

struct FindStreams {
  static constexpr unsigned kThreads = 64;
  using Shared = simt::NoShared;
  const BlockSource* blocks;
  u32 n_blocks;
  BloscStream* streams;
  u32* found;  // of each block

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 i = simt::block_index() * kThreads + simt::thread_index();
    if (i >= n_blocks) return;
    const BlockSource block = blocks[i];
    bool good = true;
    for (u32 k = 0; k < block.n_streams && good; ++k)
      good = find_blosc_stream(
          block.chunk, block.chunk_nbytes, block.index, k, streams + block.first_stream);
    found[i] = good;
  }
};

class BloscDecoder {
 public:
  BloscDecoder(Queue& queue, const DecodeBatch& batch)
      : queue_(queue),
        batch_(batch),
        headers_(batch.frames.size()),
        faults_(batch.frames.size(), Fault::none) {}

  void run() {
    read_headers();
    list_blocks();
    find_streams();
    std::size_t begin = 0;
    while (begin < blocks_.size()) {
      const std::size_t end = slab_end(begin);
      decode_blocks({blocks_.data() + begin, end - begin});
      begin = end;
    }
    copy_frames(queue_, copies_);
    std::vector<FrameFault> bad;
    for (std::size_t i = 0; i < faults_.size(); ++i)
      if (faults_[i] != Fault::none) bad.push_back({batch_.frames[i].chunk, faults_[i]});
    raise_faults(queue_, bad, batch_.faults);
  }

 private:
  struct Inner {
    RecyclingVector<Frame> frames;
    RecyclingVector<const u8*> host_sources;
  };

  bool on_host() const { return !batch_.host_sources.empty(); }

  void read_headers() {
    const auto frames = batch_.frames;
    std::vector<u8> bytes;
    if (!on_host()) {
      bytes.resize(kBloscHeader * frames.size());
      download_headers(bytes);
    }
    for (std::size_t i = 0; i < frames.size(); ++i)
      faults_[i] =
          read_blosc_header(on_host() ? batch_.host_sources[i] : bytes.data() + kBloscHeader * i,
                            frames[i],
                            headers_[i]);
  }

  void download_headers(std::vector<u8>& bytes) {
    const Scratch<u8> gathered(queue_, bytes.size());
    std::vector<Frame> heads;
    for (std::size_t i = 0; i < batch_.frames.size(); ++i) {
      const Frame& frame = batch_.frames[i];
      if (frame.source_nbytes >= kBloscHeader)
        heads.push_back({frame.source,
                         kBloscHeader,
                         gathered.data() + kBloscHeader * i,
                         kBloscHeader,
                         frame.chunk});
    }
    copy_frames(queue_, heads);
    queue_.download(bytes.data(), gathered.data(), bytes.size());
    queue_.synchronize();
  }

  void list_blocks() {
    for (u32 f = 0; f < headers_.size(); ++f) {
      const BloscHeader& header = headers_[f];
      const Frame& frame = batch_.frames[f];
      if (faults_[f] != Fault::none) continue;
      if (header.is_copy)
        copies_.push_back(
            {frame.source + kBloscHeader, header.nbytes, frame.target, header.nbytes, frame.chunk});
      for (u32 b = 0; b < header.n_blocks; ++b) {
        const u32 n = header.n_streams(b);
        blocks_.push_back({f, b, n, n_streams_});
        n_streams_ += n;
      }
    }
  }

  void find_streams() {
    streams_.resize(n_streams_);
    RecyclingVector<u32> found(blocks_.size(), 1);
    if (on_host())
      read_streams(found);
    else if (!blocks_.empty())
      download_streams(found);
    check_streams(found);
    std::erase_if(blocks_, [&](const Block& b) { return faults_[b.frame] != Fault::none; });
  }

  // The first stream of all blocks, then the second, and so on: one is known only by the one before
  // it, and waiting for memory block by block is most of the work.
  void read_streams(RecyclingVector<u32>& found) {
    each_plane(blocks_, [&](std::size_t i, u32 k) {
      if (!found[i]) return;
      const Block& block = blocks_[i];
      found[i] = find_blosc_stream(batch_.host_sources[block.frame],
                                   static_cast<u32>(batch_.frames[block.frame].source_nbytes),
                                   block.index,
                                   k,
                                   streams_.data() + block.first_stream);
    });
  }

  // Calls visit(i, k) for stream k of block i: the first streams of all blocks, then the second.
  template <class Visit>
  static void each_plane(std::span<const Block> blocks, Visit visit) {
    bool more = true;
    for (u32 k = 0; std::exchange(more, false); ++k) {
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (k >= blocks[i].n_streams) continue;
        visit(i, k);
        more = true;
      }
    }
  }

  // c-blosc takes streams that overlap. Some do by chance; thousands over the same bytes would make
  // hours of work of a small chunk.
  void check_streams(const RecyclingVector<u32>& found) {
    constexpr u64 kMostOverlap = 4;
    std::vector<u64> nbytes(batch_.frames.size());
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const Block& block = blocks_[i];
      if (!found[i]) {
        faults_[block.frame] = Fault::truncated;
        continue;
      }
      for (u32 j = 0; j < block.n_streams; ++j)
        nbytes[block.frame] += streams_[block.first_stream + j].nbytes;
    }
    for (std::size_t f = 0; f < nbytes.size(); ++f)
      if (nbytes[f] > kMostOverlap * batch_.frames[f].source_nbytes) faults_[f] = Fault::malformed;
  }

  void download_streams(RecyclingVector<u32>& found) {
    std::vector<BlockSource> sources;
    for (const Block& block : blocks_) {
      const Frame& frame = batch_.frames[block.frame];
      sources.push_back({frame.source,
                         static_cast<u32>(frame.source_nbytes),
                         block.index,
                         block.n_streams,
                         block.first_stream});
    }
    const auto on_device = Scratch<BlockSource>::of(queue_, sources.data(), sources.size());
    const Scratch<BloscStream> streams(queue_, streams_.size());
    const Scratch<u32> found_on_device(queue_, found.size());
    simt::launch(queue_,
                 (sources.size() + FindStreams::kThreads - 1) / FindStreams::kThreads,
                 FindStreams{on_device.data(),
                             static_cast<u32>(sources.size()),
                             streams.data(),
                             found_on_device.data()});
    queue_.download(streams_.data(), streams.data(), streams_.size() * sizeof(BloscStream));
    queue_.download(found.data(), found_on_device.data(), found.size() * sizeof(u32));
    queue_.synchronize();
  }

  // Bytes of scratch memory that a block takes.
  u64 waiting_nbytes(const Block& block) const {
    const BloscHeader& header = headers_[block.frame];
    const bool waits = header.filter_of(block.index) != BloscFilter::none;
    return waits ? (u64{header.block_nbytes(block.index)} + 15) / 16 * 16 : 0;
  }

  std::size_t slab_end(std::size_t begin) const {
    u64 nbytes = 0;
    std::size_t end = begin;
    do nbytes += waiting_nbytes(blocks_[end++]);
    while (end < blocks_.size() && nbytes + waiting_nbytes(blocks_[end]) <= kSlab);
    return end;
  }

  void decode_blocks(std::span<const Block> blocks) {
    u64 nbytes = 0;
    for (const Block& block : blocks) nbytes += waiting_nbytes(block);
    const Scratch<u8> waiting(queue_, nbytes + kSourcePadding);
    const std::size_t n_streams =
        blocks.back().first_stream + blocks.back().n_streams - blocks.front().first_stream;
    std::array<Inner, kBloscInners> inners;
    std::map<std::pair<BloscFilter, u32>, RecyclingVector<Frame>> shuffled;  // also by typesize
    RecyclingVector<Frame> stored;
    stored.reserve(n_streams);
    u8* next = waiting.data();
    RecyclingVector<u8*> targets;
    targets.reserve(blocks.size());
    for (const Block& block : blocks) {
      const BloscHeader& header = headers_[block.frame];
      const Frame& frame = batch_.frames[block.frame];
      const BloscFilter filter = header.filter_of(block.index);
      const u32 block_nbytes = header.block_nbytes(block.index);
      u8* target = frame.target + u64{block.index} * header.blocksize;
      if (filter != BloscFilter::none) {
        RecyclingVector<Frame>& alike = shuffled[{filter, header.typesize}];
        if (alike.empty()) alike.reserve(blocks.size());
        alike.push_back({next, block_nbytes, target, block_nbytes, frame.chunk});
        target = std::exchange(next, next + waiting_nbytes(block));
      }
      targets.push_back(target);
      Inner& inner = inners[static_cast<std::size_t>(header.inner)];
      inner.frames.reserve(n_streams);
      if (on_host()) inner.host_sources.reserve(n_streams);
    }
    // One plane after the other: streams of a plane are alike, and decoded beside each other.
    each_plane(blocks,
               [&](std::size_t i, u32 k) { add_stream(blocks[i], k, targets[i], inners, stored); });
    copy_frames(queue_, stored);
    for (std::size_t i = 0; i < inners.size(); ++i)
      if (!inners[i].frames.empty())
        decode_inner(static_cast<BloscInner>(i), inners[i], !shuffled.empty());
    for (const auto& [key, frames] : shuffled)
      (key.first == BloscFilter::shuffle ? unshuffle : bit_unshuffle)(queue_, {frames, key.second});
  }

  // Stream `k` of a block that is decoded to `target`.
  void add_stream(const Block& block,
                  u32 k,
                  u8* target,
                  std::array<Inner, kBloscInners>& inners,
                  RecyclingVector<Frame>& stored) const {
    const Frame& frame = batch_.frames[block.frame];
    const BloscHeader& header = headers_[block.frame];
    const u32 nbytes = header.block_nbytes(block.index) / block.n_streams;
    const BloscStream stream = streams_[block.first_stream + k];
    const Frame of_stream{
        frame.source + stream.offset, stream.nbytes, target + u64{k} * nbytes, nbytes, frame.chunk};
    if (stream.nbytes == nbytes) return stored.push_back(of_stream);
    Inner& inner = inners[static_cast<std::size_t>(header.inner)];
    inner.frames.push_back(of_stream);
    if (on_host()) inner.host_sources.push_back(batch_.host_sources[block.frame] + stream.offset);
  }

  void decode_inner(BloscInner codec, const Inner& inner, bool planes) {
    const DecodeBatch batch{inner.frames, inner.host_sources, batch_.faults, planes};
    switch (codec) {
      case BloscInner::blosclz:
        return blosclz_decode(queue_, batch);
      case BloscInner::lz4:
        return lz4_decode(queue_, batch);
      case BloscInner::snappy:
        return snappy_decode(queue_, batch);
      case BloscInner::zlib:
        return decode_or_refuse(kernels().zlib, batch);
      case BloscInner::zstd:
        return decode_or_refuse(kernels().zstd, batch);
    }
  }

  void decode_or_refuse(Decode decode, const DecodeBatch& batch) {
    if (decode) return decode(queue_, batch);
    std::vector<FrameFault> refused;
    for (const Frame& frame : batch.frames) refused.push_back({frame.chunk, Fault::unsupported});
    raise_faults(queue_, refused, batch_.faults);
  }

  Queue& queue_;
  const DecodeBatch& batch_;
  RecyclingVector<BloscHeader> headers_;
  std::vector<Fault> faults_;  // of each frame, found on the host
  RecyclingVector<Block> blocks_;
  RecyclingVector<BloscStream> streams_;
  std::vector<Frame> copies_;  // chunks that hold their bytes as they are
  u64 n_streams_ = 0;
};

}  // namespace

void blosc_decode(Queue& queue, const DecodeBatch& batch) { BloscDecoder(queue, batch).run(); }

}  // namespace headrace::SIMT_SPACE
