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

struct Case {
  CodecChain index;
  CodecChain shard;

  Case(bool at_end, bool checksum) {
    std::vector<CodecSpec> index_codecs = {codec::bytes()};
    if (checksum) index_codecs.push_back(codec::crc32c());
    index = shard_index_chain(index_codecs, {2, 2}, {});
    ChunkSpec chunk;
    chunk.dtype = DType::int16;
    chunk.shape = {4, 4};
    const std::vector<CodecSpec> inner = {codec::bytes(), codec::zstd(1)};
    shard = CodecChain(
        {codec::sharding({2, 2}, inner, index_codecs, at_end ? "end" : "start")}, chunk, {});
  }
};

template <typename Step>
void expect_corrupt(Step&& step) {
  try {
    step();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::corrupt) std::abort();
  }
}

void check_index(ConstBytes shard, const CodecChain& chain, bool at_end) {
  const std::size_t nbytes = shard_index_nbytes(chain);
  if (shard.size() < nbytes) return;
  const ConstBytes encoded = at_end ? shard.last(nbytes) : shard.first(nbytes);
  const ShardIndex index = decode_shard_index(encoded, chain, shard.size());
  for (std::int64_t i = 0; i < index.count; ++i) {
    if (!index.has(i)) continue;
    expect_corrupt([&] {
      const ShardIndex::Range range = index.range(i);
      if (range.offset > shard.size() || range.nbytes > shard.size() - range.offset) std::abort();
    });
  }
  // What was accepted, written again and read again is the same.
  Buffer again;
  encode_shard_index(index, chain, again);
  if (decode_shard_index(again, chain, shard.size()).entries != index.entries) std::abort();
}

void decode_shard(ConstBytes shard, const CodecChain& chain) {
  std::vector<std::byte> out(chain.decoded_nbytes());
  chain.decode(shard, out, {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Case cases[4] = {{false, false}, {true, false}, {false, true}, {true, true}};
  if (size == 0) return 0;
  const Case& chosen = cases[data[0] & 3];
  const bool at_end = (data[0] & 1) != 0;
  const ConstBytes shard(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  expect_corrupt([&] { check_index(shard, chosen.index, at_end); });
  expect_corrupt([&] { decode_shard(shard, chosen.shard); });
  return 0;
}
