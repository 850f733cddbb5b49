#include "engine/layout/region_layouts.h"

#include "format/chunk_grid.h"

namespace headrace {
namespace {

// So many are kept: months have four lengths.
constexpr std::size_t kMaxLayouts = 256;

}  // namespace

std::shared_ptr<const ArrayLayout> RegionLayouts::of(const Shape& stored_shape) {
  {
    ForkLock lock(mutex_);
    if (const auto known = layouts_.find(stored_shape); known != layouts_.end())
      return known->second;
  }
  auto made =
      std::make_shared<const ArrayLayout>(make_layout(metadata_, implementations_, stored_shape));
  decltype(layouts_) dropped;  // after the lock: codecs may be the application's
  ForkLock lock(mutex_);
  if (layouts_.size() >= kMaxLayouts) layouts_.swap(dropped);
  layouts_.emplace(stored_shape, made);
  return made;
}

std::shared_ptr<const ArrayLayout> RegionLayouts::at(const std::vector<std::int64_t>& coordinates) {
  return of(shape_of_chunk(coordinates, metadata_->chunk_shape, metadata_->chunk_edges));
}

}  // namespace headrace
