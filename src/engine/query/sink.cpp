#include "engine/query/sink.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/limits.h"
#include "base/trace.h"
#include "engine/query/strided.h"

namespace headrace {

// A row, by its index along each dimension but the last.
struct BoxSink::Position {
  std::array<std::int64_t, kMaxDimensions> at;
  std::size_t offset;  // of the row's first unit in the chunk
  std::byte* user;
};

BoxSink::BoxSink(const Box& box, const Shape& chunk_shape, std::size_t itemsize)
    : unit_(itemsize), user_(box.user), inside_(itemsize) {
  wanted_nbytes_ = box.size() * itemsize;
  dims_.reserve(box.axes.size() + 1);
  std::int64_t stride = static_cast<std::int64_t>(itemsize);
  // From the innermost out; turned round below.
  for (std::size_t d = box.axes.size(); d-- > 0; stride *= chunk_shape[d]) {
    const Axis& axis = box.axes[d];
    inside_ += static_cast<std::size_t>((std::min(axis.extent, chunk_shape[d]) - 1) * stride);
    if (axis.list) {
      ordered_ = false;
      dims_.push_back({axis.count, stride, 0, axis.list, axis.user_list, 0});
      continue;
    }
    first_ += static_cast<std::size_t>(axis.first * stride);
    user_ += axis.user_first;
    if (axis.count == 1) continue;
    const Dim dim{axis.count, axis.step * stride, axis.user_step, nullptr, nullptr, 0};
    if (dims_.empty() && dim.chunk_step == static_cast<std::int64_t>(unit_) &&
        dim.user_step == static_cast<std::ptrdiff_t>(unit_)) {
      unit_ *= static_cast<std::size_t>(dim.count);
    } else if (!dims_.empty() && !dims_.back().list &&
               dim.chunk_step == dims_.back().chunk_step * dims_.back().count &&
               dim.user_step == dims_.back().user_step * dims_.back().count) {
      dims_.back().count *= dim.count;
    } else {
      dims_.push_back(dim);
    }
  }
  if (dims_.empty()) {
    dims_.push_back({1, static_cast<std::int64_t>(unit_), 0, nullptr, nullptr, 0});
  }
  extent_ = unit_;
  for (Dim& dim : dims_) {
    dim.inner_extent = extent_;
    if (!dim.list) extent_ += static_cast<std::size_t>((dim.count - 1) * dim.chunk_step);
  }
  std::reverse(dims_.begin(), dims_.end());
}

template <typename Row>
void BoxSink::for_each_row(Row row) const {
  if (wanted_nbytes_ == 0) return;
  const std::size_t outer = dims_.size() - 1;
  std::array<std::int64_t, kMaxDimensions> at;
  std::fill_n(at.begin(), outer, 0);
  auto chunk_offset = [](const Dim& dim, std::int64_t i) {
    return (dim.list ? dim.list[i] : i) * dim.chunk_step;
  };
  auto user_offset = [](const Dim& dim, std::int64_t i) {
    return dim.list ? dim.user_list[i] : i * dim.user_step;
  };
  std::size_t offset = first_;
  std::byte* user = user_;
  for (std::size_t d = 0; d < outer; ++d) {
    offset += static_cast<std::size_t>(chunk_offset(dims_[d], 0));
    user += user_offset(dims_[d], 0);
  }
  for (;;) {
    row(offset, user);
    std::size_t d = outer;
    for (; d-- > 0;) {
      const Dim& dim = dims_[d];
      const std::int64_t old = at[d];
      at[d] = old + 1 < dim.count ? old + 1 : 0;
      offset += static_cast<std::size_t>(chunk_offset(dim, at[d]) - chunk_offset(dim, old));
      user += user_offset(dim, at[d]) - user_offset(dim, old);
      if (at[d] != 0) break;
    }
    if (d == static_cast<std::size_t>(-1)) return;
  }
}

bool BoxSink::locate(std::size_t offset, Position& position) const {
  if (wanted_nbytes_ == 0 || offset >= end()) return false;
  const std::size_t outer = dims_.size() - 1;
  position.offset = first_;
  position.user = user_;
  for (std::size_t d = 0; d < outer; ++d) {
    const Dim& dim = dims_[d];
    std::int64_t i = 0;
    if (offset > position.offset) {
      i = static_cast<std::int64_t>(offset - position.offset) / dim.chunk_step;
      i = std::min(i, dim.count - 1);
      const std::size_t start = position.offset + static_cast<std::size_t>(i * dim.chunk_step);
      // Behind the end of this index and before the next: the next, from its first row on. There is
      // one, since what is left of the outer dimensions ends behind `offset`.
      if (start + dim.inner_extent <= offset) ++i;
    }
    position.at[d] = i;
    position.offset += static_cast<std::size_t>(i * dim.chunk_step);
    position.user += i * dim.user_step;
  }
  return true;
}

bool BoxSink::next_row(Position& position) const {
  for (std::size_t d = dims_.size() - 1; d-- > 0;) {
    const Dim& dim = dims_[d];
    if (++position.at[d] < dim.count) {
      position.offset += static_cast<std::size_t>(dim.chunk_step);
      position.user += dim.user_step;
      return true;
    }
    position.offset -= static_cast<std::size_t>((dim.count - 1) * dim.chunk_step);
    position.user -= (dim.count - 1) * dim.user_step;
    position.at[d] = 0;
  }
  return false;
}

bool BoxSink::wants(std::size_t offset, std::size_t nbytes) const {
  Position row;
  if (!locate(offset, row)) return false;
  const Dim& dim = dims_.back();
  std::size_t start = row.offset;
  if (offset >= start + unit_) {
    const auto step = static_cast<std::size_t>(dim.chunk_step);
    start += (offset - start - unit_) / step * step + step;  // the first that ends behind `offset`
  }
  return start < offset + nbytes;
}

std::byte* BoxSink::direct(std::size_t offset, std::size_t nbytes) {
  Position row;
  if (!ordered_ || !locate(offset, row) || offset < row.offset) return nullptr;
  const Dim& dim = dims_.back();
  const std::int64_t i =
      std::min(static_cast<std::int64_t>(offset - row.offset) / dim.chunk_step, dim.count - 1);
  const std::size_t within = offset - row.offset - static_cast<std::size_t>(i * dim.chunk_step);
  if (within + nbytes > unit_) return nullptr;
  return row.user + i * dim.user_step + within;
}

void BoxSink::put(std::size_t offset, ConstBytes piece) {
  Position row;
  if (!locate(offset, row)) return;
  const Dim& dim = dims_.back();
  const std::size_t stop = offset + piece.size();
  const auto step = static_cast<std::size_t>(dim.chunk_step);
  do {
    if (row.offset >= stop) return;
    // Units [i, whole_end) of the row lie wholly in the piece, those at its borders in part.
    std::int64_t i = 0;
    if (offset >= row.offset + unit_) {
      i = static_cast<std::int64_t>((offset - row.offset - unit_) / step + 1);
    }
    auto copy_part = [&](std::int64_t k) {
      const std::size_t start = row.offset + static_cast<std::size_t>(k) * step;
      const std::size_t from = std::max(start, offset);
      const std::size_t to = std::min(start + unit_, stop);
      if (from < to) {
        std::memcpy(row.user + k * dim.user_step + (from - start),
                    piece.data() + (from - offset),
                    to - from);
      }
    };
    if (i < dim.count && row.offset + static_cast<std::size_t>(i) * step < offset) copy_part(i++);
    std::int64_t whole_end = i;
    const std::size_t first = row.offset + static_cast<std::size_t>(i) * step;
    if (i < dim.count && first + unit_ <= stop) {
      whole_end =
          std::min(dim.count, i + static_cast<std::int64_t>((stop - unit_ - first) / step + 1));
      copy_units(row.user + i * dim.user_step,
                 dim.user_step,
                 piece.data() + (first - offset),
                 dim.chunk_step,
                 unit_,
                 static_cast<std::size_t>(whole_end - i));
    }
    if (whole_end < dim.count && row.offset + static_cast<std::size_t>(whole_end) * step < stop) {
      copy_part(whole_end);
    }
  } while (next_row(row));
}

void BoxSink::for_each_unit(UnitVisitor visit) const {
  const Dim& dim = dims_.back();
  for_each_row([&](std::size_t offset, std::byte* user) {
    for (std::int64_t i = 0; i < dim.count; ++i) {
      const std::int64_t index = dim.list ? dim.list[i] : i;
      visit(offset + static_cast<std::size_t>(index * dim.chunk_step),
            unit_,
            user + (dim.list ? dim.user_list[i] : i * dim.user_step));
    }
  });
}

void BoxSink::scatter(const std::byte* chunk) const {
  const Span span("place");
  const Dim& dim = dims_.back();
  const auto count = static_cast<std::size_t>(dim.count);
  for_each_row([&](std::size_t offset, std::byte* user) {
    if (!dim.list) {
      copy_units(user, dim.user_step, chunk + offset, dim.chunk_step, unit_, count);
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(user + dim.user_list[i], chunk + offset + dim.list[i] * dim.chunk_step, unit_);
    }
  });
}

void BoxSink::gather(std::byte* chunk) const {
  const Span span("gather");
  const Dim& dim = dims_.back();
  const auto count = static_cast<std::size_t>(dim.count);
  for_each_row([&](std::size_t offset, const std::byte* user) {
    if (!dim.list) {
      copy_units(chunk + offset, dim.chunk_step, user, dim.user_step, unit_, count);
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(chunk + offset + dim.list[i] * dim.chunk_step, user + dim.user_list[i], unit_);
    }
  });
}

void BoxSink::fill(const std::vector<std::byte>& element) const {
  const Dim& dim = dims_.back();
  const auto count = static_cast<std::size_t>(dim.count);
  for_each_row([&](std::size_t, std::byte* user) {
    if (!dim.list && unit_ == element.size()) {
      copy_units(user, dim.user_step, element.data(), 0, unit_, count);
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* at =
          user + (dim.list ? dim.user_list[i] : static_cast<std::ptrdiff_t>(i) * dim.user_step);
      fill_bytes(at, unit_, element);
    }
  });
}

PointSink::PointSink(const Points& points, const Shape& chunk_shape, std::size_t itemsize)
    : places_(points.size()), itemsize_(itemsize) {
  std::size_t last = 0;
  for (std::size_t d = 0; d < points.ndim; ++d) {
    last = last * static_cast<std::size_t>(chunk_shape[d]) +
           static_cast<std::size_t>(std::min(points.extent[d], chunk_shape[d]) - 1);
  }
  inside_ = (last + 1) * itemsize;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    std::size_t offset = 0;
    for (std::size_t d = 0; d < points.ndim; ++d) {
      offset = offset * static_cast<std::size_t>(chunk_shape[d]) +
               static_cast<std::size_t>(points.indices[i * points.ndim + d]);
    }
    places_[i] = {offset * itemsize, points.user + points.user_offset[i]};
  }
  auto before = [](const Place& a, const Place& b) { return a.offset < b.offset; };
  if (!std::is_sorted(places_.begin(), places_.end(), before)) {
    std::stable_sort(places_.begin(), places_.end(), before);
  }
}

