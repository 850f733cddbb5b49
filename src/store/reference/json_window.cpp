#include "store/reference/json_window.h"

#include <cstring>
#include <utility>
#include <vector>

#include "base/json_scan.h"
#include "base/limits.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr std::size_t kFirstWindow = std::size_t{4} << 20;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

JsonWindow::JsonWindow(Source source, std::string name)
    : source_(std::move(source)), name_(std::move(name)), window_(kFirstWindow) {}

void JsonWindow::fail(const std::string& message) const {
  throw Error(ErrorCode::corrupt,
              name_ + ": byte " + std::to_string(before_ + start_) + ": " + message);
}

bool JsonWindow::more() {
  if (start_ > 0) {
    std::memmove(window_.data(), window_.data() + start_, end_ - start_);
    before_ += start_;
    end_ -= start_;
    start_ = 0;
  }
  if (end_ == window_.size()) {
    if (end_ >= kMaxDocumentNbytes) {
      fail("one value of more than " + std::to_string(kMaxDocumentNbytes) + " bytes");
    }
    window_.resize_keep(window_.size() * 2);
  }
  const std::size_t n = source_(window_.bytes().subspan(end_));
  end_ += n;
  return n > 0;
}

// Positions count from start_ wherever more() may be called in between.
bool JsonWindow::more_until(std::size_t at) {
  std::size_t ahead = at - start_;
  while (start_ + ahead >= end_) {
    if (!more()) return false;
  }
  return true;
}

char JsonWindow::peek() {
  for (;;) {
    while (start_ < end_ && is_space(at(start_))) ++start_;
    if (start_ < end_) return at(start_);
    if (!more()) return '\0';
  }
}

void JsonWindow::take(char c) {
  const char found = peek();
  if (found != c) {
    fail(std::string("wanted '") + c + "', found " +
         (found == '\0' ? "the end" : "'" + std::string(1, found) + "'"));
  }
  ++start_;
}

bool JsonWindow::next_element(char close, bool first) {
  if (first ? peek() == close : peek() != ',') {
    take(close);
    return false;
  }
  if (!first) take(',');
  return true;
}

void JsonWindow::scan_string(std::size_t& i, bool& escaped) {
  ++i;  // the quote
  for (;; ++i) {
    if (start_ + i >= end_ && !more_until(start_ + i)) fail("a string has no end");
    const char* text = as_chars(window_.bytes()) + start_;
    const std::size_t n = end_ - start_;
    while (i < n && text[i] != '"' && text[i] != '\\' &&
           static_cast<unsigned char>(text[i]) >= 0x20)
      ++i;
    if (i >= n) {
      --i;
      continue;
    }
    if (text[i] == '"') {
      ++i;
      return;
    }
    if (text[i] != '\\') fail("a string holds a control character");
    escaped = true;
    ++i;
    if (start_ + i >= end_ && !more_until(start_ + i)) fail("a string has no end");
  }
}

std::string_view JsonWindow::string() {
  if (peek() != '"') fail("wanted a string");
  std::size_t n = 0;
  bool escaped = false;
  scan_string(n, escaped);
  const std::string_view quoted(as_chars(window_.bytes()) + start_, n);
  if (escaped) {
    JsonScanner(quoted, name_).scan_string();  // json_unquote() wants a good one
    decoded_ = json_unquote(quoted);
    start_ += n;
    return decoded_;
  }
  start_ += n;
  return quoted.substr(1, n - 2);
}

std::uint64_t JsonWindow::number() {
  peek();
  std::size_t n = 0;
  std::uint64_t value = 0;
  for (; has(start_ + n); ++n) {
    const char c = at(start_ + n);
    if (c < '0' || c > '9') break;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (value > (UINT64_MAX - digit) / 10) fail("a number past 2^64");
    value = value * 10 + digit;
  }
  const char next = has(start_ + n) ? at(start_ + n) : '\0';
  if (n == 0 || next == '.' || next == 'e' || next == 'E') {
    fail("wanted a whole number that is not negative");
  }
  start_ += n;
  return value;
}

std::string_view JsonWindow::raw_value() {
  const char first = peek();
  std::size_t n = 0;
  bool escaped = false;
  if (first == '"') {
    scan_string(n, escaped);
  } else if (first == '{' || first == '[') {
    std::vector<char> open;
    do {
      if (!has(start_ + n)) fail("a list or object has no end");
      const char c = at(start_ + n);
      if (c == '"') {
        scan_string(n, escaped);
        continue;
      }
      if (c == '{' || c == '[') {
        if (open.size() >= static_cast<std::size_t>(kMaxJsonDepth)) fail("nested too deep");
        open.push_back(c == '{' ? '}' : ']');
      } else if (c == '}' || c == ']') {
        if (open.back() != c) fail("brackets do not match");
        open.pop_back();
      }
      ++n;
    } while (!open.empty());
  } else {
    while (has(start_ + n)) {
      const char c = at(start_ + n);
      if (is_space(c) || c == ',' || c == '}' || c == ']') break;
      ++n;
    }
    if (n == 0) fail("wanted a value");
  }
  const std::string_view value(as_chars(window_.bytes()) + start_, n);
  start_ += n;
  return value;
}

}  // namespace headrace
