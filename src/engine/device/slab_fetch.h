#pragma once

// Brings the chunks of a slab from the store into its memory: encoded bytes that the device
// decodes, or, packed, the wanted elements of chunks that the host decodes.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/thread_pool.h"
#include "engine/device/chunks.h"
#include "engine/device/gds.h"
#include "engine/device/slab.h"
#include "engine/device/stages.h"
#include "engine/fetch/objects.h"
#include "engine/read/chunk.h"

namespace headrace {

// `fill` gets the query for the wanted elements in the slab's memory, one after another. The chunk
// is missing when its object was removed.
template <typename Query, typename Fill>
void pack(const ArrayLayout& layout, Chunk<Query>& chunk, SlabMemory& memory, Fill fill) {
  const SlabMemory::Piece piece = memory.reserve(chunk.query.size() * layout.itemsize());
  chunk.packed = unless_removed([&] { fill(chunk.query.packed(piece.host, layout.itemsize())); });
  chunk.missing = !chunk.packed;
  chunk.host = piece.host;
  chunk.device = piece.device;
  memory.filled(piece);
}

// On the host.
template <typename Query>
void decode_packed(const ArrayLayout& layout,
                   Chunk<Query>& chunk,
                   ConstBytes encoded,
                   SlabMemory& memory,
                   const DecodeContext& context) {
  pack(layout, chunk, memory, [&](const Query& packed) {
    auto sink = make_sink(packed, layout.chunk_shape, layout.itemsize());
    decode_chunk(layout.chain, encoded, sink, context);
  });
}

template <typename Query>
class SlabFetch {
 public:
  using Chunks = std::vector<Chunk<Query>>;

  // `on_host`: the host decodes all chunks. `gds`: null, or the way of what a device decodes.
  SlabFetch(RequestContext& context, bool on_host, Gds* gds, Chunks& chunks, SlabMemory& memory)
      : context_(context),
        layout_(context.layout),
        on_host_(on_host),
        gds_(gds),
        chunks_(chunks),
        memory_(memory) {
    threads_ = static_cast<std::size_t>(on_host ? context.threads : thread_count());
    add_requests();
    if (requests_.size() < 2 * threads_) threads_each_ = context.threads;
    threads_ = std::min(threads_, requests_.size());
  }

  // Whether the host decodes a chunk of which this is wanted.
  static bool is_for_host(const ArrayLayout& layout, bool on_host, const Query& query) {
    return on_host || is_part(layout, query);
  }

  // So many threads do this at once, until nothing is left.
  std::size_t threads() const { return threads_; }
  void work() {
    Objects objects;
    try {
      for (std::size_t i; (i = next_.fetch_add(1)) < requests_.size();) {
        context_.check();
        fetch(requests_[i], objects);
      }
    } catch (...) {
      next_ = requests_.size();
      throw;
    }
  }

 private:
  // Inner chunks that are read as one range: order_[first, first + count).
  struct Run {
    std::size_t first;
    std::size_t count;
    ByteRange range;
  };
  // Chunks that are asked for together: order_[first, first + count).
  struct Request {
    enum class Kind : std::uint8_t { one, objects, runs };
    Kind kind;
    std::size_t first;
    std::size_t count = 1;
    std::vector<Run> runs{};
  };
  // Of one thread, kept for its next requests.
  struct Objects {
    std::vector<Buffer> buffers;
    std::vector<GetRequest> requests;
  };

  // Of a local store. What the host decodes is to stay in the L2 cache until then.
  static constexpr std::uint64_t kDeviceRun = 1 << 20;
  static constexpr std::uint64_t kHostRun = 256 << 10;
  static constexpr std::size_t kReadPiece = std::size_t{4} << 20;

  void add_requests() {
    const std::size_t batch = batch_size();
    std::vector<std::size_t> run;
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      const Chunk<Query>& chunk = chunks_[i];
      if (chunk.missing) continue;
      if (chunk.level->parent && reads_whole(chunk)) {
        if (!run.empty() && chunks_[run.front()].level != chunk.level) add_runs(run);
        run.push_back(i);
      } else if (batch > 0 && !chunk.level->parent && reads_whole(chunk)) {
        add_object(i, batch);
      } else {
        add({Request::Kind::one, order_.size()}, i);
      }
    }
    add_runs(run);
  }

  void add(const Request& request, std::size_t chunk) {
    requests_.push_back(request);
    order_.push_back(chunk);
  }

  void add_object(std::size_t chunk, std::size_t batch) {
    if (!requests_.empty() && requests_.back().kind == Request::Kind::objects &&
        requests_.back().count < batch) {
      ++requests_.back().count;
      order_.push_back(chunk);
    } else {
      add({Request::Kind::objects, order_.size()}, chunk);
    }
  }

