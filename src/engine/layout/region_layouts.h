#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/fork_mutex.h"
#include "engine/layout/array_layout.h"

namespace headrace {

// Layouts of the regions of one array, by the shape of their chunks (shards). Any thread.
class RegionLayouts {
 public:
  RegionLayouts(std::shared_ptr<const ArrayMetadata> metadata, Implementations implementations)
      : metadata_(std::move(metadata)), implementations_(std::move(implementations)) {}

  std::shared_ptr<const ArrayLayout> of(const Shape& stored_shape);
  // Of the object with these coordinates.
  std::shared_ptr<const ArrayLayout> at(const std::vector<std::int64_t>& coordinates);

 private:
  const std::shared_ptr<const ArrayMetadata> metadata_;
  const Implementations implementations_;
  ForkMutex mutex_;
  std::map<Shape, std::shared_ptr<const ArrayLayout>> layouts_ GUARDED_BY(mutex_);
};

}  // namespace headrace
