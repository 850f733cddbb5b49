#include "engine/device/placement.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

bool steps_on(std::int64_t outer, std::int64_t inner, std::int64_t inner_count) {
  return outer == inner * inner_count;
}

}  // namespace

std::ptrdiff_t PlacementList::add_list(const std::int64_t* values, std::int64_t count) {
  const auto at = static_cast<std::ptrdiff_t>(lists_.size());
  lists_.insert(lists_.end(), values, values + count);
  return at;
}

// source_side(d, axis) gives the side of the source and moves `source` to its first element.
template <typename Source>
void PlacementList::add_box(const Box& box, const std::uint8_t* source, Source source_side) {
  auto* target = reinterpret_cast<std::uint8_t*>(box.user);
  std::vector<Line> lines;
  for (std::size_t d = 0; d < box.axes.size(); ++d) {
    const Axis& axis = box.axes[d];
    Line line;
    line.count = axis.count;
    line.from = source_side(d, axis, source);
    if (axis.list) {
      line.to = {1, add_list(axis.user_list, axis.count)};
    } else {
      line.to = {axis.user_step, -1};
      target += axis.user_first;
    }
    if (axis.count != 1 || axis.list) lines.push_back(line);
  }
  add_lines(std::move(lines), source, target);
}

void PlacementList::add_chunk(const Box& box, const std::uint8_t* source, const Shape& strides) {
  add_box(box, source, [&](std::size_t d, const Axis& axis, const std::uint8_t*& first) -> Side {
    if (axis.list) return {strides[d], add_list(axis.list, axis.count)};
    first += axis.first * strides[d];
    return {axis.step * strides[d], -1};
  });
}

void PlacementList::add_packed(const Box& box, const std::uint8_t* source) {
  std::vector<std::int64_t> strides(box.axes.size());
  auto stride = static_cast<std::int64_t>(batch_.itemsize);
  for (std::size_t d = strides.size(); d-- > 0; stride *= box.axes[d].count) strides[d] = stride;
  add_box(box, source, [&](std::size_t d, const Axis&, const std::uint8_t*&) -> Side {
    return {strides[d], -1};
  });
}

void PlacementList::add_fill(const Box& box, const std::uint8_t* source) {
  add_box(box, source, [](std::size_t, const Axis&, const std::uint8_t*&) { return Side{}; });
}

void PlacementList::add_chunk(const Points& points,
                              const std::uint8_t* source,
                              const Shape& strides) {
  Line line;
  line.count = static_cast<std::int64_t>(points.size());
  line.from = {1, static_cast<std::ptrdiff_t>(lists_.size())};
  for (std::size_t i = 0; i < points.size(); ++i) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < points.ndim; ++d)
      offset += points.indices[i * points.ndim + d] * strides[d];
    lists_.push_back(offset);
  }
  line.to = {1, add_list(points.user_offset.data(), line.count)};
  add_lines({line}, source, reinterpret_cast<std::uint8_t*>(points.user));
}

void PlacementList::add_packed(const Points& points, const std::uint8_t* source) {
  Line line;
  line.count = static_cast<std::int64_t>(points.size());
  line.from = {batch_.itemsize, -1};
  line.to = {1, add_list(points.user_offset.data(), line.count)};
  add_lines({line}, source, reinterpret_cast<std::uint8_t*>(points.user));
}

void PlacementList::add_fill(const Points& points, const std::uint8_t* source) {
  Line line;
  line.count = static_cast<std::int64_t>(points.size());
  line.to = {1, add_list(points.user_offset.data(), line.count)};
  add_lines({line}, source, reinterpret_cast<std::uint8_t*>(points.user));
}

// Joins neighbours that step alike on both sides. More axes than the kernel takes become several
// placements.
void PlacementList::add_lines(std::vector<Line> lines,
                              const std::uint8_t* source,
                              std::uint8_t* target) {
  std::vector<Line> joined;
  for (const Line& line : lines) {
    const bool plain = line.from.list < 0 && line.to.list < 0;
    if (plain && !joined.empty()) {
      Line& outer = joined.back();
      if (outer.from.list < 0 && outer.to.list < 0 &&
          steps_on(outer.from.stride, line.from.stride, line.count) &&
          steps_on(outer.to.stride, line.to.stride, line.count)) {
        outer = {outer.count * line.count, line.from, line.to};
        continue;
      }
    }
    joined.push_back(line);
  }
  if (joined.size() > kMaxAxes) {
    const Line outer = joined.front();
    joined.erase(joined.begin());
    for (std::int64_t i = 0; i < outer.count; ++i) {
      const auto at = [&](const Side& side) {
        return side.stride * (side.list < 0 ? i : lists_[static_cast<std::size_t>(side.list + i)]);
      };
      add_lines(joined, source + at(outer.from), target + at(outer.to));
    }
    return;
  }
  Placement placement;
  placement.source = source;
  placement.target = target;
  placements_.push_back(placement);
  batch_.axes = std::max(batch_.axes, static_cast<unsigned>(joined.size()));
  lines_.push_back(std::move(joined));
}

void PlacementList::run_back(Queue& queue, const Kernels& kernels) {
  for (Placement& placement : placements_) {
    std::uint8_t* const source = const_cast<std::uint8_t*>(placement.source);
    placement.source = std::exchange(placement.target, source);
  }
  for (std::vector<Line>& lines : lines_)
    for (Line& line : lines) std::swap(line.from, line.to);
  run(queue, kernels);
}

void PlacementList::run(Queue& queue, const Kernels& kernels) {
  if (placements_.empty()) return;
  batch_.axes = std::max(batch_.axes, 1u);
  Scratch<std::int64_t> lists;
  if (!lists_.empty()) lists = Scratch<std::int64_t>::of(queue, lists_.data(), lists_.size());
  const auto steps = [&](const Side& side) -> Steps {
    return {side.stride, side.list < 0 ? nullptr : lists.data() + side.list};
  };
  for (std::size_t i = 0; i < placements_.size(); ++i) {
    Placement& placement = placements_[i];
    const std::vector<Line>& lines = lines_[i];
    const std::size_t skipped = batch_.axes - lines.size();
    for (std::size_t d = 0; d < batch_.axes; ++d) {
      if (d < skipped) {
        placement.count[d] = 1;
        continue;
      }
      const Line& line = lines[d - skipped];
      placement.count[d] = line.count;
      placement.from[d] = steps(line.from);
      placement.to[d] = steps(line.to);
    }
  }
  batch_.placements = placements_;
  kernels.place(queue, batch_);
}

}  // namespace headrace
