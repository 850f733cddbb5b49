#include "store/reference/targets.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "headrace/error.h"
#include "store/file.h"
#include "store/reference/json_window.h"
#include "store/reference/kerchunk_json.h"
#include "store/reference/place.h"
#include "store/url.h"

namespace headrace {
namespace {

// Stores of folders that are kept open; one is made anew where there are more.
constexpr std::size_t kMaxStores = 4096;
// URLs of which it is known where they lead: to find out takes a system call a folder.
constexpr std::size_t kMaxFound = 65536;

bool is_local_scheme(std::string_view scheme) {
  return scheme.empty() || scheme == "file" || scheme == "local";
}

// The path with no link and no ".." left, as far as it exists.
std::string real_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::weakly_canonical(path, error);
  if (error) throw Error(ErrorCode::io, path + ": " + error.message(), error.value());
  std::string text = real.string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

std::string path_of_file_url(std::string_view url) {
  std::string_view rest = url.substr(url.find("://") + 3);
  if (rest.starts_with("localhost/")) rest.remove_prefix(std::string_view("localhost").size());
  return std::string(rest);
}

// "file:/a" as "file:///a": RFC 8089 has both.
std::string with_slashes(std::string_view url) {
  for (const std::string_view scheme : {"file:", "local:"}) {
    if (!url.starts_with(scheme)) continue;
    const std::string_view path = url.substr(scheme.size());
    if (path.starts_with('/') && !path.starts_with("//"))
      return std::string(scheme) + "//" + std::string(path);
  }
  return std::string(url);
}

bool has_prefix(std::string_view path, std::string_view prefix) {
  return path.starts_with(prefix) &&
         (path.size() == prefix.size() || prefix.ends_with('/') || path[prefix.size()] == '/');
}

std::string normal_scheme(std::string scheme) {
  if (scheme == "s3a" || scheme == "s3n") return "s3";
  if (scheme == "gcs") return "gs";
  return scheme;
}

// "@host" of "abfss://container@host/a"; empty where there is none.
std::string_view host_of(std::string_view url) {
  const std::size_t begin = url.find("://");
  if (begin == std::string_view::npos) return {};
  const std::string_view bucket = url.substr(begin + 3, url.find('/', begin + 3) - begin - 3);
  const std::size_t at = bucket.rfind('@');
  return at == std::string_view::npos ? std::string_view() : bucket.substr(at);
}

// "s3://bucket/a/" as "s3://bucket/a".
std::string normal_url(std::string_view url) {
  const std::string scheme = scheme_of_url(url);
  std::string_view rest = url.substr(scheme.size() + 3);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  return normal_scheme(scheme) + "://" + std::string(rest);
}

}  // namespace

std::string scheme_of_url(std::string_view url) {
  const std::size_t end = url.find("://");
  if (end == std::string_view::npos || end == 0) return {};
  std::string scheme;
  for (char c : url.substr(0, end)) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool fits =
        (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '.' || c == '-';
    if (!fits) return {};
    scheme += c;
  }
  return scheme;
}

bool is_remote_url(std::string_view url) {
  const std::string scheme = scheme_of_url(url);
  return !is_local_scheme(scheme) && scheme != "memory";
}

std::vector<std::string> parse_allow(std::string_view text) {
  std::vector<std::string> entries;
  if (text.starts_with('[')) {
    JsonWindow json(source_of(text), "option allow");
    json.take('[');
    for (bool first = true; json.next_element(']', first); first = false) {
      entries.emplace_back(json.string());
    }
    return entries;
  }
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    std::string_view entry = text.substr(at, comma - at);
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    if (!entry.empty()) entries.emplace_back(entry);
    at = comma + 1;
  }
  return entries;
}

Targets::Targets(TargetRules rules) : rules_(std::move(rules)) {
  std::vector<std::string> entries = rules_.allow;
  if (!rules_.home.empty()) {
    std::string home = rules_.home;
    // All of a bucket or host, but of this machine one folder.
    const std::string scheme = scheme_of_url(home);
    if (!is_local_scheme(scheme))
      home.resize(std::min(home.find('/', scheme.size() + 3), home.size()));
    entries.push_back(std::move(home));
  }
  for (const std::string& given : entries) {
    const std::string entry = with_slashes(given);
    const std::string scheme = scheme_of_url(entry);
    if (entry.empty()) {
      throw Error(ErrorCode::invalid_argument, "option allow: an empty text names no place");
    } else if (entry == "*") {
      all_ = true;
    } else if (scheme.empty()) {
      folders_.push_back(real_path(std::filesystem::absolute(entry).string()));
    } else if (is_local_scheme(scheme)) {
      folders_.push_back(real_path(path_of_file_url(entry)));
    } else {
      prefixes_.push_back(normal_url(entry));
    }
  }
}

bool Targets::may_be_remote() const {
  return all_ || std::any_of(prefixes_.begin(), prefixes_.end(), [](const std::string& prefix) {
           return !prefix.starts_with("memory://");
         });
}

