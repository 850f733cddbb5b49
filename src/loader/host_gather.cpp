#include "loader/host_gather.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/thread_pool.h"
#include "loader/conversions.h"

namespace headrace::loader {
namespace {

struct Axis {
  std::int64_t count, from, to;
};

// A box with as few axes as it takes, the nearest targets last.
struct Rows {
  const GatherBox& box;
  std::array<Axis, kMaxAxes> axes;
  unsigned n = 0;

  Rows(const GatherBox& gathered, unsigned axis_count, std::size_t itemsize) : box(gathered) {
    for (unsigned i = 0; i < axis_count; ++i)
      if (box.count[i] != 1) axes[n++] = {box.count[i], box.from[i], box.to[i]};
    std::stable_sort(
        axes.begin(), axes.begin() + n, [](const Axis& a, const Axis& b) { return a.to > b.to; });
    unsigned merged = 0;
    for (unsigned i = 0; i < n; ++i) {
      Axis* const outer = merged > 0 ? &axes[merged - 1] : nullptr;
      const Axis inner = axes[i];
      if (outer && outer->from == inner.from * inner.count && outer->to == inner.to * inner.count)
        *outer = {outer->count * inner.count, inner.from, inner.to};
      else
        axes[merged++] = inner;
    }
    n = merged;
    const auto size = static_cast<std::int64_t>(itemsize);
    if (n == 0) axes[n++] = {1, size, size};
  }

  // Calls row(source, target) for every combination of the axes but the last.
  template <typename Row>
  void each(Row row) const {
    std::int64_t at[kMaxAxes] = {};
    const std::uint8_t* source = box.source;
    std::uint8_t* target = box.target;
    for (;;) {
      row(source, target);
      unsigned axis = n - 1;
      for (;;) {
        if (axis-- == 0) return;
        source += axes[axis].from;
        target += axes[axis].to;
        if (++at[axis] < axes[axis].count) break;
        source -= axes[axis].from * axes[axis].count;
        target -= axes[axis].to * axes[axis].count;
        at[axis] = 0;
      }
    }
  }
};

bool is_empty(const GatherBox& box, unsigned axes) {
  return std::any_of(box.count, box.count + axes, [](std::int64_t n) { return n == 0; });
}

std::size_t elements_of(const GatherBox& box, unsigned axes) {
  std::size_t product = 1;
  for (unsigned i = 0; i < axes; ++i) product *= static_cast<std::size_t>(box.count[i]);
  return product;
}

// Calls body(box) for each, small ones together.
template <typename Body>
void each_box(std::span<const GatherBox> boxes, unsigned axes, Body body) {
  constexpr std::size_t kElementsATask = 16384;
  std::vector<std::size_t> bounds{0};
  std::size_t elements = 0;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    elements += elements_of(boxes[i], axes);
    if (elements < kElementsATask && i + 1 < boxes.size()) continue;
    bounds.push_back(i + 1);
    elements = 0;
  }
  parallel_for(bounds.size() - 1, [&](std::size_t task) {
    for (std::size_t i = bounds[task]; i < bounds[task + 1]; ++i)
      if (!is_empty(boxes[i], axes)) body(boxes[i]);
  });
}

void copy_row(std::uint8_t* target,
              const std::uint8_t* source,
              const Axis& axis,
              std::size_t itemsize) {
  const auto size = static_cast<std::int64_t>(itemsize);
  if (axis.from == size && axis.to == size) {
    std::memcpy(target, source, static_cast<std::size_t>(axis.count) * itemsize);
    return;
  }
  for (std::int64_t i = 0; i < axis.count; ++i)
    std::memcpy(target + i * axis.to, source + i * axis.from, itemsize);
}

}  // namespace

void gather_on_host(const GatherBatch& batch) {
  const ConvertRow convert = row_conversion(batch.format.from, batch.format.to);
  const double nan_fill = batch.format.nan_fill.value_or(std::numeric_limits<double>::quiet_NaN());
  each_box(batch.boxes, batch.axes, [&](const GatherBox& box) {
    const Rows rows(box, batch.axes, 1);
    const Axis& last = rows.axes[rows.n - 1];
    rows.each([&](const std::uint8_t* source, std::uint8_t* target) {
      convert({source, target, last.count, last.from, last.to, box.mean, box.std, nan_fill});
    });
  });
}

void copy_on_host(std::span<const GatherBox> boxes, unsigned axes, std::size_t itemsize) {
  each_box(boxes, axes, [&](const GatherBox& box) {
    const Rows rows(box, axes, itemsize);
    const Axis& last = rows.axes[rows.n - 1];
    rows.each([&](const std::uint8_t* source, std::uint8_t* target) {
      copy_row(target, source, last, itemsize);
    });
  });
}

}  // namespace headrace::loader
