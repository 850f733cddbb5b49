#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "engine/rechunk/plan.h"
#include "headrace/error.h"

namespace headrace {
namespace {

// What a chunk costs beside its bytes, in bytes that could be decoded meanwhile.
constexpr double kChunkOverheadNbytes = 128 << 10;
constexpr double kMaxChunkNbytes = 16 << 20;
constexpr std::size_t kMaxShardNbytes = std::size_t{64} << 20;

[[noreturn]] void throw_invalid(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "[advise] " + message);
}

// Along one dimension, on average over all places of a sample there.
struct Along {
  double chunks = 0;
  double elements = 0;  // of these chunks
};

// A chunk of extent n that begins at s is touched by the samples that begin in (s - wanted, s + n),
// of those that there are: 0 to extent - wanted.
Along touched_along(const Shape& sizes, std::int64_t extent, std::int64_t wanted) {
  const std::int64_t places = extent - wanted + 1;
  Along along;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    const std::int64_t first = std::max<std::int64_t>(start - wanted + 1, 0);
    const std::int64_t last = std::min(start + size, places);
    const double share = static_cast<double>(last - first) / static_cast<double>(places);
    if (last > first) {
      along.chunks += share;
      along.elements += share * static_cast<double>(size);
    }
    start += size;
  }
  return along;
}

struct Candidate {
  std::int64_t extent;
  Along along;
};

Shape regular_sizes(std::int64_t extent, std::int64_t chunk) {
  Shape sizes(static_cast<std::size_t>(extent / chunk), chunk);
  if (extent % chunk != 0) sizes.push_back(extent % chunk);
  return sizes;
}

std::vector<Candidate> candidates(std::int64_t extent, std::int64_t wanted) {
  Shape extents = {1, (wanted + 3) / 4, (wanted + 1) / 2, wanted, std::min(2 * wanted, extent)};
  std::ranges::sort(extents, std::greater());
  extents.erase(std::unique(extents.begin(), extents.end()), extents.end());
  std::vector<Candidate> result;
  for (const std::int64_t chunk : extents)
    result.push_back({chunk, touched_along(regular_sizes(extent, chunk), extent, wanted)});
  return result;
}

class Search {
 public:
  Search(std::vector<std::vector<Candidate>> dimensions, double itemsize, double max_nbytes)
      : dimensions_(std::move(dimensions)), max_nbytes_(max_nbytes), itemsize_(itemsize) {}

  Shape cheapest() {
    visit(0, itemsize_, 1, itemsize_);
    return best_;
  }

 private:
  // The dimensions before `d` are chosen.
  void visit(std::size_t d, double chunk_nbytes, double chunks, double nbytes) {
    // No dimension makes it less: every sample touches a chunk.
    const double cost = nbytes + chunks * kChunkOverheadNbytes;
    if (chunk_nbytes > max_nbytes_ || cost >= best_cost_) return;
    if (d == dimensions_.size()) {
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
  const double max_nbytes_;
  const double itemsize_;
  Shape chosen_;
  Shape best_;
  double best_cost_ = std::numeric_limits<double>::infinity();
};

SampleCost cost_of(const ChunkSizes& grid,
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
    throw_invalid("sample: expected " + std::to_string(shape.size()) + " extents, got " +
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
  double batch_nbytes = itemsize * static_cast<double>(pattern.batch);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    dimensions.push_back(candidates(shape[d], sample[d]));
    batch_nbytes *= static_cast<double>(sample[d]);
  }
  Advice advice;
  advice.chunks = Search(dimensions, itemsize, std::min(kMaxChunkNbytes, batch_nbytes)).cheapest();
  advice.shards = choose_shards(shape, advice.chunks, array.dtype().itemsize(), kMaxShardNbytes);
  advice.codecs = {codec::zstd(3)};
  ChunkSizes proposed;
  for (std::size_t d = 0; d < shape.size(); ++d)
    proposed.push_back(regular_sizes(shape[d], advice.chunks[d]));
  advice.present = cost_of(array.read_chunk_sizes(), shape, sample, itemsize);
  advice.proposed = cost_of(proposed, shape, sample, itemsize);
  return advice;
}

}  // namespace headrace
