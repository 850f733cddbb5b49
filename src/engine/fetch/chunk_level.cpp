#include "engine/fetch/chunk_level.h"

#include <algorithm>

#include "codec/scratch.h"
#include "engine/query/inner_order.h"

namespace headrace {

std::shared_ptr<const ShardIndex> load_shard_index(RequestContext& context,
                                                   const ShardLevel& level,
                                                   const std::string& key,
                                                   const ObjectReader& reader,
                                                   const ByteRange& range) {
  IndexCache& cache = context.state.shared()->index_cache;
  // What lies in memory already is not kept once more.
  const std::uint64_t version = reader.mapped().empty() ? reader.version() : 0;
  // A nested shard may begin where the one around it does: its depth tells them apart.
  const auto depth = &level - context.layout.shards.data();
  const std::string place =
      depth == 0 ? key : key + '@' + std::to_string(depth) + '@' + std::to_string(range.offset);
  if (version != 0) {
    if (auto index = cache.find(place, version)) return index;
  }
  if (range.nbytes < level.index_nbytes) {
    throw Error(ErrorCode::corrupt,
                "shard of " + std::to_string(range.nbytes) +
                    " bytes is shorter than its index, expected " +
                    std::to_string(level.index_nbytes) + " bytes for that");
  }
  check_inner_count(level.inner_grid);
  const std::uint64_t in_shard = level.index_at_end ? range.nbytes - level.index_nbytes : 0;
  Scratch encoded(level.index_nbytes);
  reader.read(range.offset + in_shard, encoded.bytes());
  auto index = std::make_shared<const ShardIndex>(
      decode_shard_index(encoded.bytes(), level.index_chain, range.nbytes));
  if (version != 0) cache.put(place, version, index);
  return index;
}

// Measured on a warm page cache: a system call costs less than a copy of 16 KiB.
std::vector<RangeGroup> near_groups(const RequestContext& context,
                                    std::span<const ByteRange> ranges,
                                    std::uint64_t local_run) {
  constexpr std::uint64_t kLocalGap = 16 << 10;
  if (context.driver.local()) return coalesce(ranges, {kLocalGap, local_run});
  const Coalescing configured{context.config.coalesce_gap, context.config.coalesce_run};
  return coalesce(ranges, context.driver.coalescing().value_or(configured));
}

std::size_t asked_at_once(const RequestContext& context,
                          std::span<const RangeGroup> groups,
                          std::uint64_t nbytes) {
  if (context.driver.local()) return 1;
  std::size_t n = 0;
  for (; n < groups.size() && groups[n].range.nbytes <= nbytes; ++n)
    nbytes -= groups[n].range.nbytes;
  return std::max<std::size_t>(n, 1);
}

}  // namespace headrace
