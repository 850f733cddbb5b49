#pragma once

// Brings the chunks of a slab from a store across a network into its memory, as SlabFetch does from
// others: all of them are asked for at once, and what has a known size lands in the slab's pinned
// memory.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "engine/device/chunks.h"
#include "engine/device/slab.h"
#include "engine/device/slab_fetch.h"
#include "engine/fetch/in_flight.h"
#include "engine/fetch/plan.h"
#include "engine/fetch/shard_read.h"
#include "engine/read/chunk.h"
#include "engine/read/plain.h"

namespace headrace {

template <typename Query>
class SlabFromNetwork final : public SlabSource {
 public:
  using Chunks = std::vector<Chunk<Query>>;

  // As SlabFetch.
  SlabFromNetwork(const Request& request,
                  FunctionRef<void()> check,
                  const StoredArray& array,
                  const Backend& backend,
                  FetchFor purpose,
                  AsyncReads& store,
                  Chunks& chunks,
                  SlabMemory& memory)
      : array_(array),
        layout_(array.layout),
        backend_(backend),
        purpose_(purpose),
        chunks_(chunks),
        memory_(memory),
        threads_(threads_of_slab(request, array, purpose)),
        plan_(array, request, purpose, threads_),
        flight_(store, limits_of_flight(request, store), check) {
    list_ = list_of_slab(plan_, layout_, chunks, 1);
    if (list_.order.size() < 2 * threads_) threads_each_ = request.threads_for(layout_);
    threads_ = std::min(threads_, list_.order.size());
    flight_.add(std::make_unique<Source>(*this));
  }

  std::size_t threads() const override { return threads_; }
  void work() override { flight_.work(); }

 private:
  // Of an object that may be missing, or of a shard, whose index was there.
  void check_found(const AsyncRead& answer, const Chunk<Query>& chunk) {
    check_answer(answer);
    if (!answer.found && chunk.level->parent) throw_changed(answer.key);
    if (answer.found && !chunk.level->parent && layout_.chain.is_identity() &&
        answer.object_nbytes != 0) {
      check_plain_size(layout_.chain, answer.object_nbytes);
    }
  }

  // A chunk that is an object.
  class ObjectRead final : public ReadsInFlight::Read {
   public:
    ObjectRead(SlabFromNetwork& slab, Chunk<Query>& chunk) : slab_(slab), chunk_(chunk) {
      const CodecChain& chain = slab.layout_.chain;
      key = slab.key_of(chunk);
      held_nbytes = chain.decoded_nbytes();
      max_nbytes = chain.is_identity() ? chain.decoded_nbytes() : max_encoded_nbytes(chain);
      if (!chain.is_identity() || slab.purpose_ != FetchFor::device) return;
      extent = Extent::range(0, chain.decoded_nbytes());
      piece_ = slab.memory_.reserve(chain.decoded_nbytes());
      into = {piece_.host, chain.decoded_nbytes()};
    }

    void use(std::size_t) override {
      slab_.at(chunk_, [&] {
        slab_.check_found(*this, chunk_);
        chunk_.missing = !found;
        const std::size_t nbytes = into.empty() ? bytes.size() : into.size();
        chunk_.range = {0, nbytes};
        if (found && into.empty()) {
          take_bytes();
        } else if (found) {
          slab_.take(chunk_, piece_, 0);
        }
      });
      slab_.memory_.filled(piece_);
    }

   private:
    void take_bytes() {
      if (slab_.purpose_ == FetchFor::packing || slab_.plan_.is_swollen(bytes.size()))
        return slab_.decode(chunk_, bytes);
      piece_ = slab_.memory_.reserve(bytes.size());
      if (!bytes.empty()) std::memcpy(piece_.host, bytes.data(), bytes.size());
      slab_.take(chunk_, piece_, 0);
    }

    SlabFromNetwork& slab_;
    Chunk<Query>& chunk_;
    SlabMemory::Piece piece_;
  };

