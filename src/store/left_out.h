#pragma once

// What lists leave out because no key can name it. A driver tells of it where it drops it, and who
// asked for the list hears of it, whichever drivers lie between them.

#include <string_view>

#include "headrace/store.h"

namespace headrace {

// Adds what lists of this thread leave out to `into`.
class LeftOutScope {
 public:
  explicit LeftOutScope(LeftOut& into) noexcept;
  ~LeftOutScope();
  LeftOutScope(const LeftOutScope&) = delete;
  LeftOutScope& operator=(const LeftOutScope&) = delete;

 private:
  LeftOut* const outer_;
};

// `name` as the place has it.
void tell_left_out(std::string_view name);

}  // namespace headrace
