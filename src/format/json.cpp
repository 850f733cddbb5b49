#include "format/json.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/double_text.h"
#include "base/json_scan.h"

namespace headrace {
namespace {

const char* kind_name(Json::Kind kind) {
  switch (kind) {
    case Json::Kind::null:
      return "null";
    case Json::Kind::boolean:
      return "a boolean";
    case Json::Kind::number:
      return "a number";
    case Json::Kind::string:
      return "a string";
    case Json::Kind::array:
      return "a list";
    case Json::Kind::object:
      return "an object";
  }
  return "?";
}

std::string shortened(std::string_view text) {
  return text.size() <= 60 ? std::string(text) : std::string(text.substr(0, 57)) + "...";
}

bool is_plain_path(const std::string& path) { return path.find(": ") == std::string::npos; }

void require(const Json& json, Json::Kind wanted) {
  if (json.kind() == wanted) return;
  json.fail(ErrorCode::corrupt,
            std::string("expected ") + kind_name(wanted) + ", found " + kind_name(json.kind()));
}

[[noreturn]] void fail_too_many(const Json& json, std::size_t most, const char* what) {
  json.fail(ErrorCode::unsupported,
            std::string("more ") + what + " than " + std::to_string(most) + ", which is the limit");
}

// Whether the magnitude of a number out of a double's range is too large (or too small).
bool is_large(std::string_view text) {
  const std::size_t exponent_at = text.find_first_of("eE");
  std::int64_t exponent = 0;
  if (exponent_at != std::string_view::npos) {
    std::string_view digits = text.substr(exponent_at + 1);
    if (digits[0] == '+') digits.remove_prefix(1);
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (result.ec != std::errc{}) return digits[0] != '-';
  }
  const std::string_view mantissa = text.substr(0, exponent_at);
  const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
  const std::size_t first = mantissa.find_first_of("123456789");
  if (first == std::string_view::npos) return false;
  return exponent + static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first) > 0;
}

}  // namespace

Json Json::parse(std::string_view text, std::string name) {
  if (text.size() > kMaxDocumentNbytes) {
    throw Error(ErrorCode::unsupported,
                name + ": a document of " + std::to_string(text.size()) + " bytes, the limit is " +
                    std::to_string(kMaxDocumentNbytes) + "; large data belong into arrays");
  }
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);  // a byte order mark
  JsonScanner scanner(text, name);
  const std::string_view value = scanner.scan_value();
  scanner.skip_space();
  if (!scanner.at_end()) scanner.fail("text after the document");
  return {value, std::move(name)};
}

void Json::fail(ErrorCode code, const std::string& message) const {
  throw Error(code, path_ + ": " + message);
}

Json::Kind Json::kind() const {
  switch (text_[0]) {
    case '{':
      return Kind::object;
    case '[':
      return Kind::array;
    case '"':
      return Kind::string;
    case 't':
    case 'f':
      return Kind::boolean;
    case 'n':
      return Kind::null;
    default:
      return Kind::number;
  }
}

std::string Json::compact() const { return json_compact(text_); }

bool Json::boolean() const {
  require(*this, Kind::boolean);
  return text_ == "true";
}

std::string Json::string() const {
  require(*this, Kind::string);
  return json_unquote(text_);
}

std::int64_t Json::integer() const {
  require(*this, Kind::number);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (error != std::errc{} || end != text_.data() + text_.size()) {
    fail(ErrorCode::corrupt, "expected an integer of 64 bits, found " + shortened(text_));
  }
  return value;
}

double Json::number() const {
  require(*this, Kind::number);
  return json_number(text_);
}

std::vector<Json> Json::items(std::size_t most, const char* what) const {
  require(*this, Kind::array);
  std::vector<Json> items;
  JsonScanner scanner(text_, path_);
  scanner.advance();
  scanner.skip_space();
  if (scanner.peek() == ']') return items;
  do {
    if (items.size() == most) fail_too_many(*this, most, what);
    const std::string_view value = scanner.scan_value();
    items.push_back(Json(value, path_ + "[" + std::to_string(items.size()) + "]"));
  } while (scanner.next_element(']'));
  return items;
}

