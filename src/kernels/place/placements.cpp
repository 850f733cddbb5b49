#include "kernels/place/placements.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "headrace/error.h"
#include "kernels/place/forms.h"

namespace headrace::SIMT_SPACE {
namespace {

using namespace placing;

struct HostAxis {
  i64 count;
  Steps from, to;

  bool plain() const { return !from.index && !to.index; }
};

// A placement with as few axes as it takes, the one with the nearest targets last, around items of
// neighbouring bytes.
struct Box {
  const u8* source;
  u8* target;
  std::array<HostAxis, kMaxAxes> axes;
  unsigned n = 0;
  u64 item;
  bool is_fill = false;

  HostAxis& last() { return axes[n - 1]; }
  // Every item on both sides is at a multiple of `size`.
  bool aligned(u64 size) const { return source_aligned(size) && target_aligned(size); }
  bool source_aligned(u64 size) const {
    return multiple(reinterpret_cast<std::uintptr_t>(source), size) &&
           std::all_of(axes.begin(), axes.begin() + n, [&](const HostAxis& axis) {
             return multiple(static_cast<u64>(axis.from.stride), size);
           });
  }
  bool target_aligned(u64 size) const {
    return multiple(reinterpret_cast<std::uintptr_t>(target), size) &&
           std::all_of(axes.begin(), axes.begin() + n, [&](const HostAxis& axis) {
             return multiple(static_cast<u64>(axis.to.stride), size);
           });
  }
  u64 elements() const {
    u64 product = 1;
    for (unsigned i = 0; i < n; ++i) product *= static_cast<u64>(axes[i].count);
    return product;
  }

 private:
  // Of a power of two.
  static bool multiple(u64 value, u64 size) { return (value & (size - 1)) == 0; }
};

bool is_word_size(u64 nbytes) { return std::has_single_bit(nbytes) && nbytes <= 16; }

[[noreturn]] void fail(ErrorCode code, const std::string& what) {
  throw Error(code, "place: " + what);
}

// False when there is nothing to place.
bool check_counts(const Placement& placement, const PlaceBatch& batch) {
  i64 nbytes = batch.itemsize;
  bool empty = false;
  for (unsigned i = 0; i < batch.axes; ++i) {
    const i64 count = placement.count[i];
    if (count < 0)
      fail(ErrorCode::invalid_argument, std::to_string(count) + " elements of an axis");
    empty |= count == 0;
    if (count > 0 && __builtin_mul_overflow(nbytes, count, &nbytes))
      fail(ErrorCode::invalid_argument, "the bytes of an outer product overflow");
  }
  return !empty;
}

// Makes one axis of two where that reaches the same bytes.
bool merge(HostAxis& outer, const HostAxis& inner) {
  if (!outer.plain() || !inner.plain()) return false;
  if (outer.from.stride != inner.from.stride * inner.count) return false;
  if (outer.to.stride != inner.to.stride * inner.count) return false;
  outer = {outer.count * inner.count, inner.from, inner.to};
  return true;
}

Box make_box(const Placement& placement, const PlaceBatch& batch) {
  Box box{placement.source, placement.target, {}, 0, batch.itemsize};
  std::vector<HostAxis> axes;
  for (unsigned i = 0; i < batch.axes; ++i) {
    HostAxis axis{placement.count[i], placement.from[i], placement.to[i]};
    if (axis.plain() && axis.count == 1) continue;
    if (axis.plain() && axis.to.stride < 0) {
      box.source += (axis.count - 1) * axis.from.stride;
      box.target += (axis.count - 1) * axis.to.stride;
      axis.from.stride = -axis.from.stride;
      axis.to.stride = -axis.to.stride;
    }
    axes.push_back(axis);
  }
  std::stable_sort(axes.begin(), axes.end(), [](const HostAxis& a, const HostAxis& b) {
    const auto rank = [](const HostAxis& axis) {
      return std::pair(std::abs(axis.to.stride), std::abs(axis.from.stride));
    };
    return rank(a) > rank(b);
  });
  for (const HostAxis& axis : axes)
    if (box.n == 0 || !merge(box.last(), axis)) box.axes[box.n++] = axis;

  const i64 itemsize = batch.itemsize;
  if (box.n == 0 || !box.last().plain() || box.last().to.stride != itemsize) return box;
  const i64 step = box.last().from.stride;
  if (step == 0 && is_word_size(batch.itemsize) && box.aligned(batch.itemsize))
    box.is_fill = true;
  else if (step != itemsize)
    return box;
  box.item *= static_cast<u64>(box.last().count);
  --box.n;
  return box;
}

// What one kernel places, and the axes of all its parts, each list of them once in a row.
struct Parts {
  WorkList<Part> parts;
  std::vector<Axis> axes;
  std::vector<std::size_t> axes_of_part;

