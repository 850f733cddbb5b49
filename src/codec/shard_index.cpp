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
  try {
    index_chain.decode(encoded, std::as_writable_bytes(std::span(index.entries)), {});
  } catch (const Error& e) {
    throw e.with_context("shard index");
  }
  for (std::int64_t i = 0; i < index.count; ++i) {
    const std::uint64_t offset = index.offset(i);
    const std::uint64_t nbytes = index.nbytes(i);
    if (offset == ShardIndex::kEmpty && nbytes == ShardIndex::kEmpty) continue;
    if (nbytes > shard_nbytes || offset > shard_nbytes - nbytes) {
      throw Error(ErrorCode::corrupt,
                  "shard index: inner chunk " + std::to_string(i) + " at " +
                      std::to_string(offset) + " + " + std::to_string(nbytes) +
                      " lies outside the shard of " + std::to_string(shard_nbytes) + " bytes");
    }
  }
  return index;
}

void encode_shard_index(const ShardIndex& index, const CodecChain& index_chain, Buffer& encoded) {
  index_chain.encode(std::as_bytes(std::span(index.entries)), encoded);
}

}  // namespace headrace