std::vector<Json::Member> Json::members() const {
  require(*this, Kind::object);
  std::vector<Member> members;
  JsonScanner scanner(text_, path_);
  scanner.advance();
  scanner.skip_space();
  if (scanner.peek() == '}') return members;
  const std::string prefix = path_ + (is_plain_path(path_) ? ": " : ".");
  do {
    if (members.size() == kMaxJsonElements) fail_too_many(*this, kMaxJsonElements, "members");
    scanner.skip_space();
    std::string key = json_unquote(scanner.scan_string());
    scanner.expect(':', "':'");
    const std::string_view value = scanner.scan_value();
    std::string path = prefix + shortened(key);
    members.emplace_back(std::move(key), Json(value, std::move(path)));
  } while (scanner.next_element('}'));
  return members;
}

std::optional<Json> Json::find(std::string_view key) const { return JsonObject(*this).find(key); }

Json Json::at(std::string_view key) const { return JsonObject(*this).at(key); }

std::optional<Json> JsonObject::find(std::string_view key) const {
  std::optional<Json> found;
  for (const Json::Member& member : members_) {
    if (member.first != key) continue;
    if (found) json_.fail(ErrorCode::corrupt, "\"" + std::string(key) + "\" occurs twice");
    found = member.second;
  }
  return found;
}

Json JsonObject::at(std::string_view key) const {
  std::optional<Json> found = find(key);
  if (!found) json_.fail(ErrorCode::corrupt, "lacks \"" + std::string(key) + "\"");
  return *std::move(found);
}

double json_number(std::string_view text) {
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  const bool negative = text[0] == '-';
  const double infinity =
      negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  if (text.substr(negative ? 1 : 0) == "Infinity") return infinity;
  double value = 0;
  const auto result = double_from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec == std::errc::result_out_of_range) {
    return is_large(text) ? infinity : (negative ? -0.0 : 0.0);
  }
  return value;
}

std::string json_compact(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      out += c;
      if (c == '\\') out += text[++i];
      if (c == '"') quoted = false;
    } else if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
      out += c;
      quoted = c == '"';
    }
  }
  return out;
}

std::string json_pretty(std::string_view text) {
  const std::string compact = json_compact(text);
  std::string out;
  std::size_t depth = 0;
  bool quoted = false;
  const auto new_line = [&] { out.append(1, '\n').append(2 * depth, ' '); };
  for (std::size_t i = 0; i < compact.size(); ++i) {
    const char c = compact[i];
    if (quoted) {
      out += c;
      if (c == '\\') out += compact[++i];
      if (c == '"') quoted = false;
      continue;
    }
    const bool opens = c == '{' || c == '[';
    const bool closes = c == '}' || c == ']';
    if (closes) {
      --depth;
      if (compact[i - 1] != '{' && compact[i - 1] != '[') new_line();
    }
    out += c;
    quoted = c == '"';
    if (c == ':') out += ' ';
    if (opens) ++depth;
    const bool empty = opens && (compact[i + 1] == '}' || compact[i + 1] == ']');
    if (c == ',' || (opens && !empty)) new_line();
  }
  return out;
}

std::string json_quote(std::string_view utf8) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : utf8) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string json_with_member(const Json& object, std::string_view key, std::string_view value) {
  const std::string_view text = object.text();
  if (const std::optional<Json> member = object.find(key)) {
    const auto begin = static_cast<std::size_t>(member->text().data() - text.data());
    std::string out(text.substr(0, begin));
    out += value;
    return out += text.substr(begin + member->text().size());
  }
  const std::vector<Json::Member> members = object.members();
  if (members.empty()) return "{" + json_quote(key) + ": " + std::string(value) + "}";
  // After the last member, indented as that one is.
  const std::string_view last = members.back().second.text();
  const auto end = static_cast<std::size_t>(last.data() - text.data()) + last.size();
  const std::size_t first_key = text.find('"');
  std::string out(text.substr(0, end));
  out += ",";
  out += text.substr(1, first_key - 1);
  out += json_quote(key) + ": " + std::string(value);
  return out += text.substr(end);
}

}  // namespace headrace