std::size_t PointSink::begin() const { return places_.empty() ? 0 : places_.front().offset; }
std::size_t PointSink::end() const {
  return places_.empty() ? 0 : places_.back().offset + itemsize_;
}

std::size_t PointSink::locate(std::size_t offset) const {
  auto ends_before = [&](const Place& p, std::size_t at) { return p.offset + itemsize_ <= at; };
  return static_cast<std::size_t>(
      std::lower_bound(places_.begin(), places_.end(), offset, ends_before) - places_.begin());
}

bool PointSink::wants(std::size_t offset, std::size_t nbytes) const {
  const std::size_t i = locate(offset);
  return i < places_.size() && places_[i].offset < offset + nbytes;
}

void PointSink::put(std::size_t offset, ConstBytes piece) {
  const std::size_t stop = offset + piece.size();
  for (std::size_t i = locate(offset); i < places_.size() && places_[i].offset < stop; ++i) {
    const Place& place = places_[i];
    const std::size_t from = std::max(place.offset, offset);
    const std::size_t to = std::min(place.offset + itemsize_, stop);
    std::memcpy(place.user + (from - place.offset), piece.data() + (from - offset), to - from);
  }
}

std::byte* PointSink::direct(std::size_t offset, std::size_t nbytes) {
  const std::size_t i = locate(offset);
  if (i == places_.size() || offset < places_[i].offset) return nullptr;
  if (offset + nbytes > places_[i].offset + itemsize_) return nullptr;
  // A point asked for twice has two places: only put() serves both.
  if (i + 1 < places_.size() && places_[i + 1].offset == places_[i].offset) return nullptr;
  return places_[i].user + (offset - places_[i].offset);
}

void PointSink::for_each_unit(UnitVisitor visit) const {
  for (const Place& place : places_) visit(place.offset, itemsize_, place.user);
}

void PointSink::scatter(const std::byte* chunk) const {
  for (const Place& place : places_) std::memcpy(place.user, chunk + place.offset, itemsize_);
}

void PointSink::gather(std::byte* chunk) const {
  for (const Place& place : places_) std::memcpy(chunk + place.offset, place.user, itemsize_);
}

void PointSink::fill(const std::vector<std::byte>& element) const {
  for (const Place& place : places_) std::memcpy(place.user, element.data(), itemsize_);
}

}  // namespace headrace
