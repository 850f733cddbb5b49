#pragma once

// How to use it:
//  1. plan_rechunk(source, options) says how a rechunk would go and what it reads and writes.
//  2. rechunk(source, store, path, options) does it, within options.max_memory.
//  3. What was killed or cancelled goes on where it stopped by the same call.
//  4. advise(array, pattern) proposes the chunks to give it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/array.h"

#pragma GCC visibility push(default)
namespace headrace {

// Copies the blocks in any order and calls finished(i), from the calling thread, when blocks[i] is
// in `destination`. No two blocks share a stored object.
using RechunkExecutor = std::function<void(const Array& source,
                                           const Array& destination,
                                           const std::vector<Selection>& blocks,
                                           const std::function<void(std::size_t)>& finished)>;

struct RechunkOptions {
  // A dimension each, -1 for the whole dimension. Empty: those of the source. Of a group's arrays
  // those with as many dimensions take them, the others keep theirs.
  Shape chunks{};
  std::optional<Shape> shards{};  // likewise; none: no shards, empty: chosen, about 64 MiB
  std::optional<std::vector<CodecSpec>> codecs{};  // none: bytes, zstd
  // Half of it for the elements of a block, a quarter, 1 MiB at least, for the scratch of its read
  // and its write. A chunk or shard that needs more scratch takes it even so; with an executor
  // scratch is what the executor makes of it.
  std::size_t max_memory = std::size_t{1} << 30;
  // Remove a node that is there, or what a call with other arguments left halfway. What the same
  // call left goes on.
  bool overwrite = false;
  bool verify = false;  // compare source and destination at the end; `corrupt` names a block
  // Does that for an array where an executor reads something else than the source.
  std::function<void(const Array& source, const Array& destination)> verifier{};
  std::function<void(std::int64_t done_nbytes, std::int64_t total_nbytes)> progress{};
  std::function<void()> poll{};  // as that of ReadOptions
  // Told, of a group, of what lies in it and is not copied: Group::members().
  std::function<void(const NodeLeftOut& node)> left_out{};
  RechunkExecutor executor{};  // none: one block after another, each by all threads
  // What tells the source's elements from others', for a call that goes on, where an executor reads
  // something else than the source. Empty: what tells its store.
  std::string source_name{};
};

// Bytes are those of decoded elements.
struct RechunkPass {
  std::vector<Shape> block_sizes;   // along each dimension the extents of the blocks
  std::int64_t nblocks = 0;         // read and written one by one
  std::int64_t block_nbytes = 0;    // of the largest
  std::int64_t chunks_read = 0;     // chunks decoded; one that n blocks touch counts n times
  std::int64_t nbytes_read = 0;     // of these chunks
  std::int64_t nbytes_written = 0;  // of all blocks
};

struct RechunkPlan {
  std::string path;  // of the array within the group, "" for an array by itself
  Shape chunks;
  std::optional<Shape> shards;
  std::vector<RechunkPass> passes;  // one, or two with an uncompressed array between them

  std::int64_t nbytes_read() const;
  std::int64_t nbytes_written() const;
  double amplification() const;  // bytes read for each byte of the array
};

// One plan an array. `invalid_argument` when a chunk or shard has more than half of max_memory.
std::vector<RechunkPlan> plan_rechunk(const Array& source, const RechunkOptions& options);
std::vector<RechunkPlan> plan_rechunk(const Group& source, const RechunkOptions& options);

// A copy of an array, or of a group and everything below it, in Zarr v3, cut into other chunks. Of
// a group with consolidated metadata the nodes themselves are read: Group::as_stored().
// Attributes, fill values, names of dimensions are kept; a group's metadata are consolidated where
// the source's are; chunks that hold nothing but the fill value are not stored.
//
// Progress is kept under ".rechunk/" of the destination, with what lies between two passes, and
// removed at the end. A call with other arguments than those that began, of another source, or of
// one whose metadata were changed since, is `invalid_argument` until `overwrite` begins anew, and
// so is a destination within the source or around it. Sources are told apart by the names of their
// places; one in memory is the same within the process that has it. An archive (zip) keeps none and
// takes one pass.
void rechunk(const Array& source,
             const Store& store,
             std::string_view path,
             const RechunkOptions& options);
void rechunk(const Group& source,
             const Store& store,
             std::string_view path,
             const RechunkOptions& options);

// Whether a rechunk to this place is at work or has stopped halfway: what it has not written reads
// as the fill value.
bool rechunk_is_unfinished(const Store& store, std::string_view path);

// Whether one of two nodes is within the other, or the same: making room for one would remove the
// other. Files are compared by their real paths, whatever spelling or link leads there.
bool nodes_overlap(const Store& store,
                   std::string_view path,
                   const Store& other_store,
                   std::string_view other_path);

// The attributes, as JSON, of an array's copy in Zarr v3. Of v2 xarray keeps names of dimensions in
// one, and takes the fill value for the mark of missing elements; in v3 names have a place of their
// own, and only the attribute _FillValue is such a mark. Other arrays' attributes stay as they are.
std::string attributes_in_v3(const Array& array);

// How an array is read: boxes of one shape, each place within the array as likely as any other.
struct AccessPattern {
  Shape sample{};          // extents, -1 for a whole dimension
  std::int64_t batch = 1;  // samples at once
};

// Of one sample, on average over all its places, counted from the grid of chunks: a chunk that it
// touches is decoded whole.
struct SampleCost {
  double chunks = 0;
  double nbytes = 0;         // decoded
  double amplification = 0;  // of these for each byte wanted
};

struct Advice {
  SampleCost present;
  SampleCost proposed;
  Shape chunks;
  std::optional<Shape> shards;
  std::vector<CodecSpec> codecs;
};

// The chunks that cost the least, where a chunk costs its decoded bytes and 128 KiB for finding and
// starting on it; at most 16 MiB a chunk, less when a batch has fewer. Fixed-size elements only.
Advice advise(const Array& array, const AccessPattern& pattern);

}  // namespace headrace
#pragma GCC visibility pop
