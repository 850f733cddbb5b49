#pragma once

// JSON as metadata documents have it, kept as text. A value is a slice of a checked document, so
// that numbers of any size, key order and spacing survive an edit, and the attributes of a large
// store cost no tree. Python's `NaN`, `Infinity` and `-Infinity` count as numbers: json.dumps
// writes them, and json.loads reads them.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "headrace/error.h"

namespace headrace {

// A value within a checked document; the document's text must outlive it. The accessors throw
// `corrupt`, naming the field, when the value is of another kind.
class Json {
 public:
  enum class Kind : std::uint8_t { null, boolean, number, string, array, object };
  using Member = std::pair<std::string, Json>;

  // Checks the whole of `text`. `name` begins the messages: "zarr.json".
  static Json parse(std::string_view text, std::string name);

  Kind kind() const;
  bool is_null() const { return kind() == Kind::null; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_number() const { return kind() == Kind::number; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }

  std::string_view text() const { return text_; }    // as written
  const std::string& path() const { return path_; }  // "zarr.json: codecs[1].configuration"
  std::string compact() const;                       // without spaces between tokens

  bool boolean() const;
  std::string string() const;
  std::int64_t integer() const;  // no fraction, no exponent, within 64 bits
  double number() const;         // infinite when too large for a double
  // `unsupported` with more than `most` of them, before more is built.
  std::vector<Json> items(std::size_t most = kMaxJsonElements, const char* what = "elements") const;
  std::vector<Member> members() const;  // in the order of the text; keys may repeat

  // A member of an object; nothing when there is none, `corrupt` when there are two. Each call
  // walks over the object: JsonObject is for many.
  std::optional<Json> find(std::string_view key) const;
  Json at(std::string_view key) const;  // `corrupt` when there is none

  [[noreturn]] void fail(ErrorCode code, const std::string& message) const;

 private:
  Json(std::string_view text, std::string path) : text_(text), path_(std::move(path)) {}

  std::string_view text_;
  std::string path_;
};

// The members of an object, found once: a document with large attributes is walked over but once.
class JsonObject {
 public:
  explicit JsonObject(const Json& json) : json_(json), members_(json.members()) {}
  const std::vector<Json::Member>& members() const { return members_; }
  std::optional<Json> find(std::string_view key) const;  // as those of Json
  Json at(std::string_view key) const;

 private:
  Json json_;
  std::vector<Json::Member> members_;
};

// `text` must be JSON.
std::string json_compact(std::string_view text);
std::string json_pretty(std::string_view text);  // indented by two spaces
std::string json_quote(std::string_view utf8);

// The value of a checked JSON number as a double.
double json_number(std::string_view text);

// `object`, a checked JSON object, with the member `key` set to the JSON `value`; all other text
// stays as it is.
std::string json_with_member(const Json& object, std::string_view key, std::string_view value);

}  // namespace headrace
