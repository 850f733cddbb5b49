#include "store/option_reader.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "base/double_text.h"

namespace headrace {

void refuse_place(ErrorCode code, std::string_view place, const std::string& why) {
  throw Error(code, "store" + (place.empty() ? "" : ' ' + std::string(place)) + ": " + why);
}

OptionReader::OptionReader(const StorageOptions& options, std::string place)
    : left_(options), place_(std::move(place)) {}

void OptionReader::refuse(const std::string& why) const {
  refuse_place(ErrorCode::invalid_argument, place_, why);
}

std::optional<std::string> OptionReader::take(std::string_view name) {
  const auto it = left_.find(name);
  if (it == left_.end()) return std::nullopt;
  std::string value = std::move(it->second);
  left_.erase(it);
  return value;
}

std::optional<std::string> OptionReader::take_any(std::initializer_list<std::string_view> names) {
  std::optional<std::string> found;
  std::string_view found_name;
  for (const std::string_view name : names) {
    std::optional<std::string> value = take(name);
    if (!value) continue;
    if (found) {
      refuse("options " + std::string(found_name) + " and " + std::string(name) +
             " are one thing: give one of them");
    }
    found = std::move(value);
    found_name = name;
  }
  return found;
}

bool OptionReader::take_bool(std::string_view name, bool otherwise) {
  const std::optional<std::string> value = take(name);
  if (!value) return otherwise;
  if (*value == "false" || *value == "False" || *value == "0") return false;
  if (*value == "true" || *value == "True" || *value == "1") return true;
  refuse("option " + std::string(name) + ": wanted \"true\" or \"false\", got \"" + *value + "\"");
}

std::optional<std::uint64_t> OptionReader::take_number(std::string_view name,
                                                       std::uint64_t least,
                                                       std::uint64_t most) {
  const std::optional<std::string> text = take(name);
  if (!text) return std::nullopt;
  std::uint64_t value = 0;
  const char* const end = text->data() + text->size();
  const auto [stopped, error] = std::from_chars(text->data(), end, value);
  if (error == std::errc() && stopped == end && value >= least && value <= most) return value;
  refuse("option " + std::string(name) + ": wanted a number from " + std::to_string(least) +
         " to " + std::to_string(most) + ", got \"" + *text + "\"");
}

std::optional<std::chrono::milliseconds> OptionReader::take_duration(
    std::initializer_list<std::string_view> names) {
  const std::optional<std::string> text = take_any(names);
  if (!text) return std::nullopt;
  constexpr double kLongest = 1e9;  // ms: longer than any process waits for an answer
  double value = 0;
  const char* const end = text->data() + text->size();
  const auto [stopped, error] = double_from_chars(text->data(), end, value);
  const std::string_view unit(stopped, static_cast<std::size_t>(end - stopped));
  double scale = 0;
  if (unit.empty() || unit == "s") scale = 1e3;
  if (unit == "ms") scale = 1;
  if (unit == "m") scale = 60e3;
  if (unit == "h") scale = 3600e3;
  const double milliseconds = value * scale;
  if (error == std::errc() && milliseconds >= 1 && milliseconds <= kLongest) {
    return std::chrono::milliseconds(std::llround(milliseconds));
  }
  refuse("option " + std::string(*names.begin()) +
         ": wanted seconds, as in \"30\", \"1.5\" or \"250ms\", got \"" + *text + "\"");
}

void OptionReader::finish(const char* kind) const {
  if (left_.empty()) return;
  refuse("option \"" + left_.begin()->first + "\" means nothing to " + kind + " store");
}

}  // namespace headrace