  // Of one shard; empties `chunks`.
  void add_runs(std::vector<std::size_t>& chunks) {
    if (chunks.empty()) return;
    std::vector<ByteRange> ranges;
    for (const std::size_t chunk : chunks) ranges.push_back(chunks_[chunk].range);
    const std::vector<RangeGroup> groups =
        near_groups(context_, ranges, on_host_ ? kHostRun : kDeviceRun);
    for (std::span<const RangeGroup> rest = groups; !rest.empty();) {
      Request request{Request::Kind::runs, order_.size(), 0};
      const std::size_t n = asked_at_once(context_, rest, context_.memory_budget / 2 / threads_);
      for (const RangeGroup& group : rest.first(n)) {
        request.runs.push_back({order_.size(), group.members.size(), group.range});
        for (const std::size_t member : group.members) order_.push_back(chunks[member]);
      }
      request.count = order_.size() - request.first;
      requests_.push_back(std::move(request));
      rest = rest.subspan(n);
    }
    chunks.clear();
  }

  // Hardly anything of a chunk that is not encoded: no more of it need be read.
  static bool is_part(const ArrayLayout& layout, const Query& query) {
    return layout.chain.is_identity() &&
           2 * query.size() * layout.itemsize() < layout.chain.decoded_nbytes();
  }

  bool reads_whole(const Chunk<Query>& chunk) const {
    return !is_part(layout_, chunk.query) && !is_swollen(chunk.range.nbytes);
  }

  // Encoded much larger than decoded: left to the host, for pinned memory is dear.
  bool is_swollen(std::uint64_t nbytes) const {
    constexpr std::uint64_t kMost = 2, kSlack = 1 << 20;
    return nbytes > kMost * layout_.chain.decoded_nbytes() + kSlack;
  }

  // Whole objects to ask the store for at once, 0 to open one after the other. What all threads ask
  // for fits into half of the budget.
  std::size_t batch_size() const {
    const std::size_t most = gds_ && gds_->forced() ? 1 : context_.driver.batch_size();
    const std::size_t nbytes = std::max<std::size_t>(layout_.chain.decoded_nbytes(), 1);
    if (most == 1 || nbytes > kMaxBatchedChunk) return 0;
    const std::size_t fit = context_.memory_budget / 2 / (threads_ * nbytes);
    const std::size_t batch = std::min({most, fit, (chunks_.size() + threads_ - 1) / threads_});
    return batch == 1 && context_.driver.local() ? 0 : batch;
  }

  void fetch(const Request& request, Objects& objects) {
    switch (request.kind) {
      case Request::Kind::one:
        return fetch_one(chunk_of(request, 0));
      case Request::Kind::objects:
        return fetch_objects(request, objects);
      case Request::Kind::runs:
        return fetch_runs(request);
    }
  }

  Chunk<Query>& chunk_of(const Request& request, std::size_t i) {
    return chunks_[order_[request.first + i]];
  }

  void fetch_one(Chunk<Query>& chunk) {
    at(chunk, [&] {
      Coordinates coordinates;
      Query query;
      chunk.level->cut.child(chunk.position, coordinates.at, query);
      const auto stored = find_stored(context_, *chunk.level, coordinates);
      chunk.missing = !stored;
      if (!stored) return;
      chunk.range = stored->range;
      if (is_for_host(layout_, on_host_, chunk.query) || is_swollen(chunk.range.nbytes)) {
        pack(layout_, chunk, memory_, [&](const Query& packed) {
          read_chunk(layout_, *stored->reader, chunk.range, packed, decode_context());
        });
      } else {
        const auto file = gds_ ? gds_->open(*stored->reader) : nullptr;
        const SlabMemory::Piece piece = reserve(file.get(), chunk.range);
        chunk.missing =
            !unless_removed([&] { bring(*stored->reader, file.get(), chunk.range, piece); });
        if (!chunk.missing) take(chunk, piece);
        memory_.filled(piece);
      }
    });
  }

  // Whole objects, by one call of the store.
  void fetch_objects(const Request& request, Objects& objects) {
    objects.buffers.resize(std::max(objects.buffers.size(), request.count));
    objects.requests.clear();
    for (std::size_t i = 0; i < request.count; ++i) {
      const Chunk<Query>& chunk = chunk_of(request, i);
      Coordinates coordinates;
      Query query;
      chunk.level->cut.child(chunk.position, coordinates.at, query);
      objects.requests.push_back({context_.chunk_key(coordinates.at),
                                  &objects.buffers[i],
                                  false,
                                  nullptr,
                                  max_encoded_nbytes(layout_.chain)});
    }
    context_.driver.get_many(objects.requests);
    for (std::size_t i = 0; i < request.count; ++i) {
      Chunk<Query>& chunk = chunk_of(request, i);
      const GetRequest& object = objects.requests[i];
      const ConstBytes encoded = object.into->bytes();
      if (object.error) {
        at(chunk, [&] { std::rethrow_exception(object.error); });
      } else if (!object.found && !context_.driver.has_files()) {
        chunk.missing = true;
      } else if (!object.found || is_swollen(encoded.size())) {
        fetch_one(chunk);  // tells what is missing from what is no file
      } else if (on_host_) {
        chunk.range = {0, encoded.size()};
        at(chunk, [&] { decode(chunk, encoded); });
      } else {
        chunk.range = {0, encoded.size()};
        const SlabMemory::Piece piece = memory_.reserve(encoded.size());
        if (!encoded.empty()) std::memcpy(piece.host, encoded.data(), encoded.size());
        at(chunk, [&] { take(chunk, piece); });
        memory_.filled(piece);
      }
    }
  }

