#include "cli/selection_text.h"

#include <charconv>
#include <optional>
#include <string>
#include <system_error>

#include "headrace/error.h"

namespace headrace::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

[[noreturn]] void throw_bad_item(std::string_view item, const char* why) {
  throw Error(ErrorCode::invalid_argument, "selection: \"" + std::string(item) + "\": " + why);
}

std::int64_t parse_integer(std::string_view text, std::string_view item) {
  std::string_view digits = text;
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
  std::int64_t value = 0;
  const char* const last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, value);
  if (error == std::errc::result_out_of_range) throw_bad_item(item, "the number is out of range");
  if (error != std::errc() || end != last) {
    throw_bad_item(item, "expected an integer, a slice, \"...\" or \"None\"");
  }
  return value;
}

std::optional<std::int64_t> parse_optional(std::string_view text, std::string_view item) {
  text = trimmed(text);
  if (text.empty()) return std::nullopt;
  return parse_integer(text, item);
}

SelectionItem parse_slice(std::string_view item) {
  std::string_view parts[3];
  std::size_t n = 0;
  for (std::size_t at = 0; at <= item.size();) {
    if (n == 3) throw_bad_item(item, "a slice has at most start:stop:step");
    const std::size_t colon = item.find(':', at);
    parts[n++] = item.substr(at, colon == std::string_view::npos ? colon : colon - at);
    if (colon == std::string_view::npos) break;
    at = colon + 1;
  }
  Slice slice{parse_optional(parts[0], item), parse_optional(parts[1], item), 1};
  slice.step = parse_optional(parts[2], item).value_or(1);
  if (slice.step == 0) throw_bad_item(item, "the step is zero");
  return slice;
}

SelectionItem parse_item(std::string_view item) {
  if (item.empty()) throw_bad_item(item, "an item is empty");
  if (item == "...") return Ellipsis{};
  if (item == "None" || item == "newaxis") return NewAxis{};
  if (item.find(':') != std::string_view::npos) return parse_slice(item);
  return parse_integer(item, item);
}

}  // namespace

std::vector<SelectionItem> parse_selection(std::string_view text) {
  std::vector<SelectionItem> items;
  text = trimmed(text);
  if (text.starts_with('[') && text.ends_with(']') && text.size() >= 2) {
    text = trimmed(text.substr(1, text.size() - 2));
  }
  if (text.empty()) return items;
  bool seen_ellipsis = false;
  while (true) {
    const std::size_t comma = text.find(',');
    items.push_back(parse_item(trimmed(text.substr(0, comma))));
    if (std::holds_alternative<Ellipsis>(items.back())) {
      if (seen_ellipsis) throw_bad_item(text, "there can be only one \"...\"");
      seen_ellipsis = true;
    }
    if (comma == std::string_view::npos) break;
    text = trimmed(text.substr(comma + 1));
    if (text.empty()) break;  // "3," as Python has it
  }
  return items;
}

}  // namespace headrace::cli
