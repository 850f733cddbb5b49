// A CTA takes one row. What a store says of it, its columns, is checked before anything is written
// by it; where a row begins and ends the host has checked.

#include "kernels/place/rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "kernels/common/log1p.h"
#include "kernels/place/number_values.h"

namespace headrace::SIMT_SPACE {
namespace {

constexpr unsigned kCtaThreads = 128;
constexpr unsigned kWarps = kCtaThreads / simt::kWarp;
constexpr unsigned kSumLanes = 8;  // of loader/row_values.cpp
constexpr unsigned kWords = 2048;
// Sums of a slab of rows that are kept beside the batch.
constexpr std::size_t kMostSumsNbytes = std::size_t{64} << 20;
// Keys of a slab of rows that are too long to be sorted in shared memory.
constexpr std::size_t kMostKeysNbytes = std::size_t{256} << 20;

struct RowShared {
  u64 words[kWords];  // a tile of values to be summed, or keys to be sorted
  double lanes[kSumLanes];
  u64 of_warps[kWarps];
  u32 votes;
};

// What a batch is to a kernel.
struct Rows {
  const RowMatrix* matrices;
  const BatchRow* rows;
  RowScale scale;
  u64 columns;
  u8* data;
  i32* indices;
  RowFaults* faults;
};

SIMT_DEVICE u64 load_aligned(const u8* from, u64 at, u32 nbytes) {
  if (nbytes == 4) return simt::load_constant(reinterpret_cast<const u32*>(from) + at);
  if (nbytes == 8) return simt::load_constant(reinterpret_cast<const u64*>(from) + at);
  if (nbytes == 2) return simt::load_constant(reinterpret_cast<const u16*>(from) + at);
  return simt::load_constant(from + at);
}

SIMT_DEVICE void store_aligned(u8* to, u64 at, u32 nbytes, u64 bits) {
  if (nbytes == 4)
    reinterpret_cast<u32*>(to)[at] = static_cast<u32>(bits);
  else if (nbytes == 8)
    reinterpret_cast<u64*>(to)[at] = bits;
  else if (nbytes == 2)
    reinterpret_cast<u16*>(to)[at] = static_cast<u16>(bits);
  else
    to[at] = static_cast<u8>(bits);
}

// Of what this CTA has written.
SIMT_DEVICE u64 load_written(const u8* from, u64 at, u32 nbytes) {
  if (nbytes == 4) return reinterpret_cast<const u32*>(from)[at];
  if (nbytes == 8) return reinterpret_cast<const u64*>(from)[at];
  if (nbytes == 2) return reinterpret_cast<const u16*>(from)[at];
  return from[at];
}

template <class T>
SIMT_DEVICE T quiet(T value) {
  return is_nan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

// As the host converts a row (loader/conversions.cpp), which is not one step for all types.
SIMT_DEVICE u64 converted(u64 bits, Number from, Number to) {
  if (is_wide(from) || to == Number::float64)
    return bits_of(quiet(value_of<double>(bits, from)), to);
  return bits_of(quiet(value_of<float>(bits, from)), to);
}

// a + b as the host adds elements of a dense batch.
SIMT_DEVICE u64 added(u64 a, u64 b, Number type) {
  if (type == Number::float32)
    return std::bit_cast<u32>(std::bit_cast<float>(static_cast<u32>(a)) +
                              std::bit_cast<float>(static_cast<u32>(b)));
  if (type == Number::float64)
    return std::bit_cast<u64>(std::bit_cast<double>(a) + std::bit_cast<double>(b));
  if (type == Number::boolean) return (a | b) != 0;
  return a + b;
}

SIMT_DEVICE bool is_zero(u64 bits, Number type) {
  if (!is_floating(type)) return bits == 0;
  const u64 sign = u64{1} << (8 * nbytes_of(type) - 1);
  return (bits & ~sign) == 0;
}

// Adds up over the CTA.
SIMT_DEVICE u64 sum_of_cta(RowShared& shared, u64 value) {
  const u64 sum = simt::inclusive_sum(value);
  simt::sync_cta();
  if (simt::lane_index() == simt::kWarp - 1) shared.of_warps[simt::warp_index()] = sum;
  simt::sync_cta();
  u64 all = 0;
  for (unsigned warp = 0; warp < kWarps; ++warp) all += shared.of_warps[warp];
  return all;
}

// The bits of all threads of the CTA.
SIMT_DEVICE u32 votes_of_cta(RowShared& shared, u32 vote) {
  simt::sync_cta();
  if (simt::thread_index() == 0) shared.votes = 0;
  simt::sync_cta();
  const u32 votes = simt::reduce_or(vote);
  if (simt::lane_index() == 0 && votes) simt::atomic_or(&shared.votes, votes);
  simt::sync_cta();
  return shared.votes;
}

class Row {
 public:
  SIMT_DEVICE Row(const Rows& batch, u32 number)
      : row_(batch.rows[number]),
        matrix_(batch.matrices[row_.matrix]),
        number_(number),
        data_nbytes_(nbytes_of(matrix_.data)),
        index_nbytes_(nbytes_of(matrix_.indices)),
        to_nbytes_(nbytes_of(matrix_.to)) {}

  SIMT_DEVICE u32 number() const { return number_; }
  SIMT_DEVICE u64 count() const { return row_.count; }
  SIMT_DEVICE u64 first() const { return row_.first; }
  SIMT_DEVICE u64 wanted() const { return row_.wanted; }
  SIMT_DEVICE const RowMatrix& matrix() const { return matrix_; }
  SIMT_DEVICE bool is_whole() const { return matrix_.sparse && !matrix_.map; }
  SIMT_DEVICE u32 to_nbytes() const { return to_nbytes_; }

  // What is negative is large.
  SIMT_DEVICE u64 column(u64 at) const {
    if (!matrix_.sparse) return at;
    const u64 bits = load_aligned(row_.indices, at, index_nbytes_);
    if (!is_signed(matrix_.indices)) return bits;
    const u32 unused = 64 - 8 * index_nbytes_;
    return static_cast<u64>(static_cast<i64>(bits << unused) >> unused);
  }
  SIMT_DEVICE bool is_outside(u64 column) const { return column >= matrix_.columns; }
  // The column of the batch, -1 when it has none. Of a dense matrix it has none of zeros.
  SIMT_DEVICE i32 target(u64 column, u64 at) const {
    if (!matrix_.sparse && is_zero(load_aligned(row_.data, at, data_nbytes_), matrix_.data))
      return -1;
    return matrix_.map ? simt::load_constant(matrix_.map + column) : static_cast<i32>(column);
  }

  // As bits of matrix().compute, before it is scaled.
  SIMT_DEVICE u64 loaded(u64 at) const {
    const u64 bits = load_aligned(row_.data, at, data_nbytes_);
    return matrix_.loads ? converted(bits, matrix_.data, matrix_.compute) : bits;
  }
  SIMT_DEVICE u64 stored(u64 bits) const {
    return matrix_.compute == matrix_.to ? bits : converted(bits, matrix_.compute, matrix_.to);
  }

 private:
  const BatchRow row_;
  const RowMatrix matrix_;
  const u32 number_;
  const u32 data_nbytes_, index_nbytes_, to_nbytes_;
};

// The elements of a row as they are computed with.
class Scaled {
 public:
  // By all threads of the CTA.
  SIMT_DEVICE Scaled(const Rows& batch, const Row& row, RowShared& shared)
      : row_(row), scale_(batch.scale) {
    if (!scale_.scales || !scale_.totals) return;
    const double sum = sum_of_row(shared);
    if (sum != 0) divisor_ = sum / scale_.total;
  }

  SIMT_DEVICE u64 operator()(u64 at) const { return of(row_.loaded(at)); }

  // Not so where the sum is no number.
  SIMT_DEVICE bool keeps_zero() const { return is_zero(of(0), row_.matrix().compute); }

  // Of an element, or of the sum of several.
  SIMT_DEVICE u64 of(u64 bits) const {
    if (!scale_.scales) return bits;
    if (row_.matrix().compute == Number::float64) {
      const double value = std::bit_cast<double>(bits) / divisor_;
      return std::bit_cast<u64>(scale_.log1p ? ::log1p(value) : value);
    }
    const float value = std::bit_cast<float>(static_cast<u32>(bits)) / static_cast<float>(divisor_);
    return std::bit_cast<u32>(scale_.log1p ? log1p_of(value) : value);
  }

 private:
  // In the order in which the host adds: element i in lane i mod 8, then the lanes.
  SIMT_DEVICE double sum_of_row(RowShared& shared) const {
    double lane = 0;
    const unsigned thread = simt::thread_index();
    for (u64 begin = 0; begin < row_.count(); begin += kWords) {
      const u64 rest = row_.count() - begin;
      const u32 count = static_cast<u32>(rest < kWords ? rest : kWords);
      simt::sync_cta();
      for (u32 i = thread; i < count; i += kCtaThreads) {
        const u64 bits = row_.loaded(begin + i);
        shared.words[i] = row_.matrix().compute == Number::float64
                              ? bits
                              : std::bit_cast<u64>(static_cast<double>(
                                    std::bit_cast<float>(static_cast<u32>(bits))));
      }
      simt::sync_cta();
      if (thread < kSumLanes)
        for (u32 i = thread; i < count; i += kSumLanes)
          lane += std::bit_cast<double>(shared.words[i]);
    }
    simt::sync_cta();
    if (thread < kSumLanes) shared.lanes[thread] = lane;
    simt::sync_cta();
    double sum = 0;
    for (unsigned i = 0; i < kSumLanes; ++i) sum += shared.lanes[i];
    return sum;
  }

  const Row& row_;
  const RowScale scale_;
  double divisor_ = 1;
};

struct CountRows {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = RowShared;
  Rows batch;
  u64* counts;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const Row row(batch, simt::cta_index());
    u64 kept = 0;
    bool bad = false;
    for (u64 i = simt::thread_index(); i < row.count(); i += kCtaThreads) {
      const u64 column = row.column(i);
      if (row.is_outside(column))
        bad = true;
      else
        kept += row.target(column, i) >= 0;
    }
    const u64 all = sum_of_cta(shared, kept);
    const u32 votes = votes_of_cta(shared, bad);
    if (simt::thread_index() != 0) return;
    counts[row.number()] = all;
    if (votes) simt::atomic_min(&batch.faults->corrupt, row.number());
  }
};

// Ascending keys, by all threads of the CTA; `count` a power of two.
SIMT_DEVICE void sort_keys(u64* keys, u64 count) {
  for (u64 size = 2; size <= count; size *= 2) {
    for (u64 step = size / 2; step > 0; step /= 2) {
      simt::sync_cta();
      for (u64 i = simt::thread_index(); i < count / 2; i += kCtaThreads) {
        const u64 low = (i & ~(step - 1)) * 2 | (i & (step - 1)), high = low + step;
        const u64 a = keys[low], b = keys[high];
        if ((a > b) == ((low & size) == 0)) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  }
  simt::sync_cta();
}

struct GatherRows {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = RowShared;
  Rows batch;
  u32 first_row;     // of the slab
  u64* keys;         // device memory for rows that are too long for the shared one
  const u64* first;  // where in it those of each row of the slab begin

  SIMT_DEVICE void operator()(Shared& shared) const {
    const Row row(batch, first_row + simt::cta_index());
    const Scaled scaled(batch, row, shared);
    if (row.is_whole())
      copy_whole(shared, row, scaled);
    else
      copy_kept(shared, row, scaled);
  }

  SIMT_DEVICE void put(const Row& row, u64 at, u64 bits, i32 column) const {
    store_aligned(batch.data, row.first() + at, row.to_nbytes(), row.stored(bits));
    batch.indices[row.first() + at] = column;
  }

  enum : u32 { kBad = 1, kUnordered = 2 };

  // log1p of elements of one column is that of their sum, which the first one gets; the others are
  // zero. In rows whose columns ascend there are none; in others each element looks for its like.
  SIMT_DEVICE u64 joined(const Row& row, const Scaled& scaled, u64 at) const {
    const i32 own = row.target(row.column(at), at);
    for (u64 i = 0; i < at; ++i)
      if (row.target(row.column(i), i) == own) return scaled.of(0);
    u64 sum = row.loaded(at);
    for (u64 i = at + 1; i < row.count(); ++i)
      if (row.target(row.column(i), i) == own)
        sum = added(sum, row.loaded(i), row.matrix().compute);
    return scaled.of(sum);
  }

  // The host has compared the counts.
  SIMT_DEVICE void copy_whole(Shared& shared, const Row& row, const Scaled& scaled) const {
    u32 found = 0;
    for (u64 i = simt::thread_index(); i < row.count(); i += kCtaThreads) {
      const u64 column = row.column(i);
      if (row.is_outside(column)) found |= kBad;
      if (batch.scale.log1p && i > 0 && row.column(i - 1) >= column) found |= kUnordered;
      put(row, i, scaled(i), static_cast<i32>(column));
    }
    const u32 votes = votes_of_cta(shared, found);
    if (votes & kBad) {
      if (simt::thread_index() == 0) simt::atomic_min(&batch.faults->corrupt, row.number());
    } else if (votes) {
      for (u64 i = simt::thread_index(); i < row.count(); i += kCtaThreads)
        put(row, i, joined(row, scaled, i), static_cast<i32>(row.column(i)));
    }
  }

  // Whether two elements of a row may come together, all columns being inside.
  SIMT_DEVICE bool joins(Shared& shared, const Row& row) const {
    if (!batch.scale.log1p) return false;
    u32 found = row.matrix().joins ? u32{kUnordered} : 0;
    if (row.matrix().sparse)
      for (u64 i = simt::thread_index(); i < row.count(); i += kCtaThreads) {
        const u64 column = row.column(i);
        if (row.is_outside(column)) found |= kBad;
        if (i > 0 && row.column(i - 1) >= column) found |= kUnordered;
      }
    return votes_of_cta(shared, found) == kUnordered;
  }

  SIMT_DEVICE void copy_kept(Shared& shared, const Row& row, const Scaled& scaled) const {
    const bool sorts = row.matrix().sorts;
    u64 padded = 1;
    while (padded < row.wanted()) padded *= 2;
    u64* const own = !sorts || padded <= kWords ? shared.words : keys + first[simt::cta_index()];
    const bool joining = !sorts && joins(shared, row);
    bool bad = false;
    u64 kept = 0;
    for (u64 begin = 0; begin < row.count(); begin += kCtaThreads) {
      const u64 i = begin + simt::thread_index();
      i32 target = -1;
      if (i < row.count()) {
        const u64 column = row.column(i);
        if (row.is_outside(column))
          bad = true;
        else
          target = row.target(column, i);
      }
      const u32 votes = simt::ballot(target >= 0);
      simt::sync_cta();  // the last tile's sums are read
      if (simt::lane_index() == 0) shared.of_warps[simt::warp_index()] = simt::popcount(votes);
      simt::sync_cta();
      u64 at = kept + simt::popcount(votes & ((u32{1} << simt::lane_index()) - 1));
      for (unsigned warp = 0; warp < kWarps; ++warp) {
        if (warp < simt::warp_index()) at += shared.of_warps[warp];
        kept += shared.of_warps[warp];
      }
      if (target < 0 || at >= row.wanted()) continue;
      if (sorts)
        own[at] = u64{static_cast<u32>(target)} << 32 | i;
      else
        put(row, at, joining ? joined(row, scaled, i) : scaled(i), target);
    }
    const u32 votes = votes_of_cta(shared, bad);
    if (simt::thread_index() == 0) {
      if (votes)
        simt::atomic_min(&batch.faults->corrupt, row.number());
      else if (kept != row.wanted())
        simt::atomic_min(&batch.faults->unequal, row.number());
    }
    if (!sorts || votes || kept != row.wanted()) return;
    for (u64 i = kept + simt::thread_index(); i < padded; i += kCtaThreads) own[i] = ~u64{0};
    sort_keys(own, padded);
    for (u64 i = simt::thread_index(); i < kept; i += kCtaThreads)
      put(row,
          i,
          batch.scale.log1p ? joined_neighbours(row, scaled, own, i, kept)
                            : scaled(own[i] & 0xffffffff),
          static_cast<i32>(own[i] >> 32));
  }

  // As `joined`, of sorted keys.
  SIMT_DEVICE u64 joined_neighbours(
      const Row& row, const Scaled& scaled, const u64* sorted, u64 at, u64 kept) const {
    const u64 own = sorted[at] >> 32;
    if (at > 0 && sorted[at - 1] >> 32 == own) return scaled.of(0);
    u64 sum = row.loaded(sorted[at] & 0xffffffff);
    for (u64 i = at + 1; i < kept && sorted[i] >> 32 == own; ++i)
      sum = added(sum, row.loaded(sorted[i] & 0xffffffff), row.matrix().compute);
    return scaled.of(sum);
  }
};

// By all threads of the CTA; `to` is aligned to the elements.
SIMT_DEVICE void zero(u8* to, u64 count, u32 itemsize) {
  const unsigned thread = simt::thread_index();
  const u64 nbytes = count * itemsize;
  const u64 before = (16 - reinterpret_cast<std::uintptr_t>(to) % 16) % 16;
  if (nbytes < before + 16) {
    for (u64 i = thread; i < count; i += kCtaThreads) store_aligned(to, i, itemsize, 0);
    return;
  }
  const u64 quads = (nbytes - before) / 16, behind = (before + quads * 16) / itemsize;
  for (u64 i = thread; i < before / itemsize; i += kCtaThreads) store_aligned(to, i, itemsize, 0);
  auto* const aligned = reinterpret_cast<simt::Quad*>(to + before);
  for (u64 i = thread; i < quads; i += kCtaThreads) aligned[i] = {0, 0, 0, 0};
  for (u64 i = behind + thread; i < count; i += kCtaThreads) store_aligned(to, i, itemsize, 0);
}

struct GatherDense {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = RowShared;
  Rows batch;
  u32* again;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const Row row(batch, simt::cta_index());
    const RowMatrix& matrix = row.matrix();
    u8* const to = batch.data + row.first() * row.to_nbytes();
    if (!matrix.sparse && !matrix.map) {
      const Scaled scaled(batch, row, shared);
      for (u64 i = simt::thread_index(); i < row.count(); i += kCtaThreads)
        store_aligned(to, i, row.to_nbytes(), row.stored(scaled(i)));
      zero(to + row.count() * row.to_nbytes(), batch.columns - row.count(), row.to_nbytes());
      return;
    }
    enum : u32 { kBad = 1, kUnordered = 2 };
    u32 found = matrix.joins ? u32{kUnordered} : 0;
    if (matrix.sparse) {
      for (u64 i = simt::thread_index(); i < row.count(); i += kCtaThreads) {
        const u64 column = row.column(i);
        if (row.is_outside(column)) found |= kBad;
        if (i > 0 && row.column(i - 1) >= column) found |= kUnordered;
      }
    }
    found = votes_of_cta(shared, found);
    if (found) {
      if (simt::thread_index() != 0) return;
      if (found & kBad)
        simt::atomic_min(&batch.faults->corrupt, row.number());
      else
        again[simt::atomic_add(&batch.faults->again, u32{1})] = row.number();
      return;
    }
    zero(to, batch.columns, row.to_nbytes());
    const Scaled scaled(batch, row, shared);
    simt::sync_cta();
    for (u64 i = simt::thread_index(); i < row.count(); i += kCtaThreads) {
      const i32 target = row.target(row.column(i), i);
      if (target < 0) continue;
      const u64 sum = added(0, scaled(i), matrix.compute);
      store_aligned(to, static_cast<u64>(target), row.to_nbytes(), row.stored(sum));
    }
  }
};

// The first warp of a CTA adds, 32 elements at a time, those of one column by one lane, in order.
struct SumDense {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = RowShared;
  Rows batch;
  const u32* numbers;
  u8* sums;  // of the slab, `columns` of 4 bytes a row, where those of the batch are too narrow

  SIMT_DEVICE void operator()(Shared& shared) const {
    const Row row(batch, numbers[simt::cta_index()]);
    const RowMatrix& matrix = row.matrix();
    const u32 width = nbytes_of(matrix.compute);
    u8* const to = batch.data + row.first() * row.to_nbytes();
    u8* const own =
        matrix.compute == matrix.to ? to : sums + simt::cta_index() * batch.columns * width;
    zero(own, batch.columns, width);
    const Scaled scaled(batch, row, shared);
    simt::sync_cta();
    // log1p is that of sums, where what no element goes to stays zero; else all of them are NaN.
    const bool of_sums = batch.scale.log1p && scaled.keeps_zero();
    if (simt::warp_index() == 0) add(row, scaled, own, width, of_sums);
    simt::sync_cta();
    if (own == to && !of_sums) return;
    for (u64 i = simt::thread_index(); i < batch.columns; i += kCtaThreads) {
      const u64 bits = load_written(own, i, width);
      const u64 sum = of_sums ? added(0, scaled.of(bits), matrix.compute) : bits;
      store_aligned(to, i, row.to_nbytes(), row.stored(sum));
    }
  }

  SIMT_DEVICE void add(
      const Row& row, const Scaled& scaled, u8* own, u32 width, bool of_sums) const {
    const u32 lane = simt::lane_index();
    for (u64 begin = 0; begin < row.count(); begin += simt::kWarp) {
      const u64 i = begin + lane;
      i32 target = -1;
      u64 value = 0;
      if (i < row.count()) {
        target = row.target(row.column(i), i);
        if (target >= 0) value = of_sums ? row.loaded(i) : scaled(i);
      }
      u32 same = simt::match(static_cast<u32>(target));
      if (target < 0) same = 0;
      const bool leads = same != 0 && simt::trailing_zeros(same) == lane;
      u64 sum = leads ? load_written(own, static_cast<u64>(target), width) : 0;
      for (u32 rest = same; simt::any(rest != 0); rest &= rest - 1) {
        const u64 next = simt::shuffle(value, rest ? simt::trailing_zeros(rest) : lane);
        if (leads && rest) sum = added(sum, next, row.matrix().compute);
      }
      if (leads) store_aligned(own, static_cast<u64>(target), width, sum);
      simt::sync_warp();
    }
  }
};

// The batch on the device for as long as this lives.
class Uploaded {
 public:
  Uploaded(Queue& queue, const RowBatch& batch)
      : matrices_(Scratch<RowMatrix>::of(queue, batch.matrices.data(), batch.matrices.size())),
        rows_(Scratch<BatchRow>::of(queue, batch.rows.data(), batch.rows.size())),
        batch_(batch) {}

  Rows rows() const {
    return {matrices_.data(),
            rows_.data(),
            batch_.scale,
            batch_.columns,
            batch_.data,
            batch_.indices,
            batch_.faults};
  }

 private:
  Scratch<RowMatrix> matrices_;
  Scratch<BatchRow> rows_;
  const RowBatch& batch_;
};

// Words of device memory that the keys of a row take.
u64 keys_of(const RowBatch& batch, const BatchRow& row) {
  if (!batch.matrices[row.matrix].sorts) return 0;
  if (row.count > std::numeric_limits<u32>::max())
    throw Error(ErrorCode::unsupported,
                "rows: " + std::to_string(row.count) + " elements of a row to be sorted");
  const u64 padded = std::bit_ceil(row.wanted);
  return padded <= kWords ? 0 : padded;
}

}  // namespace

void count_rows(Queue& queue, const RowBatch& batch, u64* counts) {
  if (batch.rows.empty()) return;
  const Uploaded uploaded(queue, batch);
  simt::launch(queue, batch.rows.size(), CountRows{uploaded.rows(), counts});
}

void gather_rows(Queue& queue, const RowBatch& batch) {
  if (batch.rows.empty()) return;
  const Uploaded uploaded(queue, batch);
  std::vector<u64> first;
  for (std::size_t begin = 0, end = 0; begin < batch.rows.size(); begin = end) {
    first.clear();
    u64 keys = 0;
    while (end < batch.rows.size()) {
      const u64 own = keys_of(batch, batch.rows[end]);
      if (end > begin && (keys + own) * sizeof(u64) > kMostKeysNbytes) break;
      first.push_back(keys);
      keys += own;
      ++end;
    }
    const auto starts = Scratch<u64>::of(queue, first.data(), keys > 0 ? first.size() : 0);
    const Scratch<u64> room(queue, keys);
    simt::launch(queue,
                 end - begin,
                 GatherRows{uploaded.rows(), static_cast<u32>(begin), room.data(), starts.data()});
  }
}

void gather_rows_dense(Queue& queue, const RowBatch& batch, u32* again) {
  if (batch.rows.empty()) return;
  const Uploaded uploaded(queue, batch);
  simt::launch(queue, batch.rows.size(), GatherDense{uploaded.rows(), again});
}

void sum_rows_dense(Queue& queue, const RowBatch& batch, const u32* again, std::size_t count) {
  if (count == 0) return;
  const Uploaded uploaded(queue, batch);
  const bool beside = std::any_of(batch.matrices.begin(),
                                  batch.matrices.end(),
                                  [](const RowMatrix& m) { return m.compute != m.to; });
  const std::size_t row_nbytes = beside ? batch.columns * sizeof(u32) : 0;
  const std::size_t slab = std::min(
      count,
      beside ? std::max<std::size_t>(1, kMostSumsNbytes / std::max<std::size_t>(1, row_nbytes))
             : count);
  const Scratch<u8> sums(queue, slab * row_nbytes);
  for (std::size_t begin = 0; begin < count; begin += slab)
    simt::launch(queue,
                 std::min(slab, count - begin),
                 SumDense{uploaded.rows(), again + begin, sums.data()});
}

}  // namespace headrace::SIMT_SPACE
