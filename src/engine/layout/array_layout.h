#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "codec/chain.h"
#include "engine/layout/device_plan.h"
#include "engine/layout/encode_plan.h"
#include "format/metadata.h"
#include "headrace/codec.h"
#include "headrace/tensor.h"

namespace headrace {

// One level of sharding: the shape and codecs of its inner chunks' index.
struct ShardLevel {
  Shape shard_shape;
  Shape inner_shape;
  Shape inner_grid;  // inner chunks along each dimension of a shard
  std::int64_t inner_count = 0;
  CodecChain index_chain;
  std::size_t index_nbytes = 0;
  bool index_at_end = true;
};

class RegionLayouts;  // engine/layout/region_layouts.h

// What metadata mean for reading and writing, worked out once. Immutable. Of a rectilinear grid,
// for objects of one shape: that of an array for the largest, which tells what its codecs can do.
struct ArrayLayout {
  std::shared_ptr<const ArrayMetadata> metadata;
  // Outermost first. Empty without sharding, and where sharding stands among other codecs: then the
  // stored object is one chunk and the codec chain holds the sharding codec.
  std::vector<ShardLevel> shards;
  Shape chunk_shape;            // of the unit that is decoded: the innermost chunk
  CodecChain chain;             // of that unit
  std::vector<std::byte> fill;  // one element; of variable length, it points into the metadata
  DevicePlan device_plan;       // of the chain
  EncodePlan encode_plan;
  // Codecs of the chain that were asked to be decoded on a type of device: "headrace-cuda", ...
  Implementations on_device;

  std::shared_ptr<RegionLayouts> regions;  // of an array with a rectilinear grid, else null

  const Shape& stored_shape() const {
    return shards.empty() ? chunk_shape : shards.front().shard_shape;
  }
  std::size_t itemsize() const { return metadata->dtype.itemsize(); }
  bool variable_length() const { return metadata->dtype.variable_length(); }
};

// invalid_argument when a read to this type of device, or a write from it, goes against the
// layout's on_device.
void check_on_device(const ArrayLayout& layout, Device::Type type);

ArrayLayout make_layout(std::shared_ptr<const ArrayMetadata> metadata,
                        const Implementations& implementations);
// For objects of one shape; without `regions`.
ArrayLayout make_layout(std::shared_ptr<const ArrayMetadata> metadata,
                        const Implementations& implementations,
                        const Shape& stored_shape);

}  // namespace headrace
