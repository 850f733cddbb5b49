#include "store/cloud/request.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "store/cloud/digest.h"

namespace headrace {

KeyRoot::KeyRoot(std::string path) : path_(std::move(path)) {
  while (path_.ends_with('/')) path_.pop_back();
}

std::string KeyRoot::object(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "/" + std::string(key);
}

std::string KeyRoot::prefix(std::string_view prefix) const {
  return path_.empty() ? std::string(prefix) : path_ + "/" + std::string(prefix);
}

void KeyRoot::add_object(ListPage& page, ListedObject listed) const {
  const std::string above = prefix("");
  if (!listed.key.starts_with(above)) return;
  if (listed.key.ends_with('/') && listed.nbytes == 0) return;  // how consoles mark folders
  listed.key.erase(0, above.size());
  if (!listed.key.empty()) page.objects.push_back(std::move(listed));
}

void KeyRoot::add_prefix(ListPage& page, std::string_view found) const {
  const std::string above = prefix("");
  if (!found.starts_with(above) || found.size() <= above.size()) return;
  page.prefixes.emplace_back(found.substr(above.size()));
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

void remove_header(HttpRequest& request, std::string_view name) {
  std::erase_if(request.headers,
                [&](const HttpHeader& header) { return lower(header.name) == lower(name); });
}

void set_header(HttpRequest& request, std::string_view name, std::string value) {
  remove_header(request, name);
  request.headers.push_back({std::string(name), std::move(value)});
}

void set_body(HttpRequest& request, std::string body) {
  auto kept = std::make_shared<const std::string>(std::move(body));
  request.body = {bytes_of(*kept)};
  request.body_owner = std::move(kept);
}

const std::string& header_or_empty(const HttpResponse& response, std::string_view name) {
  static const std::string kNone;
  const std::string* value = response.header(name);
  return value == nullptr ? kNone : *value;
}

std::string scrub(std::string text, std::span<const std::string_view> secrets) {
  for (const std::string_view secret : secrets) {
    if (secret.empty()) continue;
    for (std::size_t at = 0; (at = text.find(secret, at)) != std::string::npos;) {
      text.replace(at, secret.size(), "***");
      at += 3;
    }
  }
  return text;
}

std::string request_line(const HttpRequest& request) {
  const std::string_view url = request.url;
  return request.method + " " + uri_decode(url.substr(0, url.find('?')));
}

}  // namespace headrace