  // Of one shard.
  void fetch_runs(const Request& request) {
    std::vector<Buffer> buffers(request.runs.size());  // where the host decodes
    std::vector<SlabMemory::Piece> pieces;
    const bool found = unless_removed(
        [&] { at(chunk_of(request, 0), [&] { bring_runs(request, buffers, pieces); }); });
    for (std::size_t r = 0; r < pieces.size(); ++r) {
      const Run& run = request.runs[r];
      for (std::size_t i = run.first; i < run.first + run.count; ++i) {
        Chunk<Query>& chunk = chunks_[order_[i]];
        const auto offset = static_cast<std::size_t>(chunk.range.offset - run.range.offset);
        const auto nbytes = static_cast<std::size_t>(chunk.range.nbytes);
        at(chunk, [&] {
          if (!found) {
            chunk.missing = true;
          } else if (on_host_) {
            decode(chunk, ConstBytes(buffers[r]).subspan(offset, nbytes));
          } else {
            take(chunk, pieces[r], offset);
          }
        });
      }
      memory_.filled(pieces[r]);
    }
  }

  void bring_runs(const Request& request,
                  std::vector<Buffer>& buffers,
                  std::vector<SlabMemory::Piece>& pieces) {
    const std::shared_ptr<const ObjectReader>& reader = chunk_of(request, 0).level->reader;
    const auto file = gds_ && !on_host_ ? gds_->open_shard(reader) : nullptr;
    std::vector<RangeRead> reads;
    for (std::size_t r = 0; r < request.runs.size(); ++r) {
      const ByteRange& range = request.runs[r].range;
      if (on_host_) {
        buffers[r].resize(checked_encoded_nbytes(range.nbytes));
        pieces.push_back({buffers[r].data()});
      } else {
        pieces.push_back(reserve(file.get(), range));
      }
      if (context_.driver.local()) {
        bring(*reader, file.get(), range, pieces[r]);
      } else {
        reads.push_back({range.offset, {pieces[r].host, range.nbytes}});
      }
    }
    reader->read_ranges(reads);
  }

  // For encoded bytes that come by way of the host or, from a file, straight to the device.
  SlabMemory::Piece reserve(const GdsFile* file, const ByteRange& range) {
    const std::size_t nbytes = checked_encoded_nbytes(range.nbytes);
    return file ? memory_.reserve_on_device(nbytes) : memory_.reserve(nbytes);
  }

  void bring(const ObjectReader& reader,
             const GdsFile* file,
             const ByteRange& range,
             const SlabMemory::Piece& piece) {
    in_pieces(static_cast<std::size_t>(range.nbytes), [&](std::size_t at, std::size_t n) {
      if (file) {
        file->read(range.offset + at, piece.device + at, n);
      } else {
        reader.read(range.offset + at, {piece.host + at, n});
      }
    });
  }

  // Calls body(at, n) by several threads when there are few requests.
  void in_pieces(std::size_t nbytes, FunctionRef<void(std::size_t at, std::size_t n)> body) {
    const std::size_t piece = threads_each_ > 1 ? kReadPiece : std::max<std::size_t>(nbytes, 1);
    parallel_for((nbytes + piece - 1) / piece,
                 [&](std::size_t i) { body(i * piece, std::min(piece, nbytes - i * piece)); },
                 threads_each_);
  }

  // The chunk's encoded bytes begin at `offset` of the piece.
  void take(Chunk<Query>& chunk, const SlabMemory::Piece& piece, std::size_t offset = 0) {
    chunk.host = piece.host ? piece.host + offset : nullptr;
    chunk.device = piece.device + offset;
    check_encoded(
        layout_.device_plan, layout_.chain.decoded_nbytes(), chunk.encoded_nbytes(), chunk.host);
  }

  void decode(Chunk<Query>& chunk, ConstBytes encoded) {
    decode_packed(layout_, chunk, encoded, memory_, decode_context());
  }

  DecodeContext decode_context() const { return {threads_each_}; }

  // Names the array and the chunk in what goes wrong.
  template <typename Body>
  void at(const Chunk<Query>& chunk, Body body) {
    try {
      body();
    } catch (const Error& error) {
      throw located(context_, *chunk.level, chunk.position, error);
    }
  }

  RequestContext& context_;
  const ArrayLayout& layout_;
  const bool on_host_;
  Gds* const gds_;
  Chunks& chunks_;
  SlabMemory& memory_;
  std::size_t threads_;
  int threads_each_ = 1;
  std::vector<Request> requests_;
  std::vector<std::size_t> order_;
  std::atomic<std::size_t> next_{0};
};

}  // namespace headrace
