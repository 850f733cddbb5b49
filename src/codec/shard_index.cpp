#include "codec/shard_index.h"

#include <algorithm>
#include <string>

#include "base/checked.h"

namespace headrace {

ShardIndex ShardIndex::empty(std::int64_t count) {
  ShardIndex index;
  index.count = count;
  index.entries.assign(2 * checked_cast<std::size_t>(count, "inner chunks"), kEmpty);
  return index;
}

ShardIndex::Range ShardIndex::range(std::int64_t i) const {
  const Range r{offset(i), nbytes(i)};
  if (r.nbytes == 0 || r.nbytes > shard_nbytes || r.offset > shard_nbytes - r.nbytes) {
    throw Error(ErrorCode::corrupt,
                "entry " + std::to_string(i) + " of the shard index, " + std::to_string(r.offset) +
                    " + " + std::to_string(r.nbytes) + ", is empty or lies outside the shard of " +
                    std::to_string(shard_nbytes) + " bytes");
  }
  return r;
}

CodecChain shard_index_chain(const std::vector<CodecSpec>& index_codecs,
                             const Shape& chunks_per_shard,
                             const Implementations& implementations) {
  ChunkSpec chunk{DType::uint64, chunks_per_shard, {}};
  chunk.shape.push_back(2);
  CodecChain chain(index_codecs, chunk, implementations);
  if (!chain.fixed_encoded_nbytes()) {
    throw Error(ErrorCode::invalid_argument,
                "sharding index_codecs: the encoded size must be fixed, so no compressor");
  }
  return chain;
}

std::size_t shard_index_nbytes(const CodecChain& index_chain) {
  return *index_chain.fixed_encoded_nbytes();
}

ShardIndex decode_shard_index(ConstBytes encoded,
                              const CodecChain& index_chain,
                              std::uint64_t shard_nbytes) {
  ShardIndex index;
  index.entries.resize(index_chain.decoded_nbytes() / sizeof(std::uint64_t));
  index.count = static_cast<std::int64_t>(index.entries.size() / 2);
  index.shard_nbytes = shard_nbytes;
  try {
    index_chain.decode(encoded, std::as_writable_bytes(std::span(index.entries)), {});
  } catch (const Error& e) {
    throw e.with_context("shard index");
  }
  return index;
}

void encode_shard_index(const ShardIndex& index, const CodecChain& index_chain, Buffer& encoded) {
  index_chain.encode(std::as_bytes(std::span(index.entries)), encoded);
}

}  // namespace headrace
