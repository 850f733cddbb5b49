#include "cli/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace headrace::cli {
namespace {

constexpr std::size_t kLikeness = 2;  // letters that may differ
constexpr std::size_t kListed = 8;

// How many letters differ, by Levenshtein.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// The one name that begins so, as --select of --selection.
std::string completed(std::string_view word, const std::vector<std::string>& names) {
  if (word.size() < 3) return "";
  const auto begins = [&](const std::string& name) { return name.starts_with(word); };
  const auto found = std::ranges::find_if(names, begins);
  return found == names.end() || std::ranges::count_if(names, begins) > 1 ? "" : *found;
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  std::string found;
  std::size_t least = kLikeness + 1;
  for (const std::string& name : names) {
    // What differs in length by more differs in letters by more.
    if (name.size() > word.size() + kLikeness || word.size() > name.size() + kLikeness) continue;
    const std::size_t d = distance(word, name);
    if (d < least && d < word.size()) {
      least = d;
      found = name;
    }
  }
  return found.empty() ? completed(word, names) : found;
}

std::string did_you_mean(std::string_view word,
                         const std::vector<std::string>& names,
                         std::string_view kind) {
  const std::string found = nearest(word, names);
  if (!found.empty()) return "; did you mean " + found + '?';
  if (kind.empty() || names.empty()) return "";
  std::string text = fmt::format("; {} ", kind);
  for (std::size_t i = 0; i < std::min(names.size(), kListed); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kListed) text += fmt::format(" and {} more", names.size() - kListed);
  return text;
}

}  // namespace headrace::cli
