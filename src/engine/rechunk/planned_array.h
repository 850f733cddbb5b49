#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/rechunk/tree.h"
#include "headrace/rechunk.h"

namespace headrace {

// An array to be copied, and how.
struct PlannedArray {
  Array source;
  Array target;  // the destination's metadata: nothing is stored yet
  RechunkPlan plan;
};

// What is missing in the source: where it names no fill value, what it reads as.
std::optional<std::vector<std::byte>> fill_of(const Array& source);

std::vector<PlannedArray> planned_arrays(const RechunkTree& tree, const RechunkOptions& options);

// What must be the same when a rechunk goes on: {"source": ..., "documents": ..., ...}. A source
// that only this process knows has a name that begins with kUnnamed.
std::string source_name(const RechunkTree& tree, const RechunkOptions& options);
std::string arguments_json(const RechunkTree& tree,
                           const std::vector<PlannedArray>& arrays,
                           const RechunkOptions& options);

std::size_t largest_block_nbytes(const std::vector<PlannedArray>& arrays);

}  // namespace headrace
