#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headrace {

// Walks over JSON text, checking it. Throws `corrupt` with line and column.
class JsonScanner {
 public:
  JsonScanner(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  std::size_t position() const { return at_; }
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  void advance() { ++at_; }

  void skip_space();
  std::string_view scan_value();   // one value, of any kind
  std::string_view scan_string();  // with its quotes
  void expect(char c, const char* what);
  // After an element: true for a comma, false for `close`, which is taken.
  bool next_element(char close);

  [[noreturn]] void fail(const std::string& message) const;

 private:
  void scan_array();
  void scan_object();
  void scan_number();
  void scan_literal(std::string_view word);
  void scan_escape();
  void scan_utf8();

  std::string_view text_;
  std::string_view name_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// The UTF-8 of a checked string with its quotes. An unpaired surrogate escape, which Python's json
// writes for text that is not UTF-8, becomes U+FFFD.
std::string json_unquote(std::string_view quoted);

void append_utf8(std::string& out, char32_t c);

}  // namespace headrace
