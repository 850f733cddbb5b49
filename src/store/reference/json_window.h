#pragma once

// JSON of any length, of which no more than one value at a time lies in memory:
//  JsonWindow json(source, "refs.json");
//  for (json.take('{'); json.next_member(first); ) { key = json.string(); json.take(':'); ... }
// What is returned as a view lives until the next call. Anything that is no JSON is `corrupt`, with
// where it is; of values that are handed on as they are (raw_value) only strings and brackets are
// looked at, their reader sees the rest.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/buffer.h"
#include "base/bytes.h"

namespace headrace {

class JsonWindow {
 public:
  // Fills the bytes from where it was, as far as it can; fewer at the end.
  using Source = std::function<std::size_t(MutableBytes)>;

  JsonWindow(Source source, std::string name);

  // The next character that is no space; '\0' at the end.
  char peek();
  void take(char c);
  // Before each element of an object or list, whose opening bracket was taken: false at its end,
  // which is taken then.
  bool next_element(char close, bool first);
  std::string_view string();  // decoded
  std::uint64_t number();     // a whole one, not negative
  // One value as it is written.
  std::string_view raw_value();

  [[noreturn]] void fail(const std::string& message) const;

 private:
  bool more();  // false at the end; what lies from start_ on is kept
  bool has(std::size_t at) { return at < end_ || more_until(at); }
  bool more_until(std::size_t at);
  char at(std::size_t i) const { return as_chars(window_.bytes())[i]; }
  // From the first quote to behind the last.
  void scan_string(std::size_t& i, bool& escaped);

  Source source_;
  std::string name_;
  Buffer window_;
  std::size_t start_ = 0;     // of what is not taken yet
  std::size_t end_ = 0;       // of what was read
  std::uint64_t before_ = 0;  // bytes that have left the window
  std::string decoded_;
};

}  // namespace headrace
