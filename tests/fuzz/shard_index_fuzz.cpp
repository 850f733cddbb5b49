// Hostile shards: the index of a shard of four inner chunks, then the whole shard through the
// codec. The first byte picks where the index lies and how it is encoded.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/bytes.h"
#include "codec/shard_index.h"
#include "headrace/codec.h"
#include "headrace/error.h"

using namespace headrace;

namespace {

void check_index(ConstBytes shard, bool at_end, bool checksum) {
  std::vector<CodecSpec> codecs = {codec::bytes()};
  if (checksum) codecs.push_back(codec::crc32c());
  const CodecChain chain = shard_index_chain(codecs, {2, 2}, {});
  const std::size_t nbytes = shard_index_nbytes(chain);
  if (shard.size() < nbytes) return;
  const ConstBytes encoded = at_end ? shard.last(nbytes) : shard.first(nbytes);
  const ShardIndex index = decode_shard_index(encoded, chain, shard.size());
  for (std::int64_t i = 0; i < index.count; ++i) {
    if (!index.has(i)) continue;
    if (index.offset(i) > shard.size() || index.nbytes(i) > shard.size() - index.offset(i))
      std::abort();
  }
  // What was accepted, written again and read again is the same.
  Buffer again;
  encode_shard_index(index, chain, again);
  if (decode_shard_index(again, chain, shard.size()).entries != index.entries) std::abort();
}

void decode_shard(ConstBytes shard, bool at_end, bool checksum) {
  std::vector<CodecSpec> index_codecs = {codec::bytes()};
  if (checksum) index_codecs.push_back(codec::crc32c());
  const std::vector<CodecSpec> inner = {codec::bytes(), codec::zstd(1)};
  ChunkSpec chunk;
  chunk.dtype = DType::int16;
  chunk.shape = {4, 4};
  const CodecChain chain(
      {codec::sharding({2, 2}, inner, index_codecs, at_end ? "end" : "start")}, chunk, {});
  std::vector<std::byte> out(chain.decoded_nbytes());
  chain.decode(shard, out, {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool at_end = (data[0] & 1) != 0;
  const bool checksum = (data[0] & 2) != 0;
  const ConstBytes shard(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  for (auto* step : {check_index, decode_shard}) {
    try {
      step(shard, at_end, checksum);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::corrupt) std::abort();
    }
  }
  return 0;
}
