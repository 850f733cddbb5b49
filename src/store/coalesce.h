#pragma once

// Which ranges of one object to read together: neighbours in a shard cost less as one request than
// the bytes between them do.

#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

struct RangeGroup {
  ByteRange range;                   // covers every member
  std::vector<std::size_t> members;  // positions in the input, by offset
};

// Groups by rising offset. A range joins the group before it when at most `gap` unused bytes lie
// between and the group stays within `run` bytes; one already covered always joins. A range longer
// than `run` is a group alone or with ranges inside it. Throws `invalid_argument` when a range ends
// past 2^64.
std::vector<RangeGroup> coalesce(std::span<const ByteRange> ranges,
                                 std::uint64_t gap,
                                 std::uint64_t run);

}  // namespace headrace
