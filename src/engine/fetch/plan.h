#pragma once

// What a store is asked for together, decided here for every read, to the host's memory or to a
// device's:
//  1. Small objects come in batches, where a store gains by them: objects_at_once().
//  2. Inner chunks of a shard that lie near each other come as one range, a run. Of a store across
//     a network several runs are one request: list().
//  3. All other chunks come alone: their reader is asked for as much of them as is wanted.
// Where a read needs bytes that another does not, or has them elsewhere until they are decoded,
// that is a FetchFor; nothing else tells them apart.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "engine/fetch/in_flight.h"
#include "engine/request/request.h"
#include "engine/request/stored_array.h"
#include "store/coalesce.h"
#include "store/store.h"

namespace headrace {

// What becomes of encoded bytes.
enum class FetchFor : std::uint8_t {
  caller,   // the thread that fetched them decodes them into the caller's memory
  packing,  // it decodes what is wanted of them into memory that is copied to a device
  device,   // they are copied to a device, which decodes them
};

// Bytes that the host reads and then decodes or places stay in the L2 cache in between, up to this.
inline constexpr std::size_t kCachedNbytes = std::size_t{256} << 10;

// What one thread reads of a long range where several share it.
inline constexpr std::size_t kReadPiece = std::size_t{4} << 20;

// What is held of the store's bytes at a time by who fetches ahead (engine/fetch/objects.h): a
// batch that is fetched, one in use and one between.
inline constexpr std::size_t kFetchedBatches = 3;

// One of the chunks to be fetched.
struct WantedChunk {
  std::size_t nbytes = 0;       // wanted of it, decoded
  const void* shard = nullptr;  // one for its chunks; null: an object of its own
  ByteRange range{};            // of the shard's object
};

// Chunks that are asked for by one call: the next `count` of FetchList::order.
struct FetchRequest {
  enum class Kind : std::uint8_t { alone, batch, runs };
  // Inner chunks that are read as one range: order[first, first + count).
  struct Run {
    std::size_t first;
    std::size_t count;
    ByteRange range;
  };
  Kind kind;
  std::size_t first;
  std::size_t count = 1;
  std::vector<Run> runs{};
};

struct FetchList {
  std::vector<FetchRequest> requests;
  std::vector<std::size_t> order;  // of the chunks, by requests

  std::span<const std::size_t> chunks_of(const FetchRequest& request) const {
    return std::span(order).subspan(request.first, request.count);
  }
  std::span<const std::size_t> chunks_of(const FetchRequest::Run& run) const {
    return std::span(order).subspan(run.first, run.count);
  }
};

// What a batch has of an object.
enum class BatchedObject : std::uint8_t {
  whole,
  missing,
  reopen,  // what is too large is read in parts
};

// Whether so little is wanted of a chunk, or of several, that it is read where it lies: of what is
// not encoded, less than half.
inline bool is_part(const ArrayLayout& layout, std::size_t wanted_nbytes, std::size_t nbytes) {
  return layout.chain.is_identity() && 2 * wanted_nbytes < nbytes;
}

class FetchPlan {
 public:
  // For `threads` that fetch at a time. Together they hold encoded bytes in half of the budget.
  FetchPlan(const StoredArray& array,
            const Request& request,
            FetchFor purpose,
            std::size_t threads);

  // How many whole objects of `chunks` to ask the store for by one call; 0: open each by itself.
  std::size_t objects_at_once(std::size_t chunks) const;

  // Whether chunks of a shard, so many of them, come by list().
  bool has_runs(const ObjectReader& shard, std::size_t chunks) const;

  // Whether it is encoded much larger than decoded: then it comes alone, and the host decodes it,
  // for pinned memory is dear.
  bool is_swollen(std::uint64_t encoded_nbytes) const;

  // The chunks that wanted(i) gives for i below n, if any, by requests. `batch`: of
  // objects_at_once().
  FetchList list(std::size_t n,
                 std::size_t batch,
                 FunctionRef<std::optional<WantedChunk>(std::size_t i)> wanted) const;

  // Which ranges of one object come as one.
  const Coalescing& near() const { return near_; }

  // What came of one request of a batch; throws its error.
  BatchedObject result_of(const GetRequest& request) const;

 private:
  void add_object(FetchList& list, std::size_t chunk, std::size_t batch) const;
  void add_runs(FetchList& list,
                std::span<const std::size_t> chunks,
                std::span<const ByteRange> ranges) const;
  std::size_t runs_at_once(std::span<const RangeGroup> runs) const;

  const StoreDriver& driver_;
  const ArrayLayout& layout_;
  const FetchFor purpose_;
  const std::size_t threads_;
  const std::size_t held_nbytes_;
  const Coalescing near_;
};

// What of a request is under way at a time, of a store across a network.
ReadsInFlight::Limits limits_of_flight(const Request& request, const AsyncReads& store);

// Reads the runs of one request to where they go, one after the other or, of a store across a
// network, by one call. `threads` share a long run of a local store.
void read_runs(const StoreDriver& driver,
               const ObjectReader& reader,
               std::span<const FetchRequest::Run> runs,
               std::span<std::byte* const> targets,
               int threads);

// Calls body(at, n) for the pieces of `nbytes` bytes, which `threads` share when there are several.
void in_pieces(std::size_t nbytes,
               int threads,
               std::size_t piece_nbytes,
               FunctionRef<void(std::size_t at, std::size_t n)> body);

}  // namespace headrace