  // Neighbours in a shard. Decoded by the host, unless they go into pinned memory.
  class RunRead final : public ReadsInFlight::Read {
   public:
    RunRead(SlabFromNetwork& slab,
            std::span<const std::size_t> members,
            const ByteRange& range,
            bool is_pinned)
        : slab_(slab), members_(members), range_(range) {
      const ChunkLevel<Query>& level = *chunk(0).level;
      key = level.key;
      extent = Extent::range(range.offset, range.nbytes);
      if_version = level.version;
      held_nbytes = checked_encoded_nbytes(range.nbytes);
      if (!is_pinned) return;
      piece_ = slab.memory_.reserve(static_cast<std::size_t>(held_nbytes));
      into = {piece_.host, static_cast<std::size_t>(held_nbytes)};
    }

    std::size_t parts() override { return error || !into.empty() ? 1 : members_.size(); }

    void use(std::size_t part) override {
      slab_.at(chunk(part), [&] { slab_.check_found(*this, chunk(part)); });
      if (into.empty()) {
        Chunk<Query>& one = chunk(part);
        slab_.at(one, [&] {
          slab_.decode(one, bytes.bytes().subspan(offset_of(one), one.encoded_nbytes()));
        });
        return;
      }
      for (std::size_t i = 0; i < members_.size(); ++i) {
        Chunk<Query>& one = chunk(i);
        slab_.at(one, [&] { slab_.take(one, piece_, offset_of(one)); });
      }
      slab_.memory_.filled(piece_);
    }

   private:
    Chunk<Query>& chunk(std::size_t i) const { return slab_.chunks_[members_[i]]; }
    std::size_t offset_of(const Chunk<Query>& one) const {
      return static_cast<std::size_t>(one.range.offset - range_.offset);
    }

    SlabFromNetwork& slab_;
    const std::span<const std::size_t> members_;
    const ByteRange range_;
    SlabMemory::Piece piece_;
  };

  // What is wanted of a chunk that is not encoded, packed by the host.
  struct Parts {
    Parts(SlabFromNetwork& slab, Chunk<Query>& c)
        : chunk(c),
          piece(slab.memory_.reserve(c.query.size() * slab.layout_.itemsize())),
          packed(c.query.packed(piece.host, slab.layout_.itemsize())) {
      const ArrayLayout& layout = slab.layout_;
      const std::size_t nbytes = layout.chain.decoded_nbytes();
      if (chunk.level->parent) check_plain_size(layout.chain, chunk.range.nbytes);
      chunk.range = {chunk.range.offset, nbytes};
      const auto sink = make_sink(packed, layout.chunk_shape, layout.itemsize());
      in_order = sink.ordered();
      ranges = in_order ? plain_ranges(sink, slab.plan_.near()) : std::vector{ByteRange{0, nbytes}};
      left = ranges.size();
    }

    Chunk<Query>& chunk;
    const SlabMemory::Piece piece;
    const Query packed;
    std::vector<ByteRange> ranges;  // of the chunk
    bool in_order = true;
    OneVersion version{};
    std::atomic<std::size_t> left;
  };

  class PartRead final : public ReadsInFlight::Read {
   public:
    PartRead(SlabFromNetwork& slab, std::shared_ptr<Parts> of_chunk, const ByteRange& range)
        : slab_(slab), parts_(std::move(of_chunk)), range_(range) {
      const Chunk<Query>& chunk = parts_->chunk;
      const ChunkLevel<Query>& level = *chunk.level;
      key = level.parent ? level.key : slab.key_of(chunk);
      if_version = level.version;
      extent = Extent::range(chunk.range.offset + range.offset, range.nbytes);
      held_nbytes = range.nbytes;
    }

