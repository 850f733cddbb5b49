#include "kernels/deflate/decode.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/common/fault.h"
#include "kernels/deflate/stream.h"
#include "kernels/tuning.h"

namespace headrace::SIMT_SPACE {
namespace deflate {
namespace {

// Of a search: what 2 GiB of source have.
constexpr u64 kMaxCells = u64{1} << 22;

struct RefuseChunks {
  static constexpr unsigned kThreads = 128;
  using Shared = simt::NoShared;
  const u32* chunks;
  u32 count;
  u32* faults;
  SIMT_DEVICE void operator()(Shared&) const {
    const u32 i = simt::cta_index() * kThreads + simt::thread_index();
    if (i < count) raise(faults, chunks[i], Fault::unsupported);
  }
};

void refuse(Queue& queue, const std::vector<u32>& chunks, u32* faults) {
  const auto on_device = Scratch<u32>::of(queue, chunks.data(), chunks.size());
  const u32 count = static_cast<u32>(chunks.size());
  simt::launch(queue,
               (count + RefuseChunks::kThreads - 1) / RefuseChunks::kThreads,
               RefuseChunks{on_device.data(), count, faults});
}

// Device memory of a search.
class SearchScratch {
 public:
  SearchScratch(Queue& queue, u32 cells)
      : starts_(queue, cells),
        found_(queue, cells),
        doubtful_(queue, std::size_t{kDoubtfulACell} * cells),
        candidates_(queue, cells),
        taken_(queue, cells),
        counts_(queue, 1) {
    queue.fill(starts_.data(), 0xff, cells * sizeof(u32));
    queue.fill(counts_.data(), 0, sizeof(SearchCounts));
  }
  BlockSearch view() const {
    return {starts_.data(),
            found_.data(),
            doubtful_.data(),
            candidates_.data(),
            taken_.data(),
            counts_.data(),
            static_cast<u32>(starts_.size())};
  }

 private:
  Scratch<u32> starts_;
  Scratch<FoundBlock> found_;
  Scratch<BlockCandidate> doubtful_;
  Scratch<BlockCandidate> candidates_;
  Scratch<TakenBlock> taken_;
  Scratch<SearchCounts> counts_;
};

template <class T>
Scratch<T> zeros(Queue& queue, std::size_t count) {
  Scratch<T> scratch(queue, count);
  queue.fill(scratch.data(), 0, count * sizeof(T));
  return scratch;
}

class Slab {
 public:
  explicit Slab(const Tuning::Deflate& tuning) : tuning_(tuning) {}

  bool empty() const { return streams_.empty(); }
  bool has_room(u64 nbytes) const { return empty() || nbytes_ + nbytes <= tuning_.slab_nbytes; }

  void add(const Frame& frame) {
    const u32 tiles = tile_count(frame.target_nbytes);
    const u32 stream = static_cast<u32>(streams_.size());
    streams_.push_back({frame.source,
                        frame.source_nbytes,
                        frame.target,
                        static_cast<u32>(frame.target_nbytes),
                        frame.chunk,
                        static_cast<u32>(stream_of_tile_.size()),
                        0,
                        0});
    stream_of_tile_.insert(stream_of_tile_.end(), tiles, stream);
    nbytes_ += frame.target_nbytes;
    most_tiles_ = std::max<u64>(most_tiles_, tiles);
    most_source_nbytes_ = std::max(most_source_nbytes_, frame.source_nbytes);
  }

  void decode(Queue& queue, Container container, u32* faults) {
    const u32 cells = plan_search();
    const std::size_t tiles = stream_of_tile_.size(), count = streams_.size();
    const auto streams = Scratch<DeflateStream>::of(queue, streams_.data(), count);
    const auto stream_of_tile = Scratch<u32>::of(queue, stream_of_tile_.data(), tiles);
    const auto match_starts = zeros<u32>(queue, tiles * (kDeflateTile / 32));
    const auto rests = zeros<MatchRest>(queue, tiles);
    const Scratch<DeflateResult> results(queue, count);
    std::optional<SearchScratch> search;
    if (cells) search.emplace(queue, cells);
    const DeflateWork work{container,
                           streams.data(),
                           static_cast<u32>(count),
                           stream_of_tile.data(),
                           match_starts.data(),
                           rests.data(),
                           results.data(),
                           faults,
                           search ? search->view() : BlockSearch{}};
    if (search) find_blocks(queue, work);
    decode_symbols(queue, work, most_source_nbytes_);
    const u32 end = static_cast<u32>(tiles);
    if (most_tiles_ * tuning_.order_streams <= tiles)
      execute_in_order(queue, work, static_cast<u32>(most_tiles_));
    else
      execute_in_groups(queue, work, end);
    if (container != Container::none) {
      std::vector<ByteSpan> targets;
      for (const DeflateStream& stream : streams_)
        targets.push_back({stream.target, stream.target_nbytes});
      verify_checksums(queue, work, targets);
    }
  }

 private:
  void execute_in_groups(Queue& queue, const DeflateWork& work, u32 tiles) const {
    const u32 group = tuning_.tiles_at_once;
    for (u32 first = 0; first < tiles; first += group)
      execute_tiles(queue, work, first, std::min(tiles, first + group));
  }

  // Gives streams their cells; returns how many there are.
  u32 plan_search() {
    if (streams_.size() >= tuning_.search_streams) return 0;
    u64 cells = 0;
    for (DeflateStream& stream : streams_) {
      const u64 bits = 8 * (stream.source_nbytes + 15);  // from the 16 bytes that it begins in
      const u64 groups = (bits + kSearchGroupBits - 1) / kSearchGroupBits;
      const u64 count = groups * (kSearchGroupBits / kSearchCellBits);
      stream.first_cell = static_cast<u32>(cells);
      if (stream.source_nbytes < tuning_.search_nbytes || cells + count > kMaxCells) continue;
      stream.cell_count = static_cast<u32>(count);
      cells += count;
    }
    return static_cast<u32>(cells);
  }

  Tuning::Deflate tuning_;
  std::vector<DeflateStream> streams_;
  std::vector<u32> stream_of_tile_;
  u64 nbytes_ = 0;
  u64 most_tiles_ = 0, most_source_nbytes_ = 0;  // of one stream
};

void decode_batch(Queue& queue, const DecodeBatch& batch, Container container) {
  const Tuning::Deflate tuning = tuning_of(queue).deflate;
  Slab slab(tuning);
  std::vector<u32> refused;
  for (const Frame& frame : batch.frames) {
    if (frame.target_nbytes > kMaxDeflateTarget) {
      refused.push_back(frame.chunk);
      continue;
    }
    if (!slab.has_room(frame.target_nbytes)) {
      slab.decode(queue, container, batch.faults);
      slab = Slab(tuning);
    }
    slab.add(frame);
  }
  if (!slab.empty()) slab.decode(queue, container, batch.faults);
  if (!refused.empty()) refuse(queue, refused, batch.faults);
}

}  // namespace
}  // namespace deflate

void deflate_decode(Queue& queue, const DecodeBatch& batch) {
  deflate::decode_batch(queue, batch, deflate::Container::none);
}
void zlib_decode(Queue& queue, const DecodeBatch& batch) {
  deflate::decode_batch(queue, batch, deflate::Container::zlib);
}
void gzip_decode(Queue& queue, const DecodeBatch& batch) {
  deflate::decode_batch(queue, batch, deflate::Container::gzip);
}

}  // namespace headrace::SIMT_SPACE
