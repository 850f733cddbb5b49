#include <algorithm>
#include <cmath>
#include <compare>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "base/counted.h"
#include "engine/rechunk/plan.h"
#include "engine/request/array_state.h"
#include "format/chunk_edges.h"
#include "headrace/error.h"

namespace headrace {
namespace {

// What a chunk costs beside its bytes, in bytes that could be decoded meanwhile.
constexpr double kChunkOverheadNbytes = 128 << 10;
constexpr double kMinChunkNbytes = 4 << 10;  // what a disk and a page cache read at once
constexpr double kMaxChunkNbytes = 16 << 20;
constexpr std::size_t kMaxShardNbytes = std::size_t{64} << 20;
constexpr double kIndexNbytes = 16;  // of a chunk in its shard's index

[[noreturn]] void throw_invalid(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "[advise] " + message);
}

// Along one dimension, on average over all places of a sample there.
struct Along {
  double chunks = 0;
  double elements = 0;  // of these chunks
};

// A sample of `wanted` elements begins anywhere from 0 to extent - wanted, and touches a chunk of n
// that begins at s if it begins in (s - wanted, s + n). Summed up over the chunks of each band: of
// those at the array's ends there are fewer such places.
Along touched_along(const ChunkEdges& edges, std::int64_t extent, std::int64_t wanted) {
  const std::int64_t places = extent - wanted + 1;
  const auto share = [&](double n) { return n / static_cast<double>(places); };
  Along along;
  for (const ChunkBand& band : edges.bands) {
    const std::int64_t first = band.first_index;
    const std::int64_t n = band.extent;
    if (first >= extent) break;
    const std::int64_t in_array = (extent - first - 1) / n + 1;
    const std::int64_t count = std::min(edges.count_of(band), in_array);
    // Chunks whose end is not behind the last place, and those that begin before `wanted` - 1.
    const auto before = [&](std::int64_t i) { return std::clamp<std::int64_t>(i, 0, count); };
    const std::int64_t inside = first < places ? before((places - first) / n) : 0;
    const std::int64_t early = first < wanted - 1 ? before((wanted - 2 - first) / n + 1) : 0;
    const auto lo = static_cast<double>(std::min(inside, early));
    const auto hi = static_cast<double>(std::max(inside, early));
    const auto size = static_cast<double>(n);
    // Where the i-th chunk begins, on average over [from, to).
    const auto begin = [&](double from, double to) {
      return static_cast<double>(first) + size * (from + to - 1) / 2;
    };
    double sum = lo * (begin(0, lo) + size);
    sum += (hi - lo) *
           (inside > early ? size + static_cast<double>(wanted - 1) : static_cast<double>(places));
    const double rest = static_cast<double>(count) - hi;
    sum += rest * (static_cast<double>(extent) - begin(hi, static_cast<double>(count)));
    along.chunks += share(sum);
    along.elements += share(sum) * size;
    // The last chunk is cut off at the end of the array.
    if (count < in_array || (extent - first) % n == 0) continue;
    const std::int64_t last = first + (count - 1) * n;
    const std::int64_t touching = places - std::max<std::int64_t>(last - wanted + 1, 0);
    const std::int64_t behind = n - (extent - last);
    along.elements -= share(static_cast<double>(touching)) * static_cast<double>(behind);
  }
  return along;
}

struct Candidate {
  std::int64_t extent;
  Along along;
};

std::vector<Candidate> candidates(std::int64_t extent, std::int64_t wanted, double itemsize) {
  Shape extents = {1, (wanted - 1) / 4 + 1, (wanted - 1) / 2 + 1, wanted};
  extents.push_back(wanted > extent / 2 ? extent : 2 * wanted);
  // By their bytes, where a sample has too few elements along the dimension, or too many.
  for (double nbytes = kMinChunkNbytes; nbytes <= kMaxChunkNbytes; nbytes *= 8) {
    const double elements = std::max(std::ceil(nbytes / itemsize), 1.0);
    extents.push_back(std::min(static_cast<std::int64_t>(elements), extent));
  }
  std::ranges::sort(extents, std::greater());
  extents.erase(std::unique(extents.begin(), extents.end()), extents.end());
  std::vector<Candidate> result;
  for (const std::int64_t chunk : extents)
    result.push_back({chunk, touched_along(ChunkEdges::repeating(chunk), extent, wanted)});
  return result;
}

class Search {
 public:
  Search(std::vector<std::vector<Candidate>> dimensions,
         double itemsize,
         double array_nbytes,
         double max_nbytes)
      : dimensions_(std::move(dimensions)),
        itemsize_(itemsize),
        array_nbytes_(array_nbytes),
        min_nbytes_(std::min(kMinChunkNbytes, array_nbytes)),
        max_nbytes_(std::max(max_nbytes, 8 * kMinChunkNbytes)) {}