    void use(std::size_t) override {
      Chunk<Query>& chunk = parts_->chunk;
      slab_.at(chunk, [&] {
        slab_.check_found(*this, chunk);
        if (!chunk.level->parent) parts_->version.check(*this);
        if (!found) return;
        const ArrayLayout& layout = slab_.layout_;
        auto sink = make_sink(parts_->packed, layout.chunk_shape, layout.itemsize());
        if (parts_->in_order) {
          sink.put(static_cast<std::size_t>(range_.offset), bytes);
        } else {
          sink.scatter(bytes.data());
        }
      });
      if (--parts_->left > 0) return;
      chunk.missing = !found;
      chunk.packed = found;
      chunk.device = parts_->piece.device;
      slab_.memory_.filled(parts_->piece);
    }

   private:
    SlabFromNetwork& slab_;
    const std::shared_ptr<Parts> parts_;
    const ByteRange range_;
  };

  class Source final : public ReadsInFlight::Source {
   public:
    explicit Source(SlabFromNetwork& slab) : slab_(slab) {}

    std::unique_ptr<ReadsInFlight::Read> next() override {
      if (parts_) {
        if (next_part_ < parts_->ranges.size())
          return std::make_unique<PartRead>(slab_, parts_, parts_->ranges[next_part_++]);
        parts_ = nullptr;
      }
      if (next_ == slab_.list_.requests.size()) return nullptr;
      const FetchRequest& request = slab_.list_.requests[next_];
      const auto members = slab_.list_.chunks_of(request);
      Chunk<Query>& first = slab_.chunks_[members.front()];
      switch (request.kind) {
        case FetchRequest::Kind::alone:
          ++next_;
          if (slab_.plan_.is_swollen(first.range.nbytes))
            return std::make_unique<RunRead>(slab_, members, first.range, false);
          slab_.at(first, [&] { parts_ = std::make_shared<Parts>(slab_, first); });
          next_part_ = 0;
          return next();
        case FetchRequest::Kind::batch:
          ++next_;
          return std::make_unique<ObjectRead>(slab_, first);
        case FetchRequest::Kind::runs:
          break;
      }
      const FetchRequest::Run& run = request.runs[next_run_++];
      if (next_run_ == request.runs.size()) {
        next_run_ = 0;
        ++next_;
      }
      return std::make_unique<RunRead>(
          slab_, slab_.list_.chunks_of(run), run.range, slab_.purpose_ == FetchFor::device);
    }

   private:
    SlabFromNetwork& slab_;
    std::size_t next_ = 0;      // of the requests
    std::size_t next_run_ = 0;  // of that one
    std::shared_ptr<Parts> parts_;
    std::size_t next_part_ = 0;
  };

  std::string key_of(const Chunk<Query>& chunk) const {
    Coordinates coordinates;
    Query query;
    chunk.level->cut.child(chunk.position, coordinates.at, query);
    return array_.key(coordinates.at);
  }

  // The chunk's encoded bytes begin at `offset` of the piece.
  void take(Chunk<Query>& chunk, const SlabMemory::Piece& piece, std::size_t offset) {
    take_encoded(backend_, layout_, chunk, piece, offset);
  }

  void decode(Chunk<Query>& chunk, ConstBytes encoded) {
    decode_packed(layout_, chunk, encoded, memory_, {threads_each_});
  }

  // Names the array and the chunk in what goes wrong.
  template <typename Body>
  void at(const Chunk<Query>& chunk, Body body) {
    try {
      body();
    } catch (const Error& error) {
      throw located(array_, *chunk.level, chunk.position, error);
    }
  }

  const StoredArray& array_;
  const ArrayLayout& layout_;
  const Backend& backend_;
  const FetchFor purpose_;
  Chunks& chunks_;
  SlabMemory& memory_;
  std::size_t threads_;
  const FetchPlan plan_;
  int threads_each_ = 1;
  FetchList list_;
  ReadsInFlight flight_;  // its reads refer to all of the above
};

}  // namespace headrace
