#pragma once

// Which ranges of one object to read together: neighbours in a shard cost less as one request than
// the bytes between them do.

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/store.h"

namespace headrace {

struct RangeGroup {
  ByteRange range;                   // covers every member
  std::vector<std::size_t> members;  // positions in the input, by offset
};

// Groups by rising offset. A range joins the group before it when at most `gap` unused bytes lie
// between and the group stays within `run` bytes; one already covered always joins. A range longer
// than `run` is a group alone or with ranges inside it. Throws `invalid_argument` when a range ends
// past 2^64.
std::vector<RangeGroup> coalesce(std::span<const ByteRange> ranges, const Coalescing& limits);

}  // namespace headrace
