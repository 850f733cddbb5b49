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

std::string shown_place(std::string_view path_or_url) {
  const std::string scheme = scheme_of_url(path_or_url);
  const bool has_user = scheme == "http" || scheme == "https";
  return has_user ? without_secrets(path_or_url) : std::string(path_or_url);
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
