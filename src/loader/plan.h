#pragma once

// What the variables and options of a loader mean, worked out once. Immutable.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/loader.h"
#include "kernels/kernels.h"
#include "loader/chunk_axis.h"
#include "loader/order.h"
#include "loader/sample_space.h"

namespace headrace::loader {

// Consecutive indices of a dimension, within one chunk, and where they go in the sample.
struct Cut {
  std::int64_t chunk = 0;
  std::int64_t in_chunk = 0;
  std::int64_t count = 0;
  std::int64_t target = 0;
};
using Cuts = std::vector<Cut>;

// A patched dimension of the sample space; variables may lack it.
struct PatchAxis {
  Patch patch;
  std::int64_t extent = 0, count = 0;

  std::int64_t begin(std::int64_t number) const {
    return std::min(number * patch.size, extent - patch.size);
  }
};

// One dimension of a variable.
struct PlannedAxis {
  ChunkAxis chunks;
  std::int64_t extent = 0;             // in a sample
  std::int64_t target_stride = 0;      // bytes, in a sample
  std::optional<std::size_t> patch{};  // number of its PatchAxis
  Cuts cuts{};                         // of every sample, unless it is patched or of the samples
};

struct PlannedVariable {
  std::string name;
  std::size_t source;
  Array array;
  DType dtype;                           // of the array
  std::optional<GatherFormat> format{};  // nothing: elements are copied as they are
  std::vector<PlannedAxis> axes{};
  std::size_t sample_axis = 0;
  std::size_t tensor = 0;                        // of the batch
  std::int64_t slot_offset = 0;                  // bytes, of the variable in a sample of the tensor
  std::optional<std::size_t> statistics_axis{};  // with one mean and std an index
  std::vector<double> mean{}, std{};             // one at least
  bool has_gaps = false;                         // a halo may lie outside of the array

  std::int64_t chunk_count() const;
  // Coordinates of a chunk by its number in C order.
  Shape chunk_at(std::int64_t chunk) const;
  std::size_t chunk_nbytes(std::int64_t chunk) const;
  std::size_t largest_chunk_nbytes() const;
};

struct PlannedTensor {
  std::string name;
  DType dtype;
  Shape sample_shape;
  std::size_t sample_nbytes = 0;
  bool has_gaps = false;  // of a variable

  friend bool operator==(const PlannedTensor&, const PlannedTensor&) = default;
};

struct PlannedSource {
  SampleSpace space;
  // Samples, steps and variables of all sources are numbered through.
  std::int64_t first_sample, first_step;
  std::size_t first_variable, variables;
};

// Where a sample lies.
struct SamplePlace {
  std::size_t source;
  std::int64_t start;  // step
  std::int64_t patch;
};

struct Plan {
  Options options;
  std::vector<PlannedSource> sources{};
  std::vector<PlannedVariable> variables{};  // source after source
  std::vector<PlannedTensor> tensors{};
  std::vector<PatchAxis> patches{};
  std::vector<std::int64_t> offsets{};  // of the steps of a sample from its first
  OrderOptions order{};
  std::string order_id{};

  std::int64_t epoch_samples() const { return order.size; }
  std::span<const PlannedVariable> variables_of(const PlannedSource& source) const;
  std::int64_t steps_of(const PlannedSource& source) const;
  SamplePlace place_of(std::int64_t sample) const;
  std::size_t batch_nbytes() const;
  std::int64_t global_batch() const { return options.batch_size * options.world_size; }
  std::int64_t batches_from(std::int64_t position) const;
  // First indices of the patch along each patched dimension.
  std::vector<std::int64_t> patch_begin(std::int64_t patch) const;
  // The samples that need a chunk of the variable, and few others.
  Range samples_of(const PlannedVariable& variable, std::int64_t chunk) const;
};

// Epochs below it have a next one, and numbers to spare for all that are counted from there.
inline constexpr std::int64_t kEpochEnd = std::int64_t{1} << 62;

void check_least(std::int64_t value, std::int64_t least, const char* what);
[[noreturn]] void refuse(const std::string& what, ErrorCode code = ErrorCode::invalid_argument);

// `invalid_argument` or `unsupported` for what does not fit together.
Plan make_plan(const std::vector<Source>& sources, const Options& options);

// Indices [begin, begin + count) of a dimension, at `target` and after; appended.
void cut_by_chunks(const ChunkAxis& chunks,
                   std::int64_t begin,
                   std::int64_t count,
                   std::int64_t target,
                   Cuts& cuts);
// Of a patch with its halo.
Cuts patch_cuts(const PatchAxis& axis, const ChunkAxis& chunks, std::int64_t begin);

}  // namespace headrace::loader
