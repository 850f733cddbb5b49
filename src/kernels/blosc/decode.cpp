// Chunks of blosc 1: their streams are decoded together, whatever chunk and block they are of, one
// batch an inner codec; then their shuffle is undone, from scratch memory to the target.

#include "kernels/blosc/decode.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "kernels/blosc/chunk.h"
#include "kernels/common/fault_list.h"
#include "kernels/deflate/decode.h"
#include "kernels/filters/shuffle.h"
#include "kernels/lz/dialects.h"
#include "kernels/place/copy.h"
#include "kernels/tuning.h"
#include "kernels/zstd/decode.h"
#include "simt/ranges.h"
#include "simt/recycling_vector.h"

namespace headrace::SIMT_SPACE {
namespace {

struct Block {
  u32 frame;  // index into the batch
  u32 index;  // within the chunk
  u32 n_streams;
  u64 first_stream;
  u64 waiting;  // bytes of earlier blocks that wait for their shuffle to be undone
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
    const u32 i = simt::cta_index() * kThreads + simt::thread_index();
    if (i >= n_blocks) return;
    const BlockSource block = blocks[i];
    bool good = true;
    for (u32 k = 0; k < block.n_streams && good; ++k)
      good = find_blosc_stream(
          block.chunk, block.chunk_nbytes, block.index, k, streams + block.first_stream);
    found[i] = good;
  }
};

// c-blosc takes streams that overlap. Some do by chance; thousands over the same bytes would make
// hours of work of a small chunk.
constexpr u64 kMostOverlap = 4;

// A chunk, read when it was there.
struct BloscHeaders final : Headers {
  Fault fault = Fault::none;
  BloscHeader header;
  std::vector<BloscStream> streams;                     // of all blocks; none with a fault
  std::vector<std::unique_ptr<const Headers>> of_zstd;  // of each stream, where zstd made it
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
    RecyclingVector<const Headers*> headers;
  };
  struct StreamLists {
    std::array<Inner, kBloscInners> inners;
    RecyclingVector<Frame> stored;
  };
  // Of a range of blocks in each of the lists, by plane.
  struct Places {
    u32 next[kBloscInners + 1][kBloscMaxStreams] = {};
  };
  static constexpr std::size_t kStored = kBloscInners;
  // Of a slab.
  struct WaitingMemory {
    u8* data;
    u64 first;  // block.waiting of its first block
    u8* of(const Block& block) const { return data + (block.waiting - first); }
  };
  using Shuffle = std::pair<BloscFilter, u32>;  // and typesize

  bool on_host() const { return !batch_.host_sources.empty(); }
  bool has_headers() const { return !batch_.headers.empty(); }
  const BloscHeaders& headers_of(std::size_t frame) const {
    return static_cast<const BloscHeaders&>(*batch_.headers[frame]);
  }

