#pragma once

// Brings the chunks of a slab from the store into its memory: encoded bytes that the device
// decodes, or, packed, the wanted elements of chunks that the host decodes.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "device/mapped_files.h"
#include "engine/device/chunks.h"
#include "engine/device/gds.h"
#include "engine/device/slab.h"
#include "engine/device/stages.h"
#include "engine/fetch/ahead.h"
#include "engine/fetch/plan.h"
#include "engine/read/chunk.h"
#include "store/file.h"

namespace headrace {

// `fill` gets the query for the wanted elements in the slab's memory, one after another. The chunk
// is missing when its object was removed.
template <typename Query, typename Fill>
void pack(const ArrayLayout& layout, Chunk<Query>& chunk, SlabMemory& memory, Fill fill) {
  const SlabMemory::Piece piece = memory.reserve(chunk.query.size() * layout.itemsize());
  chunk.packed = unless_removed([&] { fill(chunk.query.packed(piece.host, layout.itemsize())); });
  chunk.missing = !chunk.packed;
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

// Whether the host decodes a chunk of which this is wanted.
template <typename Query>
bool is_packed(const ArrayLayout& layout, FetchFor purpose, const Query& query) {
  return purpose == FetchFor::packing ||
         is_part(layout, query.size() * layout.itemsize(), layout.chain.decoded_nbytes());
}

// The chunk's encoded bytes begin at `offset` of the piece. Headers are read now: the bytes are in
// the processor's cache, and their pinned memory is filled anew as soon as they are copied.
template <typename Query>
void take_encoded(const Backend& backend,
                  const ArrayLayout& layout,
                  Chunk<Query>& chunk,
                  const SlabMemory::Piece& piece,
                  std::size_t offset) {
  const DevicePlan& plan = layout.devices.decode;
  const std::byte* const host = piece.host ? piece.host + offset : nullptr;
  chunk.device = piece.device + offset;
  check_encoded(plan, layout.chain.decoded_nbytes(), chunk.encoded_nbytes(), host);
  if (!host) return;
  const ConstBytes encoded(host, chunk.encoded_nbytes());
  chunk.said_nbytes = said_nbytes(plan, encoded);
  chunk.headers = read_headers(backend, plan, encoded, chunk.said_nbytes);
}

// That copy files into pinned memory, unless the user has said how many: so many bring as much as
// the bus to the device takes, and more would fill more blocks at a time, out of the cache.
// Measured on one H200 with uncompressed chunks in the page cache: 18, 35, 44 and 52 GB/s with 4,
// 8, 12 and 16, where 55 is the bus.
inline constexpr int kMostFetchThreads = 16;

// What several threads read a part each of because there are few chunks, and what one reads at
// least.
inline constexpr std::size_t kLeastShared = (std::size_t{1} << 20) + 1;
inline constexpr std::size_t kLeastPart = std::size_t{512} << 10;

// Of a file, where there are few chunks, the device copies one slice while the next is read, from
// ranges of so many bytes on. Threads share them, for one copies 4.4 GB/s of what is in no cache of
// its own; to wake one takes 20 us, of 15 no more is had than of 7. Measured on an H100 (16 cores)
// from the page cache, in us: 1 MiB by one thread 205, by two in slices of 256 KiB 185, by three
// 146; 4 MiB by one 870, by three 460, by seven 324, by fifteen 337, and 16 chunks of it in such
// slices 2,870, of 512 KiB 2,140, whole 2,390 (device-trials.json).
inline constexpr std::size_t kLeastSliced = std::size_t{512} << 10;
inline constexpr std::size_t kLeastSlice = std::size_t{256} << 10;
inline constexpr std::size_t kLeastSliceOfSeveral = std::size_t{512} << 10;
inline constexpr std::size_t kSeveral = 4;
inline constexpr std::size_t kMostSlices = 16;
inline constexpr int kMostSharers = 8;

// Chunks that need no decoding are copied straight to where they are wanted, each by a copy of its
// own: large ones, and those of a small read, which a kernel would place for 35 us. Others share
// copies.
inline constexpr std::size_t kLeastInPlace = std::size_t{2} << 20;
inline constexpr std::size_t kFewChunks = 16;
inline constexpr std::size_t kLeastOfFew = std::size_t{64} << 10;

// Where the elements that decoding gives are wanted, when they are wanted as it gives them.
template <typename Query>
std::uint8_t* direct_target(const ArrayLayout& layout, const Query& query) {
  const DevicePlan& plan = layout.devices.decode;
  if (!plan.c_order || plan.swap_nbytes != 0) return nullptr;
  auto sink = make_sink(query, layout.chunk_shape, layout.itemsize());
  if (!sink.ordered()) return nullptr;
  return reinterpret_cast<std::uint8_t*>(sink.direct(0, layout.chain.decoded_nbytes()));
}

// Threads that fetch a slab; of packing, each decodes a chunk at a time.
inline std::size_t threads_of_slab(const Request& request,
                                   const StoredArray& array,
                                   FetchFor purpose) {
  int threads = thread_count();
  if (purpose == FetchFor::packing) {
    threads = request.threads_for(array.layout);
  } else if (array.driver.local() && request.config().threads == 0) {
    threads = std::min(threads, kMostFetchThreads);
  }
  return static_cast<std::size_t>(threads);
}

// What is asked for together, of those that are stored.
template <typename Query>
FetchList list_of_slab(const FetchPlan& plan,
                       const ArrayLayout& layout,
                       const std::vector<Chunk<Query>>& chunks,
                       std::size_t batch) {
  return plan.list(chunks.size(), batch, [&](std::size_t i) {
    const Chunk<Query>& chunk = chunks[i];
    return chunk.missing ? std::nullopt
                         : std::optional(WantedChunk{chunk.query.size() * layout.itemsize(),
                                                     chunk.level->index.get(),
                                                     chunk.range});
  });
}

// Brings the chunks of one slab.
class SlabSource {
 public:
  virtual ~SlabSource() = default;
  // So many threads do this at once, until nothing is left to begin.
  virtual std::size_t threads() const = 0;
  virtual void work() = 0;
};

template <typename Query>
class SlabFetch final : public SlabSource {
 public:
  using Chunks = std::vector<Chunk<Query>>;

  // `check` is called at short intervals, and may throw. `purpose`: of packing, the host decodes
  // all chunks. `gds`: null, or the way of what a device decodes.
  SlabFetch(const Request& request,
            FunctionRef<void()> check,
            const StoredArray& array,
            Backend& backend,
            int device,
            FetchFor purpose,
            Gds* gds,
            Chunks& chunks,
            SlabMemory& memory)
      : check_(check),
        array_(array),
        layout_(array.layout),
        backend_(backend),
        device_(device),
        // Of elements of variable length the host has to see how many bytes they are.
        mapped_(request.config().device_mapped == "on" && !array.layout.variable_length()),
        purpose_(purpose),
        gds_(gds),
        chunks_(chunks),
        memory_(memory),
        threads_(threads_of_slab(request, array, purpose)),
        plan_(array, request, purpose, threads_) {
    const std::size_t batch = gds && gds->forced() ? 0 : plan_.objects_at_once(chunks.size());
    list_ = list_of_slab(plan_, layout_, chunks, batch);
    const std::size_t n = list_.requests.size();
    look_ahead(batch);
    is_few_ = n < std::min(kSeveral, 2 * threads_) || 2 * n <= threads_;
    least_slice_ = n < kSeveral ? kLeastSlice : kLeastSliceOfSeveral;
    if (n < 2 * threads_) threads_each_ = request.threads_for(layout_);
    threads_ = std::min(threads_, list_.requests.size());
  }

  std::size_t threads() const override { return threads_; }
  void work() override {
    Objects objects;
    try {
      for (std::size_t i; (i = next_.fetch_add(1)) < list_.requests.size();) {
        check_();
        runs_ahead_->before(i, [&](const FetchRequest& next) { return asked_of(next); });
        objects_ahead_->before(i, [&](std::size_t next) { return key_of(next); });
        fetch(list_.requests[i], objects);
      }
    } catch (...) {
      next_ = list_.requests.size();
      throw;
    }
  }

 private:
  // Of one thread, kept for its next requests.
  struct Objects {
    std::vector<Buffer> buffers;
    std::vector<GetRequest> requests;
  };

  // Of what the host reads.
  void look_ahead(std::size_t batch) {
    const bool one_by_one = !gds_ && batch == 0 && layout_.shards.empty();
    const bool in_parts = !chunks_.empty() && is_part(layout_,
                                                      chunks_[0].query.size() * layout_.itemsize(),
                                                      layout_.chain.decoded_nbytes());
    runs_ahead_.emplace(list_);
    objects_ahead_.emplace(array_.driver,
                           one_by_one && !in_parts ? list_.requests.size() : 0,
                           object_part(layout_.chain),
                           layout_.chain.decoded_nbytes(),
                           [&](std::size_t request) { return key_of(request); });
  }

  // Of a chunk outside of shards.
  std::string key_of(const Chunk<Query>& chunk) const {
    return object_key(array_, *chunk.level, chunk.position);
  }
  // Of the one of a request.
  std::string key_of(std::size_t request) { return key_of(chunk_of(list_.requests[request], 0)); }

  const ObjectReader* asked_of(const FetchRequest& request) {
    const ChunkLevel<Query>& shard = *chunk_of(request, 0).level;
    return gds_ || !wants_parts(shard) ? nullptr : shard.reader.get();
  }

  void fetch(const FetchRequest& request, Objects& objects) {
    switch (request.kind) {
      case FetchRequest::Kind::alone:
        return fetch_one(chunk_of(request, 0));
      case FetchRequest::Kind::batch:
        return fetch_batch(request, objects);
      case FetchRequest::Kind::runs:
        return fetch_runs(request);
    }
  }

  Chunk<Query>& chunk_of(const FetchRequest& request, std::size_t i) {
    return chunks_[list_.chunks_of(request)[i]];
  }

  void fetch_one(Chunk<Query>& chunk) {
    at(chunk, [&] {
      Coordinates coordinates;
      Query query;
      chunk.level->cut.child(chunk.position, coordinates.at, query);
      const auto stored = find_stored(array_, *chunk.level, coordinates);
      chunk.missing = !stored;
      if (!stored) return;
      chunk.range = stored->range;
      if (is_packed(layout_, purpose_, chunk.query) || plan_.is_swollen(chunk.range.nbytes)) {
        pack(layout_, chunk, memory_, [&](const Query& packed) {
          read_chunk(layout_, *stored->reader, chunk.range, packed, decode_context());
        });
      } else {
        const auto file = gds_ ? gds_->open(*stored->reader) : nullptr;
        const ObjectReader& reader = *stored->reader;
        if (const auto piece = file ? std::nullopt : map(reader, chunk.range, &chunk))
          return take_unseen(reader, chunk, *piece, 0);
        const Sharing sharing = sharing_of(reader, file.get(), chunk.range.nbytes);
        const SlabMemory::Piece piece = reserve(reader, file.get(), chunk.range, sharing, &chunk);
        chunk.missing =
            !unless_removed([&] { bring(reader, file.get(), chunk.range, sharing, piece); });
        if (!chunk.missing) take(chunk, piece);
        memory_.filled(piece);
      }
    });
  }

  // Whole objects, by one call of the store.
  void fetch_batch(const FetchRequest& request, Objects& objects) {
    objects.buffers.resize(std::max(objects.buffers.size(), request.count));
    objects.requests.clear();
    for (std::size_t i = 0; i < request.count; ++i) {
      objects.requests.push_back({key_of(chunk_of(request, i)),
                                  &objects.buffers[i],
                                  false,
                                  nullptr,
                                  max_encoded_nbytes(layout_.chain)});
    }
    array_.driver.get_many(objects.requests);
    for (std::size_t i = 0; i < request.count; ++i) {
      Chunk<Query>& chunk = chunk_of(request, i);
      const GetRequest& object = objects.requests[i];
      BatchedObject result{};
      at(chunk, [&] { result = plan_.result_of(object); });
      switch (result) {
        case BatchedObject::whole:
          take_whole(chunk, object.into->bytes());
          break;
        case BatchedObject::missing:
          chunk.missing = true;
          break;
        case BatchedObject::reopen:
          fetch_one(chunk);
      }
    }
  }

  void take_whole(Chunk<Query>& chunk, ConstBytes encoded) {
    chunk.range = {0, encoded.size()};
    if (purpose_ == FetchFor::packing) {
      at(chunk, [&] { decode(chunk, encoded); });
    } else {
      const SlabMemory::Piece piece = memory_.reserve(encoded.size());
      if (!encoded.empty()) std::memcpy(piece.host, encoded.data(), encoded.size());
      at(chunk, [&] { take(chunk, piece); });
      memory_.filled(piece);
    }
  }

  // Of one shard.
  void fetch_runs(const FetchRequest& request) {
    std::vector<Buffer> buffers(request.runs.size());  // where the host decodes
    std::vector<SlabMemory::Piece> pieces;
    const bool found = unless_removed(
        [&] { at(chunk_of(request, 0), [&] { bring_runs(request, buffers, pieces); }); });
    for (std::size_t r = 0; r < pieces.size(); ++r) {
      const FetchRequest::Run& run = request.runs[r];
      for (const std::size_t i : list_.chunks_of(run)) {
        Chunk<Query>& chunk = chunks_[i];
        const auto offset = static_cast<std::size_t>(chunk.range.offset - run.range.offset);
        const auto nbytes = static_cast<std::size_t>(chunk.range.nbytes);
        at(chunk, [&] {
          if (!found) {
            chunk.missing = true;
          } else if (purpose_ == FetchFor::packing) {
            decode(chunk, ConstBytes(buffers[r]).subspan(offset, nbytes));
          } else if (!pieces[r].host) {
            take_unseen(*chunk.level->reader, chunk, pieces[r], offset);
          } else {
            take(chunk, pieces[r], offset);
          }
        });
      }
      memory_.filled(pieces[r]);
    }
  }

  void bring_runs(const FetchRequest& request,
                  std::vector<Buffer>& buffers,
                  std::vector<SlabMemory::Piece>& pieces) {
    const std::shared_ptr<const ObjectReader>& reader = chunk_of(request, 0).level->reader;
    const auto file = gds_ && purpose_ == FetchFor::device ? gds_->open_shard(reader) : nullptr;
    std::vector<std::byte*> targets;
    for (std::size_t r = 0; r < request.runs.size(); ++r) {
      const ByteRange& range = request.runs[r].range;
      if (purpose_ == FetchFor::packing) {
        buffers[r].resize(checked_encoded_nbytes(range.nbytes));
        pieces.push_back({buffers[r].data()});
      } else {
        const auto members = list_.chunks_of(request.runs[r]);
        Chunk<Query>* const alone = members.size() == 1 ? &chunks_[members[0]] : nullptr;
        const auto mapped = file ? std::nullopt : map(*reader, range, alone);
        const Sharing sharing = sharing_of(*reader, file.get(), range.nbytes);
        pieces.push_back(mapped ? *mapped : reserve(*reader, file.get(), range, sharing, alone));
      }
      targets.push_back(pieces.back().host);
    }
    if (purpose_ == FetchFor::packing || !array_.driver.local())
      return read_runs(array_.driver, *reader, request.runs, targets, threads_each_);
    for (std::size_t r = 0; r < request.runs.size(); ++r) {
      const ByteRange& range = request.runs[r].range;
      if (pieces[r].host || file)
        bring(*reader, file.get(), range, sharing_of(*reader, file.get(), range.nbytes), pieces[r]);
    }
  }

  // How a range is read.
  struct Sharing {
    int threads = 1;
    std::size_t part_nbytes = kReadPiece;  // at a time, by several threads or where they are copied
    bool in_parts = false;                 // each is copied by itself
  };

  Sharing sharing_of(const ObjectReader& reader, const GdsFile* gds, std::uint64_t nbytes) const {
    const int threads = nbytes < kLeastShared ? 1 : threads_each_;
    if (gds || !array_.driver.local()) return {threads};
    const std::size_t n = checked_encoded_nbytes(nbytes);
    if (reader.file() < 0 || !is_few_) return {threads, part_nbytes(n, threads), threads > 1};
    if (n < kLeastSliced) return {};
    return {std::min(threads_each_, kMostSharers),
            std::clamp(n / kMostSlices, least_slice_, kReadPiece),
            true};
  }

  // Bytes of a file in memory, copied by the device from where they lie; nothing where they are not
  // to come so. `alone`: the chunk, if they are of one.
  std::optional<SlabMemory::Piece> map(const ObjectReader& reader,
                                       const ByteRange& range,
                                       Chunk<Query>* alone) {
    if (!mapped_ || purpose_ != FetchFor::device) return std::nullopt;
    const std::size_t nbytes = checked_encoded_nbytes(range.nbytes);
    auto parts = MappedFiles::get().find(
        backend_, device_, reader.file(), reader.size(), range.offset, nbytes);
    if (parts.empty()) return std::nullopt;
    std::uint8_t* const target = alone ? target_in_place(*alone, nbytes) : nullptr;
    if (target) alone->in_place = true;
    return memory_.reserve_mapped(std::move(parts), nbytes, target);
  }

  // Of bytes that went past the host it reads no more than what it checks by itself. Headers are
  // read by the device in what it got: of a mapped file others may change the bytes meanwhile.
  void take_unseen(const ObjectReader& reader,
                   Chunk<Query>& chunk,
                   const SlabMemory::Piece& piece,
                   std::size_t offset) {
    const DevicePlan& plan = layout_.devices.decode;
    std::vector<std::byte> begin(std::min(checked_nbytes_of(plan), chunk.encoded_nbytes()));
    if (!begin.empty()) reader.read(chunk.range.offset, begin);
    check_encoded(plan, layout_.chain.decoded_nbytes(), chunk.encoded_nbytes(), begin.data());
    chunk.device = piece.device + offset;
  }

  // For encoded bytes that come by way of the host or, from a file, straight to the device.
  // `alone`: the chunk, if they are of one. What is read past the page cache (O_DIRECT) gets memory
  // that lies to blocks as the bytes do in the file, and needs no copy on the host then.
  SlabMemory::Piece reserve(const ObjectReader& reader,
                            const GdsFile* file,
                            const ByteRange& range,
                            const Sharing& sharing,
                            Chunk<Query>* alone) {
    const std::size_t nbytes = checked_encoded_nbytes(range.nbytes);
    if (file) return memory_.reserve_on_device(nbytes);
    const bool direct = array_.driver.has_files() && reader.file() < 0;
    const bool in_parts = sharing.in_parts;
    if (std::uint8_t* const target = alone ? target_in_place(*alone, nbytes) : nullptr) {
      alone->in_place = true;
      return memory_.reserve_in_place(
          target, nbytes, in_parts, direct ? kDirectAlignment : 1, range.offset);
    }
    if (!direct) return in_parts ? memory_.reserve_for_parts(nbytes) : memory_.reserve(nbytes);
    const std::size_t room = nbytes + kDirectAlignment;
    SlabMemory::Piece piece = in_parts ? memory_.reserve_for_parts(room) : memory_.reserve(room);
    const auto at = reinterpret_cast<std::uintptr_t>(piece.host);
    const std::size_t shift = (range.offset - at) % kDirectAlignment;
    piece.host += shift;
    piece.device += shift;
    return piece;
  }

  std::uint8_t* target_in_place(const Chunk<Query>& chunk, std::size_t nbytes) const {
    if (!layout_.devices.decode.steps.empty() || nbytes != layout_.chain.decoded_nbytes())
      return nullptr;
    if (nbytes < (chunks_.size() <= kFewChunks ? kLeastOfFew : kLeastInPlace)) return nullptr;
    return direct_target(layout_, chunk.query);
  }

  void bring(const ObjectReader& reader,
             const GdsFile* file,
             const ByteRange& range,
             const Sharing& sharing,
             const SlabMemory::Piece& piece) {
    const auto nbytes = static_cast<std::size_t>(range.nbytes);
    const bool whole = sharing.threads == 1 && !sharing.in_parts;
    const std::size_t part = whole ? std::max<std::size_t>(nbytes, 1) : sharing.part_nbytes;
    const auto bring_part = [&](std::size_t i) {
      const std::size_t at = i * part, n = std::min(part, nbytes - at);
      if (file) return file->read(range.offset + at, piece.device + at, n);
      reader.read(range.offset + at, {piece.host + at, n});
      memory_.filled_part(piece, at, n);
    };
    parallel_for((nbytes + part - 1) / part, bring_part, sharing.threads);
  }

  // Of a range that threads share.
  static std::size_t part_nbytes(std::size_t nbytes, int threads) {
    const std::size_t parts = static_cast<std::size_t>(threads) * kLeastPart;
    return std::min((nbytes + parts - 1) / parts * kLeastPart, kReadPiece);
  }

  void take(Chunk<Query>& chunk, const SlabMemory::Piece& piece, std::size_t offset = 0) {
    take_encoded(backend_, layout_, chunk, piece, offset);
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
      throw located(array_, *chunk.level, chunk.position, error);
    }
  }

  const FunctionRef<void()> check_;
  const StoredArray& array_;
  const ArrayLayout& layout_;
  Backend& backend_;
  const int device_;
  const bool mapped_;  // whether files in memory come from where they lie
  const FetchFor purpose_;
  Gds* const gds_;
  Chunks& chunks_;
  SlabMemory& memory_;
  std::size_t threads_;
  const FetchPlan plan_;
  bool is_few_ = false;  // requests, for the threads that there are
  std::size_t least_slice_ = kLeastSlice;
  int threads_each_ = 1;
  FetchList list_;
  std::optional<RunsAhead> runs_ahead_;
  std::optional<ObjectsAhead> objects_ahead_;
  std::atomic<std::size_t> next_{0};
};

}  // namespace headrace
