#include "store/coalesce.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"

namespace headrace {

std::vector<RangeGroup> coalesce(std::span<const ByteRange> ranges, const Coalescing& limits) {
  std::vector<std::size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  auto rises = [&](std::size_t a, std::size_t b) { return ranges[a].offset < ranges[b].offset; };
  if (!std::is_sorted(order.begin(), order.end(), rises)) {
    std::stable_sort(order.begin(), order.end(), rises);
  }

  std::vector<RangeGroup> groups;
  std::uint64_t group_end = 0;
  for (std::size_t i : order) {
    const ByteRange& range = ranges[i];
    std::uint64_t end = checked_add(range.offset, range.nbytes, "byte range");
    if (!groups.empty()) {
      ByteRange& whole = groups.back().range;
      bool covered = end <= group_end;
      bool near = range.offset <= group_end || range.offset - group_end <= limits.gap;
      if (covered || (near && end - whole.offset <= limits.run)) {
        group_end = std::max(group_end, end);
        whole.nbytes = group_end - whole.offset;
        groups.back().members.push_back(i);
        continue;
      }
    }
    groups.push_back({range, {i}});
    group_end = end;
  }
  return groups;
}

}  // namespace headrace
