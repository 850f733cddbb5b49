#include "loader/sample_space.h"

#include <algorithm>

#include "base/checked.h"

namespace headrace::loader {

SampleSpace::SampleSpace(std::int64_t steps,
                         const std::vector<std::int64_t>& offsets,
                         const std::vector<Range>& excluded_steps,
                         std::int64_t patches)
    : patches_(patches) {
  std::vector<Range> refused;
  for (const auto& [begin, end] : excluded_steps)
    for (const std::int64_t offset : offsets)
      if (begin < end) refused.emplace_back(begin - offset, end - offset);
  std::sort(refused.begin(), refused.end());

  const std::int64_t end = steps - offsets.back();
  std::int64_t next = 0;
  const auto allow_until = [&](std::int64_t stop) {
    if (next >= stop) return;
    allowed_.emplace_back(next, stop);
    before_.push_back(starts_);
    starts_ += stop - next;
  };
  for (const auto& [first, last] : refused) {
    allow_until(std::min(first, end));
    next = std::max(next, last);
  }
  allow_until(end);
  checked_mul(starts_, patches_, "samples of the loader");
}

std::int64_t SampleSpace::start_of(std::int64_t sample) const {
  const std::int64_t number = sample / patches_;
  const auto after = std::upper_bound(before_.begin(), before_.end(), number);
  const auto i = static_cast<std::size_t>(after - before_.begin() - 1);
  return allowed_[i].first + (number - before_[i]);
}

std::int64_t SampleSpace::first_from(std::int64_t step) const {
  const auto range = std::partition_point(
      allowed_.begin(), allowed_.end(), [&](const Range& r) { return r.second <= step; });
  if (range == allowed_.end()) return size();
  const std::int64_t number = before_[static_cast<std::size_t>(range - allowed_.begin())] +
                              std::max<std::int64_t>(step - range->first, 0);
  return number * patches_;
}

}  // namespace headrace::loader