  Shape cheapest() {
    visit(0, itemsize_, 1, itemsize_);
    return best_;
  }

 private:
  // Chunks that are too large come after all others.
  struct Cost {
    double excess;
    double nbytes;
    auto operator<=>(const Cost&) const = default;
  };

  // The dimensions before `d` are chosen.
  void visit(std::size_t d, double chunk_nbytes, double chunks, double nbytes) {
    // No dimension makes it less: every sample touches a chunk.
    Cost cost{std::max(chunk_nbytes - max_nbytes_, 0.0), nbytes + chunks * kChunkOverheadNbytes};
    if (cost >= best_cost_) return;
    if (d == dimensions_.size()) {
      if (chunk_nbytes < min_nbytes_) return;
      const double in_shard = std::min(array_nbytes_, double{kMaxShardNbytes}) / chunk_nbytes;
      cost.nbytes += in_shard * kIndexNbytes;
      if (cost >= best_cost_) return;
      best_ = chosen_;
      best_cost_ = cost;
      return;
    }
    for (const Candidate& candidate : dimensions_[d]) {
      chosen_.push_back(candidate.extent);
      visit(d + 1,
            chunk_nbytes * static_cast<double>(candidate.extent),
            chunks * candidate.along.chunks,
            nbytes * candidate.along.elements);
      chosen_.pop_back();
    }
  }

  const std::vector<std::vector<Candidate>> dimensions_;
  const double itemsize_;
  const double array_nbytes_;
  const double min_nbytes_;
  const double max_nbytes_;
  Shape chosen_;
  Shape best_;
  Cost best_cost_{std::numeric_limits<double>::infinity(), 0};
};

std::vector<ChunkEdges> grid_of(const Shape& chunks) {
  std::vector<ChunkEdges> grid;
  for (const std::int64_t extent : chunks) grid.push_back(ChunkEdges::repeating(extent));
  return grid;
}

// Of the chunks that are read: inner ones when sharded.
std::vector<ChunkEdges> present_grid(const Array& array) {
  if (array.is_rectilinear() && !array.is_sharded()) return array.state()->metadata()->chunk_edges;
  return grid_of(array.chunks());
}

SampleCost cost_of(const std::vector<ChunkEdges>& grid,
                   const Shape& shape,
                   const Shape& sample,
                   double itemsize) {
  SampleCost cost{1, itemsize, 1};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const Along along = touched_along(grid[d], shape[d], sample[d]);
    cost.chunks *= along.chunks;
    cost.nbytes *= along.elements;
    cost.amplification *= along.elements / static_cast<double>(sample[d]);
  }
  return cost;
}

Shape sample_of(const Array& array, const AccessPattern& pattern) {
  const Shape shape = array.shape();
  if (array.dtype().variable_length())
    throw Error(ErrorCode::unsupported, "[advise] elements of variable length");
  if (pattern.sample.size() != shape.size()) {
    throw_invalid("sample: expected " + counted(shape.size(), "extent") + ", got " +
                  std::to_string(pattern.sample.size()));
  }
  if (pattern.batch < 1) throw_invalid("batch: expected at least 1");
  Shape sample = pattern.sample;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (sample[d] == -1) sample[d] = shape[d];
    if (sample[d] < 1 || sample[d] > shape[d]) {
      throw_invalid("sample: expected 1 to " + std::to_string(shape[d]) + " along axis " +
                    std::to_string(d) + ", got " + std::to_string(sample[d]));
    }
  }
  return sample;
}

}  // namespace

Advice advise(const Array& array, const AccessPattern& pattern) {
  const Shape shape = array.shape();
  const Shape sample = sample_of(array, pattern);
  const auto itemsize = static_cast<double>(array.dtype().itemsize());
  std::vector<std::vector<Candidate>> dimensions;
  double array_nbytes = itemsize;
  double batch_nbytes = itemsize * static_cast<double>(pattern.batch);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    dimensions.push_back(candidates(shape[d], sample[d], itemsize));
    array_nbytes *= static_cast<double>(shape[d]);
    batch_nbytes *= static_cast<double>(sample[d]);
  }
  Advice advice;
  advice.chunks =
      Search(dimensions, itemsize, array_nbytes, std::min(kMaxChunkNbytes, batch_nbytes))
          .cheapest();
  advice.shards = choose_shards(shape, advice.chunks, array.dtype().itemsize(), kMaxShardNbytes);
  advice.codecs = {codec::zstd(3)};
  advice.present = cost_of(present_grid(array), shape, sample, itemsize);
  advice.proposed = cost_of(grid_of(advice.chunks), shape, sample, itemsize);
  return advice;
}

}  // namespace headrace
