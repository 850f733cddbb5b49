#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "headrace/tensor.h"

namespace headrace::loader {

// One dimension of an array and the chunks along it.
class ChunkAxis {
 public:
  // The extents of the chunks; those of an array in one piece: its extent.
  explicit ChunkAxis(const Shape& sizes) {
    for (const std::int64_t size : sizes) {
      extent_ += size;
      largest_ = std::max(largest_, size);
    }
    count_ = static_cast<std::int64_t>(sizes.size());
    const bool regular = std::all_of(sizes.begin(),
                                     sizes.end() - (sizes.empty() ? 0 : 1),
                                     [&](std::int64_t size) { return size == largest_; });
    if (regular) return;
    std::int64_t begin = 0;
    for (const std::int64_t size : sizes) begins_.push_back(std::exchange(begin, begin + size));
  }

  std::int64_t extent() const { return extent_; }
  std::int64_t count() const { return count_; }
  std::int64_t largest() const { return largest_; }
  std::int64_t begin(std::int64_t chunk) const {
    return begins_.empty() ? chunk * largest_ : begins_[static_cast<std::size_t>(chunk)];
  }
  std::int64_t end(std::int64_t chunk) const {
    return chunk + 1 == count_ ? extent_ : begin(chunk + 1);
  }
  std::int64_t chunk_of(std::int64_t index) const {
    if (begins_.empty()) return index / largest_;
    return std::upper_bound(begins_.begin(), begins_.end(), index) - begins_.begin() - 1;
  }

 private:
  std::int64_t extent_ = 0, count_ = 0, largest_ = 0;
  std::vector<std::int64_t> begins_;  // empty when all chunks but the last have one extent
};

}  // namespace headrace::loader