  void add(const Box& box, u64 units, u64 items, const Part& form) {
    std::array<Axis, kMaxAxes> own;
    for (unsigned i = 0; i < box.n; ++i) {
      const HostAxis& axis = box.axes[i];
      own[i] = {make_divisor(static_cast<u64>(axis.count)),
                axis.from.stride,
                axis.to.stride,
                axis.from.index,
                axis.to.index};
    }
    if (axes.size() < box.n || !std::equal(own.begin(), own.begin() + box.n, axes.end() - box.n))
      axes.insert(axes.end(), own.begin(), own.begin() + box.n);
    Part part = form;
    part.source = box.source;
    part.target = box.target;
    part.units = units;
    part.axis_count = box.n;
    axes_of_part.push_back(axes.size() - box.n);
    parts.add(part, items);
  }
};

class Placer {
 public:
  Placer(const PlaceBatch& batch, const PlaceLimits& limits)
      : limits_(limits),
        itemsize_(batch.itemsize),
        swap_(batch.swap_nbytes == 1 ? 0 : batch.swap_nbytes) {}

  void add(const Box& box) {
    if (box.item > limits_.item) return add_pieces(box);
    if (is_word_size(box.item) && !box.is_fill && box.aligned(box.item) &&
        (swap_ == 0 || is_word_size(swap_)))
      add_words(box);
    else
      add_rows(box);
  }

  void launch(Queue& queue) const {
    run<PlaceRows>(queue, rows_, [&](Work<Part> parts) {
      return PlaceRows{parts, itemsize_, swap_};
    });
    run_words<1>(queue);
    run_words<2>(queue);
    run_words<4>(queue);
    run_words<8>(queue);
    run_words<16>(queue);
  }

 private:
  static std::size_t index_of(u64 nbytes) {
    return static_cast<std::size_t>(std::countr_zero(nbytes));
  }

  // Items too long for 32 bits, in pieces; a piece has whole groups and values.
  void add_pieces(const Box& box) {
    const u64 piece = limits_.item / itemsize_ * itemsize_;
    for (u64 begin = 0; begin < box.item; begin += piece) {
      Box part = box;
      if (!box.is_fill) part.source += begin;
      part.target += begin;
      part.item = std::min(piece, box.item - begin);
      add(part);
    }
  }

  // Twice half of the longest axis.
  void add_halves(const Box& box) {
    unsigned longest = 0;
    for (unsigned i = 1; i < box.n; ++i)
      if (box.axes[i].count > box.axes[longest].count) longest = i;
    Box low = box, high = box;
    HostAxis& kept = low.axes[longest];
    HostAxis& moved = high.axes[longest];
    kept.count /= 2;
    moved.count -= kept.count;
    const auto skip = [&](Steps& steps, auto*& base) {
      if (steps.index)
        steps.index += kept.count;
      else
        base += kept.count * steps.stride;
    };
    skip(moved.from, high.source);
    skip(moved.to, high.target);
    add(low);
    add(high);
  }

  void add_rows(const Box& box) {
    const u64 skip =
        box.target_aligned(16) ? 0 : 15;  // bytes in front of an item in its first quad, at most
    const u64 row_units = (skip + box.item + 15) / 16, units = box.elements() * row_units;
    if (units >= limits_.units) return add_halves(box);
    Part form{};
    form.nbytes = static_cast<u32>(box.item);
    form.row_units = make_divisor(row_units);
    form.is_fill = box.is_fill;
    form.swaps_quads = swap_ == 0 || (is_word_size(swap_) && box.target_aligned(swap_));
    rows_.add(box, units, ctas_of(units), form);
  }