  void read_headers() {
    const auto frames = batch_.frames;
    if (has_headers()) {
      for (std::size_t i = 0; i < frames.size(); ++i) {
        faults_[i] = headers_of(i).fault;
        headers_[i] = headers_of(i).header;
      }
      return;
    }
    std::vector<u8> bytes;
    if (!on_host()) {
      bytes.resize(kBloscHeader * frames.size());
      download_headers(bytes);
    }
    for_each_range(frames.size(), kListRange, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i)
        faults_[i] =
            read_blosc_header(on_host() ? batch_.host_sources[i] : bytes.data() + kBloscHeader * i,
                              frames[i],
                              headers_[i]);
    });
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
    blocks_.reserve(headers_.size());
    first_streams_.resize(headers_.size());
    u64 waiting = 0;
    for (u32 f = 0; f < headers_.size(); ++f) {
      first_streams_[f] = n_streams_;
      const BloscHeader& header = headers_[f];
      const Frame& frame = batch_.frames[f];
      if (faults_[f] != Fault::none) continue;
      if (header.is_copy)
        copies_.push_back(
            {frame.source + kBloscHeader, header.nbytes, frame.target, header.nbytes, frame.chunk});
      for (u32 b = 0; b < header.n_blocks; ++b) {
        const u32 n = header.n_streams(b);
        blocks_.push_back({f, b, n, n_streams_, waiting});
        n_streams_ += n;
        waiting += waiting_nbytes(blocks_.back());
      }
    }
  }

  void find_streams() {
    streams_.resize(n_streams_);
    if (has_headers()) {
      for (std::size_t f = 0; f < headers_.size(); ++f)
        std::ranges::copy(headers_of(f).streams, streams_.data() + first_streams_[f]);
      return;
    }
    RecyclingVector<u32> found(blocks_.size(), 1);
    if (on_host())
      read_streams(found);
    else if (!blocks_.empty())
      download_streams(found);
    check_streams(found);
    std::erase_if(blocks_, [&](const Block& b) { return faults_[b.frame] != Fault::none; });
  }

  // The first stream of many blocks, then the second, and so on: one is known only by the one
  // before it, and waiting for memory block by block is most of the work.
  void read_streams(RecyclingVector<u32>& found) {
    for_each_range(blocks_.size(), range_length(blocks_), [&](std::size_t begin, std::size_t end) {
      bool more = true;
      for (u32 k = 0; std::exchange(more, false); ++k) {
        for (std::size_t i = begin; i < end; ++i) {
          const Block& block = blocks_[i];
          if (k >= block.n_streams || !found[i]) continue;
          found[i] = find_blosc_stream(batch_.host_sources[block.frame],
                                       static_cast<u32>(batch_.frames[block.frame].source_nbytes),
                                       block.index,
                                       k,
                                       streams_.data() + block.first_stream);
          more = true;
        }
      }
    });
  }

  static std::size_t range_length(std::span<const Block> blocks) {
    if (blocks.empty()) return 1;
    const Block &first = blocks.front(), &last = blocks.back();
    const u64 streams = last.first_stream + last.n_streams - first.first_stream;
    return std::max<u64>(1, kListRange * blocks.size() / streams);
  }

  void check_streams(const RecyclingVector<u32>& found) {
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

  // Of all from `first` to `last`.
  u64 waiting_between(const Block& first, const Block& last) const {
    return last.waiting - first.waiting + waiting_nbytes(last);
  }

  std::size_t slab_end(std::size_t begin) const {
    const u64 most = tuning_of(queue_).blosc.slab_nbytes;
    std::size_t end = begin + 1;
    while (end < blocks_.size() && waiting_between(blocks_[begin], blocks_[end]) <= most) ++end;
    return end;
  }

  void decode_blocks(std::span<const Block> blocks) {
    const Scratch<u8> waiting(queue_,
                              waiting_between(blocks.front(), blocks.back()) + kSourcePadding);
    const WaitingMemory memory{waiting.data(), blocks.front().waiting};
    const StreamLists lists = list_streams(blocks, memory);
    for (std::size_t i = 0; i < lists.inners.size(); ++i)
      if (!lists.inners[i].frames.empty())
        decode_inner(static_cast<BloscInner>(i), lists.inners[i], waiting.size() > kSourcePadding);
    copy_frames(queue_, lists.stored);
    for (const auto& [key, frames] : list_shuffled(blocks, memory))
      (key.first == BloscFilter::shuffle ? unshuffle : bit_unshuffle)(queue_, {frames, key.second});
  }

  // One plane after the other: streams of a plane are alike, and decoded beside each other. Each
  // thread counts what it has for each list, then writes behind what those before it have.
  StreamLists list_streams(std::span<const Block> blocks, const WaitingMemory& waiting) const {
    const std::size_t length = range_length(blocks);
    std::vector<Places> places((blocks.size() + length - 1) / length);
    for_each_range(blocks.size(), length, [&](std::size_t begin, std::size_t end) {
      Places& counts = places[begin / length];
      for (const Block& block : blocks.subspan(begin, end - begin))
        for (u32 k = 0; k < block.n_streams; ++k) ++counts.next[list_of(block, k)][k];
    });
    StreamLists lists;
    lists.stored.resize(take_places(places, kStored));
    for (std::size_t i = 0; i < kBloscInners; ++i) {
      Inner& inner = lists.inners[i];
      inner.frames.resize(take_places(places, i));
      if (on_host()) inner.host_sources.resize(inner.frames.size());
      if (has_headers() && static_cast<BloscInner>(i) == BloscInner::zstd)
        inner.headers.resize(inner.frames.size());
    }
    for_each_range(blocks.size(), length, [&](std::size_t begin, std::size_t end) {
      Places& next = places[begin / length];
      for (const Block& block : blocks.subspan(begin, end - begin)) {
        u8* const target = waiting_nbytes(block) ? waiting.of(block) : target_of(block);
        for (u32 k = 0; k < block.n_streams; ++k) {
          const std::size_t list = list_of(block, k);
          put_stream(block, k, target, lists, list, next.next[list][k]++);
        }
      }
    });
    return lists;
  }

  // From counts to the places of the first streams; gives their sum.
  static std::size_t take_places(std::span<Places> places, std::size_t list) {
    std::size_t sum = 0;
    for (u32 k = 0; k < kBloscMaxStreams; ++k)
      for (Places& range : places) sum += std::exchange(range.next[list][k], static_cast<u32>(sum));
    return sum;
  }

  u32 stream_nbytes(const Block& block) const {
    return headers_[block.frame].block_nbytes(block.index) / block.n_streams;
  }

  std::size_t list_of(const Block& block, u32 k) const {
    if (streams_[block.first_stream + k].nbytes == stream_nbytes(block)) return kStored;
    return static_cast<std::size_t>(headers_[block.frame].inner);
  }

  u8* target_of(const Block& block) const {
    return batch_.frames[block.frame].target + u64{block.index} * headers_[block.frame].blocksize;
  }

  // Stream `k` of a block that is decoded to `target`.
  void put_stream(const Block& block,
                  u32 k,
                  u8* target,
                  StreamLists& lists,
                  std::size_t list,
                  u32 place) const {
    const Frame& frame = batch_.frames[block.frame];
    const BloscStream stream = streams_[block.first_stream + k];
    const u32 nbytes = stream_nbytes(block);
    auto& frames = list == kStored ? lists.stored : lists.inners[list].frames;
    frames[place] = {
        frame.source + stream.offset, stream.nbytes, target + u64{k} * nbytes, nbytes, frame.chunk};
    if (list == kStored) return;
    Inner& inner = lists.inners[list];
    if (on_host()) inner.host_sources[place] = batch_.host_sources[block.frame] + stream.offset;
    if (!inner.headers.empty())
      inner.headers[place] = headers_of(block.frame)
                                 .of_zstd[block.first_stream + k - first_streams_[block.frame]]
                                 .get();
  }

  std::map<Shuffle, RecyclingVector<Frame>> list_shuffled(std::span<const Block> blocks,
                                                          const WaitingMemory& waiting) const {
    std::map<Shuffle, RecyclingVector<Frame>> shuffled;
    for (const Block& block : blocks) {
      const BloscHeader& header = headers_[block.frame];
      const BloscFilter filter = header.filter_of(block.index);
      if (filter == BloscFilter::none) continue;
      RecyclingVector<Frame>& alike = shuffled[{filter, header.typesize}];
      if (alike.empty()) alike.reserve(blocks.size());
      const u32 nbytes = header.block_nbytes(block.index);
      alike.push_back(
          {waiting.of(block), nbytes, target_of(block), nbytes, batch_.frames[block.frame].chunk});
    }
    return shuffled;
  }

  void decode_inner(BloscInner codec, const Inner& inner, bool planes) {
    const DecodeBatch batch{inner.frames, inner.host_sources, batch_.faults, planes, inner.headers};
    switch (codec) {
      case BloscInner::blosclz:
        return blosclz_decode(queue_, batch);
      case BloscInner::lz4:
        return lz4_decode(queue_, batch);
      case BloscInner::snappy:
        return snappy_decode(queue_, batch);
      case BloscInner::zlib:
        return zlib_decode(queue_, batch);
      case BloscInner::zstd:
        return decode_zstd(queue_, batch);
    }
  }

  Queue& queue_;
  const DecodeBatch& batch_;
  RecyclingVector<BloscHeader> headers_;
  std::vector<Fault> faults_;  // of each frame, found on the host
  RecyclingVector<Block> blocks_;
  RecyclingVector<BloscStream> streams_;
  std::vector<Frame> copies_;           // chunks that hold their bytes as they are
  RecyclingVector<u64> first_streams_;  // of each frame
  u64 n_streams_ = 0;
};

}  // namespace

