#include "store/reference/place.h"

#include <algorithm>
#include <filesystem>

#include "headrace/error.h"
#include "store/file.h"
#include "store/http/client.h"
#include "store/reference/json_window.h"
#include "store/reference/kerchunk_json.h"
#include "store/url.h"

namespace headrace {

std::string local_path(std::string_view path_or_url) {
  const std::string scheme = scheme_of_url(path_or_url);
  std::string path(path_or_url);
  if (scheme == "file" || scheme == "local") {
    path.erase(0, scheme.size() + 3);
    if (path.starts_with("localhost/")) path.erase(0, std::string_view("localhost").size());
  } else if (!scheme.empty()) {
    return {};
  }
  if (path.empty() || path.find('\0') != std::string::npos) {
    throw Error(ErrorCode::invalid_argument, "\"" + path + "\" is no path");
  }
  path = std::filesystem::absolute(path).lexically_normal().string();
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string folder_of(std::string_view path_or_url) {
  const std::string path = local_path(path_or_url);
  if (!path.empty()) return path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
  const std::size_t start = path_or_url.find("://") + 3;
  const std::size_t slash = path_or_url.rfind('/');
  return std::string(path_or_url.substr(0, slash < start ? path_or_url.size() : slash));
}

namespace {

// Without "key:secret@" behind a scheme. "container@account" is no secret.
std::string without_keys(std::string url) {
  for (std::size_t at = url.find("://"); at != url.npos; at = url.find("://", at)) {
    at += 3;
    const std::string_view authority = std::string_view(url).substr(at, url.find('/', at) - at);
    const std::size_t end = authority.rfind('@');
    if (end != authority.npos && authority.find(':') < end) url.erase(at, end + 1);
  }
  return url;
}

}  // namespace

std::string shown_place(std::string_view path_or_url) {
  std::string text(path_or_url);
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  // The first: in the query of one there may be another.
  const std::size_t begin = std::min(text.find("http://"), text.find("https://"));
  if (begin == text.npos) return without_keys(std::string(path_or_url));
  return std::string(path_or_url.substr(0, begin)) + without_secrets(path_or_url.substr(begin));
}

Target open_object(std::string_view path_or_url, const StorageOptions& options) {
  const std::string path = local_path(path_or_url);
  if (!path.empty()) {
    const std::size_t slash = path.rfind('/');
    std::string key = path.substr(slash + 1);
    check_key(key);
    return {make_file_store(slash == 0 ? "/" : path.substr(0, slash), {}), std::move(key)};
  }
  const std::size_t start = path_or_url.find("://") + 3;
  const std::size_t slash = path_or_url.find('/', start);
  std::string key(path_or_url.substr(std::min(slash, path_or_url.size() - 1) + 1));
  check_key(key);
  const std::string place(path_or_url.substr(0, slash));
  return {open_plain_place(place, StoreMode::read, options).shared_driver(), std::move(key)};
}

StorageOptions options_of_json(std::string_view text, const std::string& name) {
  StorageOptions options;
  if (text.empty() || text == "null") return options;
  try {
    JsonWindow json(source_of(text), name);
    json.take('{');
    for (bool first = true; json.next_element('}', first); first = false) {
      std::string option(json.string());
      json.take(':');
      std::string value(json.peek() == '"' ? json.string() : json.raw_value());
      if (value != "null") options[std::move(option)] = std::move(value);
    }
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, error.what());
  }
  return options;
}

}  // namespace headrace
