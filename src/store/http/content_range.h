#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "store/async.h"

namespace headrace {

// The header Range: "bytes=0-99", "bytes=-8"; empty for a whole object.
std::string range_header(const Extent& extent);

// "bytes 5-9/20" and "bytes */20" (https://www.rfc-editor.org/rfc/rfc9110#name-content-range).
struct ContentRange {
  bool satisfied = false;  // false: "*" in place of the bytes
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::optional<std::uint64_t> object_nbytes{};  // nothing: "*"
};

// Nothing for what is none.
std::optional<ContentRange> parse_content_range(std::string_view text);
// Digits alone.
std::optional<std::uint64_t> parse_number(std::string_view text);
// Without regard to case, as names of headers are.
bool same_name(std::string_view a, std::string_view b);

}  // namespace headrace
