#include "cli/by_dimension.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <variant>

#include "cli/command.h"
#include "cli/selection_text.h"
#include "cli/suggest.h"

namespace headrace::cli {
namespace {

std::optional<std::int64_t> integer_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::size_t axis_of(const char* option, const std::string& name, const Array& array) {
  const auto names = array.dimension_names();
  const auto named = std::ranges::count(names, std::optional(name));
  if (named > 1)
    throw_usage(fmt::format("{}: \"{}\" is the name of several dimensions", option, name));
  if (named == 1)
    return static_cast<std::size_t>(std::ranges::find(names, std::optional(name)) - names.begin());
  const auto ndim = static_cast<std::int64_t>(array.shape().size());
  const std::int64_t number = integer_of(name).value_or(-1);
  if (number >= 0 && number < ndim) return static_cast<std::size_t>(number);
  std::vector<std::string> known;
  for (const auto& one : names)
    if (one) known.push_back(*one);
  throw_usage(fmt::format("{}: there is no dimension \"{}\"{}",
                          option,
                          name,
                          known.empty() ? "; they have no names, and numbers from 0"
                                        : did_you_mean(name, known, "there are")));
}

}  // namespace

bool is_by_dimension(std::string_view text) { return text.find('=') != std::string_view::npos; }

std::vector<DimensionValue> by_dimension(const char* option,
                                         std::string_view text,
                                         const Array& array) {
  std::vector<DimensionValue> values;
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      throw_usage(fmt::format("{}: expected DIMENSION=VALUE, got \"{}\"", option, part));
    const std::size_t axis = axis_of(option, std::string(part.substr(0, equals)), array);
    if (std::ranges::count(values, axis, &DimensionValue::axis) > 0)
      throw_usage(fmt::format("{}: dimension {} is given twice", option, axis));
    values.push_back({axis, std::string(part.substr(equals + 1))});
    if (comma == std::string_view::npos) return values;
    text.remove_prefix(comma + 1);
  }
}

std::int64_t parse_integer(const char* option, std::string_view text) {
  const std::optional<std::int64_t> value = integer_of(text);
  if (!value) throw_usage(fmt::format("{}: expected an integer, got \"{}\"", option, text));
  return *value;
}

std::vector<SelectionItem> selection_of(const Array& array, const std::string& text) {
  try {
    if (!is_by_dimension(text)) return parse_selection(text);
    std::vector<SelectionItem> items(array.shape().size(), Slice{});
    for (const DimensionValue& value : by_dimension("--selection", text, array)) {
      const std::vector<SelectionItem> parsed = parse_selection(value.text);
      if (parsed.size() != 1 || std::holds_alternative<Ellipsis>(parsed[0]) ||
          std::holds_alternative<NewAxis>(parsed[0]))
        throw_usage("--selection: expected an integer or a slice, got \"" + value.text + '"');
      items[value.axis] = parsed[0];
    }
    return items;
  } catch (const Error& e) {
    throw_usage(e.what());
  }
}

}  // namespace headrace::cli
