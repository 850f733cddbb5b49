#pragma once

// The kernels of placements.cpp, which brings placements to their forms:
//
// - PlaceRows: items of any size at any address, 16 bytes of an item at a time; also fill values.
// - PlaceElements<n>: aligned items of n bytes.
// - PlaceTiles<n>: aligned items of n bytes where source and target each have an axis of
//   neighbouring items, but not the same.

#include "kernels/common/access.h"
#include "kernels/common/work.h"
#include "kernels/place/divisor.h"

namespace headrace::SIMT_SPACE {
namespace placing {

using simt::Pair;
using simt::Quad;

constexpr unsigned kCtaThreads = 256;
constexpr unsigned kUnits = 4;  // a thread takes, the loads of all before the first store

struct Axis {
  Divisor count;
  i64 from, to;                      // bytes
  const i64 *from_index, *to_index;  // or null
  bool operator==(const Axis&) const = default;
};

// Where an element of the axes is, in bytes.
struct Offsets {
  i64 from = 0, to = 0;

  SIMT_DEVICE void add(const Axis& axis, u32 i) {
    from += (axis.from_index ? simt::load_constant(axis.from_index + i) : i64{i}) * axis.from;
    to += (axis.to_index ? simt::load_constant(axis.to_index + i) : i64{i}) * axis.to;
  }
};

struct Part {
  const u8* source;
  u8* target;
  u64 first;
  u64 units;         // of the kernel: quads, elements or tiles
  const Axis* axes;  // the outermost first
  u32 axis_count;
  // PlaceRows only.
  u32 nbytes;         // of an item
  Divisor row_units;  // as many quads, aligned, as an item can touch
  bool is_fill;       // an item is filled with a value of `itemsize` bytes
  bool swaps_quads;   // groups to swap do not cross quads
};

SIMT_DEVICE Offsets offsets_of(const Part& part, u32 element) {
  Offsets offsets;
  for (u32 i = part.axis_count; i-- > 1;) {
    const Axis& axis = part.axes[i];
    const u32 outer = axis.count.quotient(element);
    offsets.add(axis, element - outer * axis.count.divisor);
    element = outer;
  }
  if (part.axis_count > 0) offsets.add(part.axes[0], element);
  return offsets;
}

SIMT_DEVICE u32 reverse_bytes(u32 word) { return simt::permute_bytes(word, 0, 0x0123); }

// Reverses each `nbytes` bytes: 0 (none), 2, 4, 8 or 16.
SIMT_DEVICE u8 swapped(u8 value, u32) { return value; }
SIMT_DEVICE u16 swapped(u16 value, u32 nbytes) {
  return nbytes == 2 ? static_cast<u16>(value >> 8 | value << 8) : value;
}
SIMT_DEVICE u32 swapped(u32 word, u32 nbytes) {
  if (nbytes == 0) return word;
  return simt::permute_bytes(word, 0, nbytes == 2 ? 0x2301 : 0x0123);
}
SIMT_DEVICE Pair swapped(Pair pair, u32 nbytes) {
  const Pair words{swapped(pair.x, nbytes), swapped(pair.y, nbytes)};
  return nbytes < 8 ? words : Pair{words.y, words.x};
}
SIMT_DEVICE Quad swapped(Quad quad, u32 nbytes) {
  const Pair low = swapped(Pair{quad.x, quad.y}, nbytes),
             high = swapped(Pair{quad.z, quad.w}, nbytes);
  return nbytes < 16 ? Quad{low.x, low.y, high.x, high.y} : Quad{high.x, high.y, low.x, low.y};
}

struct PlaceRows {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = simt::NoShared;
  Work<Part> parts;
  u32 itemsize;
  u32 swap;

  SIMT_DEVICE void operator()(Shared&) const {
    const Part& part = parts.find(simt::cta_index());
    const u64 begin =
        (simt::cta_index() - part.first) * kCtaThreads * kUnits + simt::thread_index();
    Quad quads[kUnits];
    Quad* targets[kUnits];
    SIMT_UNROLL
    for (unsigned i = 0; i < kUnits; ++i) {
      const u64 unit = begin + i * kCtaThreads;
      targets[i] = unit < part.units ? start(part, static_cast<u32>(unit), quads[i]) : nullptr;
    }
    SIMT_UNROLL
    for (unsigned i = 0; i < kUnits; ++i)
      if (targets[i]) *targets[i] = quads[i];
  }

 private:
  // Gives where the quad goes; null when it is no whole one, and done.
  SIMT_DEVICE Quad* start(const Part& part, u32 unit, Quad& quad) const {
    const u32 row = part.row_units.quotient(unit);
    const Offsets offsets = offsets_of(part, row);
    const u8* const from = part.source + offsets.from;
    u8* const to = part.target + offsets.to;
    const i64 at = i64{unit - row * part.row_units.divisor} * 16 - misalignment(to, 16);
    if (at >= 0 && at + 16 <= part.nbytes && part.swaps_quads) {
      quad = swapped(part.is_fill ? repeated(from) : load_quad(from + at), swap);
      return reinterpret_cast<Quad*>(to + at);
    }
    const i64 end = at + 16 < part.nbytes ? at + 16 : part.nbytes;
    for (i64 i = at < 0 ? 0 : at; i < end; ++i) {
      const u32 in_item = static_cast<u32>(i);
      const u32 in_group = swap ? in_item % swap : 0;
      const u32 byte = swap ? in_item - in_group + (swap - 1 - in_group) : in_item;
      to[i] = from[part.is_fill ? byte % itemsize : byte];
    }
    return nullptr;
  }

