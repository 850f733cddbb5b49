#include "engine/fetch/chunk_level.h"

#include <algorithm>

#include "codec/scratch.h"
#include "engine/query/inner_order.h"

namespace headrace {

void check_holds_index(std::uint64_t shard_nbytes, std::size_t index_nbytes) {
  if (shard_nbytes >= index_nbytes) return;
  throw Error(ErrorCode::corrupt,
              "shard of " + std::to_string(shard_nbytes) +
                  " bytes is shorter than its index, expected " + std::to_string(index_nbytes) +
                  " bytes for that");
}

std::string index_place(const std::string& key, std::size_t depth, std::uint64_t offset) {
  if (depth == 0) return key;
  return key + '@' + std::to_string(depth) + '@' + std::to_string(offset);
}

std::shared_ptr<const ShardIndex> load_shard_index(const StoredArray& array,
                                                   const ShardLevel& level,
                                                   const std::string& key,
                                                   const ObjectReader& reader,
                                                   const ByteRange& range) {
  IndexCache& cache = array.state.shared()->index_cache;
  // What lies in memory already is not kept once more.
  const std::uint64_t version = reader.mapped().empty() ? reader.version() : 0;
  const auto depth = static_cast<std::size_t>(&level - array.layout.shards.data());
  const std::string place = index_place(key, depth, range.offset);
  if (version != 0) {
    if (auto index = cache.find(place, version)) return index;
  }
  check_holds_index(range.nbytes, level.index_nbytes);
  check_inner_count(level.inner_grid);
  const std::uint64_t in_shard = level.index_at_end ? range.nbytes - level.index_nbytes : 0;
  Scratch encoded(level.index_nbytes);
  reader.read(range.offset + in_shard, encoded.bytes());
  auto index = std::make_shared<const ShardIndex>(
      decode_shard_index(encoded.bytes(), level.index_chain, range.nbytes));
  if (version != 0) cache.put(place, version, index);
  return index;
}

}  // namespace headrace
