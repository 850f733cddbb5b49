#pragma once

// The index of a shard: where each inner chunk lies.
// https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/index.html
// The engine reads shards with these functions and a range reader; the sharding codec uses them for
// shards that must be decoded whole.

#include <cstdint>
#include <limits>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "codec/chain.h"

namespace headrace {

struct ShardIndex {
  static constexpr std::uint64_t kEmpty = std::numeric_limits<std::uint64_t>::max();

  struct Range {
    std::uint64_t offset;
    std::uint64_t nbytes;
  };

  // (offset, nbytes) of each inner chunk in C order of the grid; kEmpty twice when it is missing.
  std::vector<std::uint64_t> entries;
  std::int64_t count = 0;          // inner chunks
  std::uint64_t shard_nbytes = 0;  // of the shard that a decoded index is of

  // All missing.
  static ShardIndex empty(std::int64_t count);

  bool has(std::int64_t i) const { return offset(i) != kEmpty || nbytes(i) != kEmpty; }
  // Of an inner chunk that is not missing: some bytes of the shard, `corrupt` otherwise. Ranges may
  // overlap one another and the index: no decoder is misled by that.
  Range range(std::int64_t i) const;
  void set(std::int64_t i, std::uint64_t offset, std::uint64_t nbytes) {
    entries[2 * static_cast<std::size_t>(i)] = offset;
    entries[2 * static_cast<std::size_t>(i) + 1] = nbytes;
  }

 private:
  std::uint64_t offset(std::int64_t i) const { return entries[2 * static_cast<std::size_t>(i)]; }
  std::uint64_t nbytes(std::int64_t i) const {
    return entries[2 * static_cast<std::size_t>(i) + 1];
  }
};

// The chain of `index_codecs` over an index of `chunks_per_shard` (extents of the grid of inner
// chunks). `invalid_argument` when its encoded size is not fixed.
CodecChain shard_index_chain(const std::vector<CodecSpec>& index_codecs,
                             const Shape& chunks_per_shard,
                             const Implementations& implementations);

// Encoded size of an index of that chain.
std::size_t shard_index_nbytes(const CodecChain& index_chain);

// Entries are checked when they are used: one that lies spoils no other inner chunk.
ShardIndex decode_shard_index(ConstBytes encoded,
                              const CodecChain& index_chain,
                              std::uint64_t shard_nbytes);

void encode_shard_index(const ShardIndex& index, const CodecChain& index_chain, Buffer& encoded);

}  // namespace headrace
