#pragma once

// What the protocols of object stores make requests with.

#include <span>
#include <string>
#include <string_view>

#include "store/http/protocol.h"

namespace headrace {

// Where the keys of a store lie in a bucket or container: below "a/b", which may be empty.
class KeyRoot {
 public:
  explicit KeyRoot(std::string path);

  // "/a/b", or nothing: what names the place behind the bucket.
  std::string below() const { return path_.empty() ? "" : "/" + path_; }
  std::string object(std::string_view key) const;  // "a/b/key"
  std::string prefix(std::string_view prefix) const;
  // Adds what a list names, unless it lies elsewhere, or is no key: "a/b/c/" stands for an empty
  // folder where consoles made one.
  void add_object(ListPage& page, ListedObject listed) const;
  void add_prefix(ListPage& page, std::string_view prefix) const;

 private:
  std::string path_;
};

// Names are compared without regard to case.
void set_header(HttpRequest& request, std::string_view name, std::string value);
void remove_header(HttpRequest& request, std::string_view name);
std::string lower(std::string_view text);

// A body that the request keeps.
void set_body(HttpRequest& request, std::string body);
const std::string& header_or_empty(const HttpResponse& response, std::string_view name);
// Without what must not be shown, were a server to say it.
std::string scrub(std::string text, std::span<const std::string_view> secrets);
// For messages: the method and the URL without its query.
std::string request_line(const HttpRequest& request);

}  // namespace headrace
