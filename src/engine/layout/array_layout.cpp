#include "engine/layout/array_layout.h"

#include <cstring>

#include "base/checked.h"
#include "codec/registry.h"
#include "codec/shard_index.h"
#include "codec/vlen.h"
#include "engine/layout/region_layouts.h"
#include "format/fill_value.h"

namespace headrace {
namespace {

std::vector<std::byte> fill_element(const ArrayMetadata& m) {
  if (!m.dtype.variable_length()) {
    return m.fill_value ? *m.fill_value : element_without_fill(m.dtype);
  }
  VlenElement element;
  if (m.fill_value) element = {m.fill_value->data(), m.fill_value->size()};
  // JSON has no empty value.
  if (m.dtype.kind() == DType::Kind::object && element.nbytes == 0) element = vlen_element("null");
  std::vector<std::byte> bytes(sizeof element);
  std::memcpy(bytes.data(), &element, sizeof element);
  return bytes;
}

ShardLevel shard_level(const ShardingConfig& config,
                       const Shape& shard_shape,
                       const Implementations& implementations) {
  const std::size_t ndim = shard_shape.size();
  ShardLevel level;
  level.shard_shape = shard_shape;
  level.inner_shape = config.chunk_shape;
  level.index_at_end = config.index_at_end;
  if (level.inner_shape.size() != ndim) {
    throw Error(ErrorCode::corrupt,
                "sharding: inner chunks have " + std::to_string(level.inner_shape.size()) +
                    " dimensions, the array " + std::to_string(ndim));
  }
  level.inner_count = 1;
  for (std::size_t d = 0; d < ndim; ++d) {
    if (level.inner_shape[d] <= 0 || level.shard_shape[d] % level.inner_shape[d] != 0) {
      throw Error(ErrorCode::corrupt,
                  "sharding: inner chunk extent " + std::to_string(level.inner_shape[d]) +
                      " does not divide the shard's " + std::to_string(level.shard_shape[d]));
    }
    level.inner_grid.push_back(level.shard_shape[d] / level.inner_shape[d]);
    level.inner_count = checked_mul(level.inner_count, level.inner_grid.back(), "inner chunks");
  }
  level.index_chain = shard_index_chain(config.index_codecs, level.inner_grid, implementations);
  level.index_nbytes = shard_index_nbytes(level.index_chain);
  return level;
}

}  // namespace

ArrayLayout make_layout(std::shared_ptr<const ArrayMetadata> metadata,
                        const Implementations& chosen) {
  ArrayLayout layout = make_layout(metadata, chosen, metadata->chunk_shape);
  if (!metadata->chunk_edges.empty())
    layout.regions = std::make_shared<RegionLayouts>(std::move(metadata), chosen);
  return layout;
}

ArrayLayout make_layout(std::shared_ptr<const ArrayMetadata> metadata,
                        const Implementations& chosen,
                        const Shape& stored_shape) {
  ArrayLayout layout;
  const ChosenImplementations implementations = parted(chosen);
  layout.metadata = std::move(metadata);
  const ArrayMetadata& m = *layout.metadata;
  layout.fill = fill_element(m);
  const auto fill = std::make_shared<const std::vector<std::byte>>(layout.fill);

  layout.chunk_shape = stored_shape;
  std::vector<CodecSpec> codecs = m.codecs;
  while (codecs.size() == 1 && is_sharding_codec(codecs[0].name)) {
    const ShardingConfig config = parse_sharding(codecs[0]);
    layout.shards.push_back(shard_level(config, layout.chunk_shape, implementations.on_host));
    layout.chunk_shape = config.chunk_shape;
    codecs = config.codecs;
  }
  layout.chain = CodecChain(codecs, {m.dtype, layout.chunk_shape, fill}, implementations.on_host);
  layout.devices = make_device_coding(layout.chain, codecs, implementations);
  return layout;
}

}  // namespace headrace
