#pragma once

// Every bound on what may come from outside, in one place: what a document, a folder or a shard
// says beyond one is an error that names the bound, before memory or time is spent on it. None is
// near what data in the wild has; each has its reason. What bounds one format alone (fields of a
// zip directory, bytes of a blosc header) stays with its parser.

#include <cstddef>
#include <cstdint>

namespace headrace {

// Of an array, a chunk and a selection: NumPy's own limit. Coordinates lie on the stack in arrays
// of so many.
inline constexpr std::size_t kMaxDimensions = 64;

// Of one metadata document, in bytes. A consolidated store of 100,000 arrays has about 100 MB; a
// document is held once as it was read and once in parts.
inline constexpr std::size_t kMaxDocumentNbytes = std::size_t{256} << 20;

// Of one list or object of a document that is taken apart, in elements. The largest are the tables
// of consolidated metadata, a node each, and the chunk extents of rectilinear grids; an element
// costs some 100 bytes beside the document. Lists of which a length is known by what they are
// (a shape, codecs) have that as their bound.
inline constexpr std::size_t kMaxJsonElements = std::size_t{1} << 20;

// Of lists and objects within each other. Nesting costs stack; Python's reader stops near a
// thousand, documents have ten.
inline constexpr int kMaxJsonDepth = 200;

// Of groups within each other. A folder that links to one of those above it would never end.
inline constexpr std::size_t kMaxGroupDepth = 64;

// Of one group, as its members are listed: each costs the memory of its documents. A member beyond
// them can still be opened by its path.
inline constexpr std::size_t kMaxMembers = std::size_t{1} << 20;

// Of one walk through groups, groups and arrays: links between groups make more paths through them
// than memory holds, whatever the depth.
inline constexpr std::size_t kMaxWalkNodes = std::size_t{1} << 20;

// Of one array, and of shards within shards.
inline constexpr std::size_t kMaxCodecs = 64;
inline constexpr int kMaxShardNesting = 8;

// Of one chunk as it is decoded, in bytes: sizes within it can be added and multiplied by what
// codecs add without a look at each sum. Memory is a matter of what the machine has.
inline constexpr std::uint64_t kMaxChunkNbytes = std::uint64_t{1} << 48;

// Of one element, in bytes, and of the fields of a structured type. Whoever opens an array by a
// stranger's document reads a few elements; what is longer is an array, not an element.
inline constexpr std::size_t kMaxItemNbytes = std::size_t{64} << 20;
inline constexpr std::size_t kMaxFields = 1024;
inline constexpr int kMaxFieldNesting = 16;

// Of one chunk as it is encoded: a multiple of what its codecs need at most, and room for small
// chunks. Encoders other than ours may cut finer or put in what nobody reads (zstd's skippable
// frames, members of gzip without bytes), but what is beyond this holds something else.
inline constexpr std::uint64_t kMaxSwelling = 4;
inline constexpr std::uint64_t kSwellingNbytes = std::uint64_t{16} << 20;
// Where codecs have no such bound (text of any length), and of what is read at once.
inline constexpr std::uint64_t kMaxEncodedNbytes = std::uint64_t{1} << 40;

// Of one shard, in inner chunks. The index has 16 bytes for each, and is held whole; so is the
// order of a new shard's inner chunks where it is not C order. Shards of terabytes have a million.
inline constexpr std::size_t kMaxInnerChunks = std::size_t{1} << 26;

}  // namespace headrace