  void add_words(Box box) {
    if (box.elements() >= limits_.units) return add_halves(box);
    const std::size_t index = index_of(box.item);
    if (!make_tiles(box)) {
      elements_[index].add(box, box.elements(), ctas_of(box.elements()), {});
      return;
    }
    const u64 tile = box.item < 4 ? PlaceTiles<2>::kSide : PlaceTiles<4>::kSide;
    const auto tiles = [&](const HostAxis& axis) {
      return (static_cast<u64>(axis.count) + tile - 1) / tile;
    };
    u64 items = tiles(box.axes[box.n - 2]) * tiles(box.last());
    for (unsigned i = 0; i + 2 < box.n; ++i) items *= static_cast<u64>(box.axes[i].count);
    tiles_[index].add(box, items, items, {});
  }

  // Puts the axis with neighbours in the source before the last one, if they make tiles.
  static bool make_tiles(Box& box) {
    constexpr i64 kLeast = 8;  // of either axis, or half of each sector is of no use
    const i64 item = static_cast<i64>(box.item);
    if (box.n < 2) return false;
    const HostAxis& last = box.last();
    if (last.to.index || last.to.stride != item || last.count < kLeast) return false;
    if (!last.from.index && std::abs(last.from.stride) <= item) return false;
    for (unsigned i = 0; i + 1 < box.n; ++i) {
      const HostAxis& axis = box.axes[i];
      if (axis.from.index || std::abs(axis.from.stride) != item || axis.count < kLeast) continue;
      std::rotate(box.axes.begin() + i, box.axes.begin() + i + 1, box.axes.begin() + box.n - 1);
      return true;
    }
    return false;
  }

  static u64 ctas_of(u64 units) {
    return (units + kCtaThreads * kUnits - 1) / (kCtaThreads * kUnits);
  }

  template <unsigned nbytes>
  void run_words(Queue& queue) const {
    const std::size_t index = index_of(nbytes);
    run<PlaceElements<nbytes>>(queue, elements_[index], [&](Work<Part> parts) {
      return PlaceElements<nbytes>{parts, swap_};
    });
    run<PlaceTiles<nbytes>>(queue, tiles_[index], [&](Work<Part> parts) {
      return PlaceTiles<nbytes>{parts, swap_};
    });
  }

  template <class Kernel, class Make>
  static void run(Queue& queue, const Parts& parts, Make make) {
    if (parts.parts.items() == 0) return;
    // One copy of both lists.
    RecyclingVector<Part> list = parts.parts.entries();
    const std::size_t axes_nbytes = parts.axes.size() * sizeof(Axis),
                      list_nbytes = list.size() * sizeof(Part);
    const Scratch<u8> memory(queue, axes_nbytes + list_nbytes);
    const Axis* const axes = reinterpret_cast<const Axis*>(memory.data());
    for (std::size_t i = 0; i < list.size(); ++i) list[i].axes = axes + parts.axes_of_part[i];
    RecyclingVector<u8> bytes(memory.size());
    if (axes_nbytes > 0) std::memcpy(bytes.data(), parts.axes.data(), axes_nbytes);
    std::memcpy(bytes.data() + axes_nbytes, list.data(), list_nbytes);
    queue.upload(memory.data(), bytes.data(), bytes.size());
    const Work<Part> work{reinterpret_cast<const Part*>(memory.data() + axes_nbytes),
                          static_cast<u32>(list.size())};
    simt::launch(queue, parts.parts.items(), make(work));
  }

  PlaceLimits limits_;
  u32 itemsize_;
  u32 swap_;
  Parts rows_;
  std::array<Parts, 5> elements_, tiles_;  // of 1, 2, 4, 8 and 16 bytes
};

}  // namespace

void place_within(Queue& queue, const PlaceBatch& batch, const PlaceLimits& limits) {
  if (batch.axes > kMaxAxes)
    fail(ErrorCode::unsupported,
         std::to_string(batch.axes) + " axes, at most " + std::to_string(kMaxAxes));
  if (batch.itemsize == 0) fail(ErrorCode::invalid_argument, "elements of 0 bytes");
  if (batch.swap_nbytes != 0 && batch.itemsize % batch.swap_nbytes != 0)
    fail(ErrorCode::invalid_argument,
         "groups of " + std::to_string(batch.swap_nbytes) + " bytes in elements of " +
             std::to_string(batch.itemsize));
  Placer placer(batch, limits);
  for (const Placement& placement : batch.placements)
    if (check_counts(placement, batch)) placer.add(make_box(placement, batch));
  placer.launch(queue);
}

}  // namespace headrace::SIMT_SPACE