  SIMT_DEVICE Quad repeated(const u8* value) const {
    switch (itemsize) {
      case 1: {
        const u32 word = *value * 0x01010101u;
        return {word, word, word, word};
      }
      case 2: {
        const u32 word = *reinterpret_cast<const u16*>(value) * 0x00010001u;
        return {word, word, word, word};
      }
      case 4: {
        const u32 word = *reinterpret_cast<const u32*>(value);
        return {word, word, word, word};
      }
      case 8: {
        const Pair pair = *reinterpret_cast<const Pair*>(value);
        return {pair.x, pair.y, pair.x, pair.y};
      }
      default:
        return *reinterpret_cast<const Quad*>(value);
    }
  }
};

template <unsigned nbytes>
struct ElementOf;
template <>
struct ElementOf<1> {
  using Type = u8;
};
template <>
struct ElementOf<2> {
  using Type = u16;
};
template <>
struct ElementOf<4> {
  using Type = u32;
};
template <>
struct ElementOf<8> {
  using Type = Pair;
};
template <>
struct ElementOf<16> {
  using Type = Quad;
};

template <unsigned nbytes>
struct PlaceElements {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = simt::NoShared;
  using Element = typename ElementOf<nbytes>::Type;
  Work<Part> parts;
  u32 swap;

  SIMT_DEVICE void operator()(Shared&) const {
    const Part& part = parts.find(simt::cta_index());
    const u64 begin =
        (simt::cta_index() - part.first) * kCtaThreads * kUnits + simt::thread_index();
    Element elements[kUnits];
    u8* targets[kUnits];
    SIMT_UNROLL
    for (unsigned i = 0; i < kUnits; ++i) {
      const u64 unit = begin + i * kCtaThreads;
      if (unit >= part.units) continue;
      const Offsets offsets = offsets_of(part, static_cast<u32>(unit));
      elements[i] =
          simt::load_constant(reinterpret_cast<const Element*>(part.source + offsets.from));
      targets[i] = part.target + offsets.to;
    }
    SIMT_UNROLL
    for (unsigned i = 0; i < kUnits; ++i)
      if (begin + i * kCtaThreads < part.units)
        *reinterpret_cast<Element*>(targets[i]) = swapped(elements[i], swap);
  }
};

// The last axis has neighbours in the target, the one before in the source.
template <unsigned nbytes>
struct PlaceTiles {
  static constexpr unsigned kThreads = kCtaThreads;
  static constexpr unsigned kSide = nbytes < 4 ? 64 : 32;
  static constexpr unsigned kWarps = kCtaThreads / simt::kWarp;
  using Element = typename ElementOf<nbytes>::Type;
  struct Shared {
    Element elements[kSide][kSide + 1];
  };
  Work<Part> parts;
  u32 swap;

  SIMT_DEVICE void operator()(Shared& shared) const {
    Part part = parts.find(simt::cta_index());
    const u32 tile = static_cast<u32>(simt::cta_index() - part.first);
    const Axis& source_axis = part.axes[part.axis_count - 2];
    const Axis& target_axis = part.axes[part.axis_count - 1];
    const u32 rows = source_axis.count.divisor, columns = target_axis.count.divisor;
    const u32 tiles_across = (columns + kSide - 1) / kSide, tiles_down = (rows + kSide - 1) / kSide;
    const u32 row_begin = tile / tiles_across % tiles_down * kSide;
    const u32 column_begin = tile % tiles_across * kSide;
    part.axis_count -= 2;
    const Offsets outer = offsets_of(part, tile / tiles_across / tiles_down);

    for (unsigned j = simt::warp_index(); j < kSide; j += kWarps) {
      if (column_begin + j >= columns) break;
      Offsets column = outer;
      column.add(target_axis, column_begin + j);
      for (unsigned i = simt::lane_index(); i < kSide && row_begin + i < rows; i += simt::kWarp)
        shared.elements[j][i] = simt::load_constant(reinterpret_cast<const Element*>(
            part.source + column.from + i64{row_begin + i} * source_axis.from));
    }
    simt::sync_cta();
    for (unsigned i = simt::warp_index(); i < kSide; i += kWarps) {
      if (row_begin + i >= rows) break;
      Offsets row = outer;
      row.add(source_axis, row_begin + i);
      for (unsigned j = simt::lane_index(); j < kSide && column_begin + j < columns;
           j += simt::kWarp)
        *reinterpret_cast<Element*>(part.target + row.to + i64{column_begin + j} * target_axis.to) =
            swapped(shared.elements[j][i], swap);
    }
  }
};

}  // namespace placing
}  // namespace headrace::SIMT_SPACE
