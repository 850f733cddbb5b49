#pragma once

// The XML that object stores answer with: flat, without a DTD. A parser that is asked for one thing
// after the other:
//
//   XmlReader xml(body);
//   while (xml.next()) {
//     if (xml.name() == "Key") key = xml.text();
//   }

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

class XmlReader {
 public:
  // `text` outlives this.
  explicit XmlReader(std::string_view text) : text_(text) {}

  // Goes on to the start of the next element, a child or not; false: there is none. `corrupt` for
  // what is no XML, or has a DTD: no answer does, and nothing of it may expand.
  bool next();
  std::string_view name() const { return name_; }  // without the prefix of a name space
  int depth() const { return static_cast<int>(open_.size()); }  // of it; that of the root is 1
  std::string_view attribute(std::string_view name) const;  // as it stands; empty: there is none
  // What the element holds, decoded, up to its end or its first child.
  std::string text();

 private:
  void read_tag();
  void close(std::string_view name);
  [[noreturn]] void fail(const char* why) const;
  // Behind the next `end`; all up to it.
  std::string_view up_to(std::string_view end);
  void decode(std::string_view raw, std::string& out) const;

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::string_view> open_{};
  std::string_view name_{};
  std::string_view attributes_{};
  bool empty_element_ = false;  // "<a/>" was the last one, and is still in open_
};

}  // namespace headrace
