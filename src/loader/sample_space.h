#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace headrace::loader {

using Range = std::pair<std::int64_t, std::int64_t>;  // half-open

// The samples that there are, numbered by their first step and then by their patch.
class SampleSpace {
 public:
  // `offsets`: the steps of a sample, counted from its first one, ascending. `patches`: of a step.
  SampleSpace(std::int64_t steps,
              const std::vector<std::int64_t>& offsets,
              const std::vector<Range>& excluded_steps,
              std::int64_t patches);

  std::int64_t size() const { return starts_ * patches_; }
  std::int64_t patches() const { return patches_; }
  // First steps that samples have: ascending ranges.
  const std::vector<Range>& starts() const { return allowed_; }
  std::int64_t start_of(std::int64_t sample) const;
  std::int64_t patch_of(std::int64_t sample) const { return sample % patches_; }
  // The first sample that begins at `step` or later.
  std::int64_t first_from(std::int64_t step) const;

 private:
  std::vector<Range> allowed_;        // ascending first steps
  std::vector<std::int64_t> before_;  // first steps before each of these ranges
  std::int64_t starts_ = 0;
  std::int64_t patches_;
};

}  // namespace headrace::loader
