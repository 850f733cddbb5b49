#pragma once

// What a doctor found of a place, in the order in which it was looked for.

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace headrace {

struct Finding {
  std::string check;       // one word
  const char* state = "";  // "good", "note", "problem"
  std::string says;
};

class Findings {
 public:
  void good(std::string check, std::string says) { add(std::move(check), "good", std::move(says)); }
  // What costs time, or may be meant so.
  void note(std::string check, std::string says) { add(std::move(check), "note", std::move(says)); }
  void problem(std::string check, std::string says) {
    add(std::move(check), "problem", std::move(says));
  }

  const std::vector<Finding>& rows() const { return rows_; }
  std::size_t size() const { return rows_.size(); }
  bool is_good() const {
    return std::none_of(rows_.begin(), rows_.end(), [](const Finding& row) {
      return row.state == std::string_view("problem");
    });
  }

 private:
  void add(std::string check, const char* state, std::string says) {
    rows_.push_back({std::move(check), state, std::move(says)});
  }

  std::vector<Finding> rows_;
};

}  // namespace headrace
