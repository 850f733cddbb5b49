#include "store/http/content_range.h"

#include <algorithm>
#include <charconv>

#include "base/checked.h"

namespace headrace {

std::string range_header(const Extent& extent) {
  switch (extent.kind) {
    case Extent::Kind::whole:
      return "";
    case Extent::Kind::range: {
      const std::uint64_t end = checked_add(extent.offset, extent.nbytes, "range of an object");
      return "bytes=" + std::to_string(extent.offset) + "-" + std::to_string(end - 1);
    }
    case Extent::Kind::suffix:
      return "bytes=-" + std::to_string(extent.nbytes);
  }
  return "";
}

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  const std::size_t slash = text.find('/');
  if (!same_name(text.substr(0, kUnit.size()), kUnit) || slash == text.npos) return std::nullopt;
  const std::string_view range = text.substr(kUnit.size(), slash - kUnit.size());
  const std::string_view total = text.substr(slash + 1);
  ContentRange found;
  if (total != "*") {
    found.object_nbytes = parse_number(total);
    if (!found.object_nbytes) return std::nullopt;
  }
  if (range == "*") return found;
  const std::size_t dash = range.find('-');
  if (dash == range.npos) return std::nullopt;
  const auto first = parse_number(range.substr(0, dash));
  const auto last = parse_number(range.substr(dash + 1));
  // The last byte of the highest range is at UINT64_MAX - 1, so that its length can be counted.
  if (!first || !last || *last < *first || *last == UINT64_MAX) return std::nullopt;
  if (found.object_nbytes && *last >= *found.object_nbytes) return std::nullopt;
  found.satisfied = true;
  found.first = *first;
  found.last = *last;
  return found;
}

}  // namespace headrace
