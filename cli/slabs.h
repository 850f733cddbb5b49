#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "headrace/array.h"

namespace headrace::cli {

enum class SlabOrder {
  c,       // one after another they are the result in C order; a chunk may be decoded again
  anyhow,  // whole chunks first
};

// Reads array[items] in parts of about `max_nbytes` and calls `take` with each: a single chunk or
// row of elements is not cut.
void for_each_slab(const Array& array,
                   std::vector<SelectionItem> items,
                   std::size_t max_nbytes,
                   SlabOrder order,
                   const std::function<void(const Tensor&)>& take);

}  // namespace headrace::cli
