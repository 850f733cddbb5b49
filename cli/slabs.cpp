#include "cli/slabs.h"

#include <algorithm>
#include <utility>

#include "headrace/selection.h"

namespace headrace::cli {
namespace {

// A slice's indices: start, start + step, ..., count of them.
struct Range {
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;

  // As Python's slice(...).indices(extent).
  static Range of(const Slice& slice, std::int64_t extent) {
    const bool down = slice.step < 0;
    const std::int64_t lowest = down ? -1 : 0;
    const std::int64_t highest = down ? extent - 1 : extent;
    const auto bound = [&](std::int64_t at) {
      return std::clamp(at < 0 ? at + extent : at, lowest, highest);
    };
    const std::int64_t start = slice.start ? bound(*slice.start) : (down ? highest : lowest);
    const std::int64_t stop = slice.stop ? bound(*slice.stop) : (down ? lowest : highest);
    const std::int64_t length = down ? start - stop : stop - start;
    // A step beyond the extent takes one element; cut, it cannot overflow.
    const std::int64_t step = std::clamp(
        slice.step, -std::max<std::int64_t>(extent, 1), std::max<std::int64_t>(extent, 1));
    const std::int64_t stride = down ? -step : step;
    return {start, step, length > 0 ? (length + stride - 1) / stride : 0};
  }

  Slice part(std::int64_t first, std::int64_t n) const {
    const std::int64_t from = start + step * first;
    const std::int64_t to = from + step * n;
    return {from, to < 0 ? std::nullopt : std::optional(to), step};
  }
};

struct Axis {
  std::size_t item;  // in items
  Range range;
  std::int64_t chunk_extent;
};

class SlabReader {
 public:
  SlabReader(const Array& array,
             std::vector<SelectionItem> items,
             std::size_t max_nbytes,
             SlabOrder order,
             const std::function<void(const Tensor&)>& take)
      : array_(array),
        items_(std::move(items)),
        max_nbytes_(max_nbytes),
        order_(order),
        take_(take) {
    expand();
  }

  void run() {
    std::size_t nbytes = array_.dtype().itemsize();
    for (const Axis& axis : axes_) {
      if (axis.range.count == 0) return;
      nbytes *= static_cast<std::size_t>(axis.range.count);
    }
    visit(0, nbytes);
  }

 private:
  // An item for every dimension, and the axes that slices leave.
  void expand() {
    const Shape shape = array_.shape();
    const Shape chunks = array_.largest_chunks();
    std::size_t taken = 0;
    for (const SelectionItem& item : items_) {
      taken += std::holds_alternative<Slice>(item) || std::holds_alternative<std::int64_t>(item);
    }
    auto gap = std::find_if(items_.begin(), items_.end(), [](const SelectionItem& item) {
      return std::holds_alternative<Ellipsis>(item);
    });
    if (gap != items_.end()) gap = items_.erase(gap);
    items_.insert(gap, shape.size() - taken, SelectionItem(Slice{}));
    std::size_t dim = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (const auto* slice = std::get_if<Slice>(&items_[i])) {
        axes_.push_back({i, Range::of(*slice, shape[dim]), chunks[dim]});
      }
      dim += !std::holds_alternative<NewAxis>(items_[i]);
    }
  }

  // The axes before `axis` are cut already; what is left of the selection has `nbytes`.
  void visit(std::size_t axis, std::size_t nbytes) {
    if (nbytes <= max_nbytes_ || axis == axes_.size()) {
      take_(array_.read(Selection(items_)));
      return;
    }
    const auto& [item, range, chunk_extent] = axes_[axis];
    const std::size_t row_nbytes = nbytes / static_cast<std::size_t>(range.count);
    const std::int64_t rows = rows_at_a_time(range, chunk_extent, row_nbytes);
    for (std::int64_t first = 0; first < range.count; first += rows) {
      const std::int64_t n = std::min(rows, range.count - first);
      items_[item] = range.part(first, n);
      visit(axis + 1, row_nbytes * static_cast<std::size_t>(n));
    }
    items_[item] = range.part(0, range.count);
  }

  std::int64_t rows_at_a_time(const Range& range,
                              std::int64_t chunk_extent,
                              std::size_t row_nbytes) const {
    const std::int64_t stride = range.step < 0 ? -range.step : range.step;
    const std::int64_t in_chunk = std::max<std::int64_t>(chunk_extent / stride, 1);
    const auto fit = static_cast<std::int64_t>(max_nbytes_ / row_nbytes);
    if (fit >= in_chunk) return fit / in_chunk * in_chunk;
    if (order_ == SlabOrder::anyhow) return in_chunk;
    // In C order no later axis may be cut while this one holds more than one row.
    return std::max<std::int64_t>(fit, 1);
  }

  const Array& array_;
  std::vector<SelectionItem> items_;
  std::vector<Axis> axes_;
  const std::size_t max_nbytes_;
  const SlabOrder order_;
  const std::function<void(const Tensor&)>& take_;
};

}  // namespace

void for_each_slab(const Array& array,
                   std::vector<SelectionItem> items,
                   std::size_t max_nbytes,
                   SlabOrder order,
                   const std::function<void(const Tensor&)>& take) {
  static_cast<void>(array.result_shape(Selection(items)));  // says what is wrong with the selection
  SlabReader(array, std::move(items), max_nbytes, order, take).run();
}

}  // namespace headrace::cli
