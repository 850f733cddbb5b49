#include "base/json_scan.h"

#include <algorithm>

#include "base/limits.h"
#include "base/utf8.h"
#include "headrace/error.h"

namespace headrace {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

char32_t hex4(std::string_view digits) {
  char32_t value = 0;
  for (char c : digits.substr(0, 4)) value = value * 16 + static_cast<char32_t>(hex_value(c));
  return value;
}

}  // namespace

void JsonScanner::fail(const std::string& message) const {
  const std::string_view before = text_.substr(0, at_);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? at_ + 1 : at_ - newline;
  throw Error(ErrorCode::corrupt,
              std::string(name_) + ": line " + std::to_string(line) + " column " +
                  std::to_string(column) + ": " + message);
}

void JsonScanner::skip_space() {
  while (!at_end() && (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t')) ++at_;
}

void JsonScanner::expect(char c, const char* what) {
  skip_space();
  if (at_end() || peek() != c) fail(std::string("expected ") + what);
  ++at_;
}

bool JsonScanner::next_element(char close) {
  skip_space();
  if (!at_end() && peek() == ',') {
    ++at_;
    return true;
  }
  if (at_end() || peek() != close) fail(std::string("expected ',' or '") + close + "'");
  ++at_;
  return false;
}

std::string_view JsonScanner::scan_value() {
  skip_space();
  const std::size_t begin = at_;
  switch (peek()) {
    case '{':
      scan_object();
      break;
    case '[':
      scan_array();
      break;
    case '"':
      scan_string();
      break;
    case 't':
      scan_literal("true");
      break;
    case 'f':
      scan_literal("false");
      break;
    case 'n':
      scan_literal("null");
      break;
    case 'N':
      scan_literal("NaN");
      break;
    case 'I':
      scan_literal("Infinity");
      break;
    default:
      scan_number();
  }
  return text_.substr(begin, at_ - begin);
}

void JsonScanner::scan_object() {
  if (++depth_ > kMaxJsonDepth) fail("nested too deep");
  ++at_;
  skip_space();
  if (peek() == '}') {
    ++at_;
  } else {
    do {
      skip_space();
      if (peek() != '"') fail("expected a key in quotes");
      scan_string();
      expect(':', "':'");
      scan_value();
    } while (next_element('}'));
  }
  --depth_;
}

void JsonScanner::scan_array() {
  if (++depth_ > kMaxJsonDepth) fail("nested too deep");
  ++at_;
  skip_space();
  if (peek() == ']') {
    ++at_;
  } else {
    do {
      scan_value();
    } while (next_element(']'));
  }
  --depth_;
}

void JsonScanner::scan_literal(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) fail("expected a value");
  at_ += word.size();
}

void JsonScanner::scan_number() {
  if (peek() == '-') ++at_;
  if (peek() == 'I' && text_[at_ - 1] == '-') return scan_literal("Infinity");
  if (!is_digit(peek())) fail("expected a value");
  if (peek() == '0') {
    ++at_;
    if (is_digit(peek())) fail("a number with a leading zero");
  }
  while (is_digit(peek())) ++at_;
  if (peek() == '.') {
    ++at_;
    if (!is_digit(peek())) fail("expected a digit");
    while (is_digit(peek())) ++at_;
  }
  if (peek() == 'e' || peek() == 'E') {
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    if (!is_digit(peek())) fail("expected a digit");
    while (is_digit(peek())) ++at_;
  }
}

std::string_view JsonScanner::scan_string() {
  if (peek() != '"') fail("expected a string");
  const std::size_t begin = at_++;
  while (true) {
    if (at_end()) fail("a string without an end");
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') break;
    if (c < 0x20) fail("a control character in a string");
    if (c == '\\') {
      scan_escape();
    } else if (c < 0x80) {
      ++at_;
    } else {
      scan_utf8();
    }
  }
  ++at_;
  return text_.substr(begin, at_ - begin);
}

void JsonScanner::scan_escape() {
  ++at_;
  const char c = peek();
  if (c == 'u') {
    for (std::size_t i = 1; i <= 4; ++i) {
      if (at_ + i >= text_.size() || hex_value(text_[at_ + i]) < 0)
        fail("expected four hex digits");
    }
    at_ += 5;
  } else if (c != '\0' && std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) {
    ++at_;
  } else {
    fail("an unknown escape");
  }
}

void JsonScanner::scan_utf8() {
  const std::size_t length = utf8_character_nbytes(text_.substr(at_));
  if (length == 0) fail("a string that is not UTF-8");
  at_ += length;
}

void append_utf8(std::string& out, char32_t c) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string json_unquote(std::string_view quoted) {
  const std::string_view body = quoted.substr(1, quoted.size() - 2);
  std::string out;
  out.reserve(body.size());
  for (std::size_t i = 0; i < body.size();) {
    if (body[i] != '\\') {
      out += body[i++];
      continue;
    }
    const char c = body[i + 1];
    i += 2;
    if (c == 'u') {
      char32_t unit = hex4(body.substr(i));
      i += 4;
      const bool high = unit >= 0xD800 && unit < 0xDC00;
      if (high && body.substr(i, 2) == "\\u") {
        const char32_t low = hex4(body.substr(i + 2));
        if (low >= 0xDC00 && low < 0xE000) {
          unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
          i += 6;
        }
      }
      append_utf8(out, unit >= 0xD800 && unit < 0xE000 ? U'\uFFFD' : unit);
      continue;
    }
    static constexpr std::string_view kFrom = "bfnrt", kTo = "\b\f\n\r\t";
    const std::size_t known = kFrom.find(c);
    out += known == std::string_view::npos ? c : kTo[known];
  }
  return out;
}

}  // namespace headrace