Targets::Place Targets::place_of(std::string_view url) const {
  if (url.find('\0') != std::string_view::npos) {
    throw Error(ErrorCode::corrupt, "a reference leads to a path with a NUL");
  }
  std::string full = with_slashes(url);
  std::string scheme = scheme_of_url(full);
  if (scheme.empty() && !is_local_scheme(rules_.protocol)) {
    scheme = rules_.protocol;
    full = scheme + "://" + full.substr(std::min(full.find_first_not_of('/'), full.size()));
  }
  Place place;
  place.is_local = is_local_scheme(scheme);
  if (place.is_local) {
    std::string path = scheme.empty() ? full : path_of_file_url(full);
    if (path.empty()) throw Error(ErrorCode::corrupt, "a reference leads to no URL");
    if (!path.starts_with('/')) {
      const std::string home_scheme = scheme_of_url(rules_.home);
      if (!scheme.empty() || rules_.home.empty()) {
        throw Error(ErrorCode::invalid_argument,
                    "a reference leads to \"" + full +
                        "\": of a relative path it must be known what it is relative to");
      }
      if (!is_local_scheme(home_scheme)) {
        place.is_local = false;
        full = rules_.home + '/' + path;
        scheme = home_scheme;
      } else {
        path = (home_scheme.empty() ? rules_.home : path_of_file_url(rules_.home)) + '/' + path;
      }
    }
    if (place.is_local) {
      const std::string real = real_path(path);
      const std::size_t slash = real.rfind('/');
      place.place = slash == 0 ? "/" : real.substr(0, slash);
      place.key = real.substr(slash + 1);
      if (place.key.empty())
        throw Error(ErrorCode::corrupt, "a reference leads to the folder " + path);
      return place;
    }
  }
  scheme = normal_scheme(scheme);
  const std::string_view rest = std::string_view(full).substr(full.find("://") + 3);
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  place.place = scheme + "://" + std::string(rest.substr(0, slash));
  std::string_view key = rest.substr(std::min(slash + 1, rest.size()));
  if (scheme == "http" || scheme == "https") {
    if (key.find_first_of("?#") != std::string_view::npos) {
      throw Error(ErrorCode::unsupported,
                  "a reference leads to a URL with a query: " + place.place);
    }
    place.key = percent_decode(key);
  } else {
    place.key = key;
  }
  if (const char* fault = key_fault(place.key)) {
    throw Error(ErrorCode::corrupt,
                "a reference leads to " + full + ", whose path " + std::string(fault));
  }
  return place;
}

bool Targets::is_allowed(const Place& place) const {
  if (all_) return true;
  const std::string whole = (place.place == "/" ? "" : place.place) + '/' + place.key;
  const auto& allowed = place.is_local ? folders_ : prefixes_;
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& prefix) {
    return has_prefix(whole, prefix);
  });
}

std::shared_ptr<StoreDriver> Targets::store_at(const Place& place) {
  {
    const ForkLock lock(mutex_);
    const auto at = stores_.find(place.place);
    if (at != stores_.end()) return at->second;
  }
  std::shared_ptr<StoreDriver> store;
  if (place.is_local) {
    store = make_file_store(place.place, {});
  } else {
    const StorageOptions options = has_options(place) ? rules_.options : StorageOptions();
    store = open_plain_place(place.place, StoreMode::read, options).shared_driver();
  }
  std::unordered_map<std::string, std::shared_ptr<StoreDriver>> old;  // freed after the lock
  const ForkLock lock(mutex_);
  if (stores_.size() >= kMaxStores) old.swap(stores_);
  return stores_.try_emplace(place.place, std::move(store)).first->second;
}

// Of one cloud all buckets have them: it is its own secrets that it is sent. But a URL of Azure may
// name a host, "abfss://container@host", which may be anybody's.
bool Targets::has_options(const Place& place) const {
  if (!rules_.options_are_of_home) return true;
  const std::string scheme = scheme_of_url(place.place);
  if (scheme == "http" || scheme == "https") return has_prefix(rules_.home, place.place);
  if (scheme != normal_scheme(scheme_of_url(rules_.home))) return false;
  const std::size_t at = place.place.rfind('@');
  return at == std::string::npos || place.place.substr(at) == host_of(rules_.home);
}

Target Targets::open(std::string_view url) {
  std::string name(url);
  {
    const ForkLock lock(mutex_);
    const auto at = found_.find(name);
    if (at != found_.end()) return at->second;
  }
  Place place = place_of(url);
  const std::string scheme = scheme_of_url(place.place);
  // A reference to a reference could go round in a circle.
  if (scheme == "reference" || scheme == "zip" || scheme.find("icechunk") != std::string::npos) {
    throw Error(ErrorCode::unsupported,
                "a reference leads to a store of its own: " + std::string(url));
  }
  if (!is_allowed(place)) {
    throw Error(
        ErrorCode::permission_denied,
        "a reference leads to " + std::string(url) +
            (place.is_local ? " (" + (place.place == "/" ? "" : place.place) + '/' + place.key + ")"
                            : "") +
            ", which is outside of " +
            (rules_.home.empty() ? std::string("all that is allowed") : shown_place(rules_.home)) +
            "; the option \"allow\" names what else may be reached, as in allow=\"" + place.place +
            "\"");
  }
  const Target target{store_at(place), std::move(place.key)};
  std::unordered_map<std::string, Target> old;  // freed after the lock
  const ForkLock lock(mutex_);
  if (found_.size() >= kMaxFound) old.swap(found_);
  found_.insert_or_assign(std::move(name), target);
  return target;
}

}  // namespace headrace