// In parts, each twice as large as all before it: the device works on one while the host, which is
// faster, lists the streams of the next. Without sources on the host, each part would wait for the
// device.
void blosc_decode(Queue& queue, const DecodeBatch& batch) {
  const auto [frames, host_sources, faults, planes, headers] = batch;
  if (host_sources.empty() && headers.empty()) return BloscDecoder(queue, batch).run();
  const std::size_t least = tuning_of(queue).blosc.part_chunks;
  for (std::size_t begin = 0, n = 0; begin < frames.size(); begin += n) {
    const std::size_t left = frames.size() - begin;
    n = std::max(least, 2 * begin);
    if (left < 2 * n) n = left;
    DecodeBatch part{frames.subspan(begin, n), {}, faults, planes, {}};
    if (headers.empty()) {
      part.host_sources = host_sources.subspan(begin, n);
    } else {
      part.headers = headers.subspan(begin, n);
    }
    BloscDecoder(queue, part).run();
  }
}

namespace {

Fault find_streams(const u8* source,
                   u64 source_nbytes,
                   const BloscHeader& header,
                   std::vector<BloscStream>& streams) {
  u64 streams_nbytes = 0;
  for (u32 block = 0; block < header.n_blocks; ++block) {
    const u32 n = header.n_streams(block);
    streams.resize(streams.size() + n);
    BloscStream* const of_block = &streams.back() + 1 - n;
    for (u32 k = 0; k < n; ++k) {
      if (!find_blosc_stream(source, static_cast<u32>(source_nbytes), block, k, of_block))
        return Fault::truncated;
      streams_nbytes += of_block[k].nbytes;
    }
  }
  return streams_nbytes > kMostOverlap * source_nbytes ? Fault::malformed : Fault::none;
}

}  // namespace

