#include "store/cloud/xml.h"

#include <cstdint>

#include "headrace/error.h"

namespace headrace {

namespace {

// Answers have four levels.
constexpr std::size_t kMaxDepth = 32;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::string_view local_name(std::string_view name) {
  const std::size_t colon = name.find(':');
  return colon == std::string_view::npos ? name : name.substr(colon + 1);
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto add = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xc0 | code >> 6);
    add(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  } else {
    add(0xf0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3f));
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  }
}

}  // namespace

void XmlReader::fail(const char* why) const {
  throw Error(ErrorCode::corrupt,
              "an answer that should be XML is none: " + std::string(why) + " at byte " +
                  std::to_string(at_));
}

std::string_view XmlReader::up_to(std::string_view end) {
  const std::size_t found = text_.find(end, at_);
  if (found == std::string_view::npos) fail("it is cut short");
  const std::string_view all = text_.substr(at_, found - at_);
  at_ = found + end.size();
  return all;
}

void XmlReader::close(std::string_view name) {
  if (open_.empty() || open_.back() != name) fail("an end without its start");
  open_.pop_back();
}

void XmlReader::read_tag() {
  // A ">" within quotes belongs to a value.
  char quote = '\0';
  std::size_t end = at_;
  for (; end < text_.size() && (quote != '\0' || text_[end] != '>'); ++end) {
    const char c = text_[end];
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    }
  }
  if (end == text_.size()) fail("it is cut short");
  std::string_view tag = text_.substr(at_, end - at_);
  at_ = end + 1;
  empty_element_ = tag.ends_with('/');
  if (empty_element_) tag.remove_suffix(1);
  std::size_t length = 0;
  while (length < tag.size() && !is_space(tag[length])) ++length;
  if (length == 0) fail("an element without a name");
  if (open_.size() == kMaxDepth) fail("too deep");
  open_.push_back(tag.substr(0, length));
  name_ = local_name(open_.back());
  attributes_ = tag.substr(length);
}

bool XmlReader::next() {
  if (empty_element_) {
    empty_element_ = false;
    open_.pop_back();
  }
  for (;;) {
    at_ = text_.find('<', at_);
    if (at_ == std::string_view::npos) {
      at_ = text_.size();
      if (!open_.empty()) fail("it is cut short");
      return false;
    }
    ++at_;
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("?")) {
      up_to("?>");
    } else if (rest.starts_with("!--")) {
      up_to("-->");
    } else if (rest.starts_with("![CDATA[")) {
      up_to("]]>");
    } else if (rest.starts_with("!")) {
      fail("it has a DTD");
    } else if (rest.starts_with("/")) {
      ++at_;
      std::string_view name = up_to(">");
      while (!name.empty() && is_space(name.back())) name.remove_suffix(1);
      close(name);
    } else {
      read_tag();
      return true;
    }
  }
}

std::string_view XmlReader::attribute(std::string_view name) const {
  std::string_view rest = attributes_;
  for (;;) {
    const std::size_t equals = rest.find('=');
    if (equals == std::string_view::npos || equals + 1 >= rest.size()) return {};
    std::string_view found = rest.substr(0, equals);
    while (!found.empty() && is_space(found.front())) found.remove_prefix(1);
    while (!found.empty() && is_space(found.back())) found.remove_suffix(1);
    const std::size_t first = rest.find_first_of("\"'", equals);
    if (first == std::string_view::npos) return {};
    const std::size_t last = rest.find(rest[first], first + 1);
    if (last == std::string_view::npos) return {};
    if (local_name(found) == name) return rest.substr(first + 1, last - first - 1);
    rest = rest.substr(last + 1);
  }
}

std::string XmlReader::text() {
  std::string out;
  if (empty_element_) return out;
  for (;;) {
    const std::size_t tag = text_.find('<', at_);
    if (tag == std::string_view::npos) fail("it is cut short");
    decode(text_.substr(at_, tag - at_), out);
    at_ = tag;
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("<![CDATA[")) {
      at_ += std::string_view("<![CDATA[").size();
      out += up_to("]]>");
    } else if (rest.starts_with("<!--")) {
      up_to("-->");
    } else {
      return out;
    }
  }
}

void XmlReader::decode(std::string_view raw, std::string& out) const {
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '&') {
      out += raw[i];
      continue;
    }
    const std::size_t end = raw.find(';', i);
    if (end == std::string_view::npos) fail("an entity without an end");
    const std::string_view entity = raw.substr(i + 1, end - i - 1);
    i = end;
    if (entity == "amp") {
      out += '&';
    } else if (entity == "lt") {
      out += '<';
    } else if (entity == "gt") {
      out += '>';
    } else if (entity == "quot") {
      out += '"';
    } else if (entity == "apos") {
      out += '\'';
    } else if (entity.starts_with("#")) {
      const bool in_hex = entity.starts_with("#x");
      std::uint32_t code = 0;
      const std::string_view digits = entity.substr(in_hex ? 2 : 1);
      for (const char c : digits) {
        std::uint32_t digit = 99;
        if (c >= '0' && c <= '9') digit = static_cast<std::uint32_t>(c - '0');
        if (in_hex && c >= 'a' && c <= 'f') digit = static_cast<std::uint32_t>(c - 'a' + 10);
        if (in_hex && c >= 'A' && c <= 'F') digit = static_cast<std::uint32_t>(c - 'A' + 10);
        if (digit == 99) fail("a character without a number");
        code = code * (in_hex ? 16 : 10) + digit;
        if (code > 0x10ffff) fail("a character that there is none of");
      }
      if (digits.empty()) fail("a character without a number");
      append_utf8(out, code);
    } else {
      fail("an entity that nobody defined");
    }
  }
}

}  // namespace headrace
