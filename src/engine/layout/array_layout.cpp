#include "engine/layout/array_layout.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "codec/registry.h"
#include "codec/shard_index.h"
#include "codec/vlen.h"
#include "engine/layout/device_codecs.h"
#include "engine/layout/region_layouts.h"

namespace headrace {
namespace {

std::vector<std::byte> fill_element(const ArrayMetadata& m) {
  if (!m.dtype.variable_length()) {
    return m.fill_value.value_or(std::vector<std::byte>(m.dtype.itemsize()));
  }
  VlenElement element;
  if (m.fill_value) element = {m.fill_value->data(), m.fill_value->size()};
  // JSON has no empty value.
  if (m.dtype.kind() == DType::Kind::object && element.nbytes == 0) element = vlen_element("null");
  std::vector<std::byte> bytes(sizeof element);
  std::memcpy(bytes.data(), &element, sizeof element);
  return bytes;
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
  Implementations implementations;
  for (const auto& [codec, name] : chosen) {
    (device_of_implementation(name) ? layout.on_device : implementations)[codec] = name;
  }
  layout.metadata = std::move(metadata);
  const ArrayMetadata& m = *layout.metadata;
  layout.fill = fill_element(m);
  const auto fill = std::make_shared<const std::vector<std::byte>>(layout.fill);

  layout.chunk_shape = stored_shape;
  std::vector<CodecSpec> codecs = m.codecs;
  while (codecs.size() == 1 && is_sharding_codec(codecs[0].name)) {
    const ShardingConfig config = parse_sharding(codecs[0]);
    ShardLevel level;
    level.shard_shape = layout.chunk_shape;
    level.inner_shape = config.chunk_shape;
    level.index_at_end = config.index_at_end;
    if (level.inner_shape.size() != m.ndim()) {
      throw Error(ErrorCode::corrupt,
                  "sharding: inner chunks have " + std::to_string(level.inner_shape.size()) +
                      " dimensions, the array " + std::to_string(m.ndim()));
    }
    level.inner_count = 1;
    for (std::size_t d = 0; d < m.ndim(); ++d) {
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
    layout.chunk_shape = level.inner_shape;
    codecs = config.codecs;
    layout.shards.push_back(std::move(level));
  }
  layout.chain = CodecChain(codecs, {m.dtype, layout.chunk_shape, fill}, implementations);
  layout.device_plan = make_device_plan(layout.chain);
  for (DeviceStep& step : layout.device_plan.steps) {
    const auto choice = layout.on_device.find(step.codec);
    if (choice != layout.on_device.end() && only_decodes(choice->second))
      step.library = choice->second;
  }
  std::erase_if(layout.on_device, [&](const auto& choice) {
    return std::ranges::none_of(codecs, [&](const CodecSpec& spec) {
      return canonical_codec_name(spec.name) == choice.first;
    });
  });
  for (const CodecSpec& spec : codecs) {
    const auto on_host = implementations.find(canonical_codec_name(spec.name));
    if (on_host == implementations.end()) continue;
    layout.device_plan.why_not =
        "codec " + spec.name + ": implementation " + on_host->second + " is asked for";
  }
  layout.encode_plan = make_encode_plan(layout.chain, layout.device_plan);
  return layout;
}

void check_on_device(const ArrayLayout& layout, Device::Type type) {
  for (const auto& [codec, name] : layout.on_device) {
    if (device_of_implementation(name) == type) continue;
    throw Error(ErrorCode::invalid_argument,
                "implementation " + name + " of codec " + codec +
                    " is for devices of that type only, the array is on another");
  }
}

}  // namespace headrace