std::unique_ptr<const Headers> read_blosc_headers(const u8* source,
                                                  u64 source_nbytes,
                                                  u64 target_nbytes) {
  auto headers = std::make_unique<BloscHeaders>();
  BloscHeader& header = headers->header;
  std::vector<BloscStream>& streams = headers->streams;
  headers->fault = read_blosc_header(
      source, {.source_nbytes = source_nbytes, .target_nbytes = target_nbytes}, header);
  if (headers->fault == Fault::none)
    headers->fault = find_streams(source, source_nbytes, header, streams);
  if (headers->fault != Fault::none) {
    streams.clear();
    return headers;
  }
  if (header.inner != BloscInner::zstd) return headers;
  headers->of_zstd.resize(streams.size());
  std::size_t at = 0;
  for (u32 block = 0; block < header.n_blocks; ++block) {
    const u32 n = header.n_streams(block);
    const u32 decoded = header.block_nbytes(block) / n;
    for (u32 k = 0; k < n; ++k, ++at) {
      const auto [offset, nbytes] = streams[at];
      if (nbytes != decoded)  // else it is stored as it is
        headers->of_zstd[at] = read_zstd_headers(source + offset, nbytes, decoded);
    }
  }
  return headers;
}

}  // namespace headrace::SIMT_SPACE
