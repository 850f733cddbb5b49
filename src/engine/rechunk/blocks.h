#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "headrace/array.h"
#include "headrace/rechunk.h"

namespace headrace {

// Of each block of a pass, by number.
std::vector<std::int64_t> block_nbytes(const RechunkPass& pass, std::size_t itemsize);

// The elements of one block after another, in the same memory: that of a Tensor each is kept for a
// while, and smaller blocks at the edges would take more.
class BlockMemory {
 public:
  explicit BlockMemory(std::size_t room_nbytes) : room_nbytes_(room_nbytes) {}

  // Valid until the next one.
  TensorView read(const Array& array, const Selection& block, const ReadOptions& options);

 private:
  const std::size_t room_nbytes_;  // of the largest block, as far as it is known
  Buffer memory_;
  std::optional<Tensor> strings_;
};

bool same_elements(const TensorView& a, const TensorView& b);

// "[0:4, 8:16]" for messages.
std::string text_of(const Selection& block);

}  // namespace headrace
