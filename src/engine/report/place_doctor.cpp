// What is wrong with a place, and how it is mended: one question after the other, each of which
// makes sense when those before it were answered well.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/report/place_findings.h"
#include "engine/report/remote_doctor.h"
#include "headrace/array.h"
#include "headrace/error.h"
#include "headrace/rechunk.h"
#include "headrace/store.h"
#include "store/http/client.h"
#include "store/http/driver.h"
#include "store/reference/place.h"
#include "store/url.h"

namespace headrace {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kDocuments = {
    "zarr.json", ".zarray", ".zgroup", ".zmetadata"};
constexpr std::size_t kMostLookedAt = 32;  // names below a place
constexpr std::size_t kMostShown = 8;      // of them in a message
constexpr std::size_t kMostFoldersUp = 4;

// "a.zarr, c, zarr.json and 12 more".
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMostShown); ++i) {
    text += (i > 0 ? ", " : "") + names[i];
  }
  if (names.size() > kMostShown) {
    text += " and " + std::to_string(names.size() - kMostShown) + " more";
  }
  return text;
}

// Where the part of a place begins that has folders: behind the bucket or host.
std::size_t root_of(std::string_view place) {
  const std::size_t scheme = place.find("://");
  if (scheme == place.npos) return 0;
  const std::size_t slash = place.find('/', scheme + 3);
  return slash == place.npos ? place.size() : slash;
}

struct Folder {
  std::string place;  // above
  std::string name;
};

// The folder that a place lies in, with its query; nothing: it is the root.
std::optional<Folder> above(std::string_view place) {
  const std::size_t root = root_of(place);
  const bool has_query = place.starts_with("http://") || place.starts_with("https://");
  const std::size_t end = has_query ? std::min(place.find('?'), place.size()) : place.size();
  std::string_view path = place.substr(0, end);
  while (path.size() > root + 1 && path.ends_with('/')) path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  if (slash == path.npos || slash < root || slash + 1 >= path.size()) return std::nullopt;
  const std::size_t kept = std::max(slash, root_of(place) == 0 && slash == 0 ? std::size_t{1} : 0);
  return Folder{std::string(path.substr(0, kept)) + std::string(place.substr(end)),
                std::string(path.substr(slash + 1))};
}

// Which of these there are; those that may not be looked at are not.
std::vector<std::string> present(const Store& store, const std::vector<std::string>& keys) {
  std::vector<GetRequest> requests(keys.size());
  std::vector<Buffer> bodies(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    requests[i].key = keys[i];
    requests[i].into = &bodies[i];
  }
  store.driver().get_many(requests);
  std::vector<std::string> found;
  for (const GetRequest& request : requests) {
    if (request.found && !request.error) found.push_back(request.key);
  }
  return found;
}

bool holds_node(const Store& store, const std::string& prefix) {
  std::vector<std::string> keys;
  for (const std::string_view name : kDocuments) keys.push_back(prefix + std::string(name));
  return !present(store, keys).empty();
}

std::string shape_text(const Shape& shape) {
  std::string text = "(";
  for (std::size_t d = 0; d < shape.size(); ++d) {
    text += (d > 0 ? ", " : "") + std::to_string(shape[d]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

// Without the user, password and query of it and of a URL within.
std::string shown(std::string_view place) {
  std::string text = shown_place(place);
  return text == place ? without_secrets(place) : text;
}

class PlaceDoctor {
 public:
  PlaceDoctor(std::string_view place, const StorageOptions& options)
      : place_(place), shown_(shown(place)), options_(options) {}

  Findings examine() {
    std::optional<RemoteParts> parts;
    bool found_credentials = true;
    try {
      parts = remote_parts(place_, options_, be_brief);
    } catch (const Error& error) {
      found_credentials =
          error.code() != ErrorCode::permission_denied && error.code() != ErrorCode::not_found;
      findings_.problem(found_credentials ? "options" : "credentials", error.what());
      if (!found_credentials) parts = anonymous_parts();
      if (!parts) return std::move(findings_);
    }
    if (parts) {
      remote_ = true;
      lists_ = false;
      RemoteDoctor remote(*parts, findings_);
      if (!(found_credentials ? remote.examine() : remote.examine_anonymous())) {
        return std::move(findings_);
      }
      lists_ = remote.lists();
      store_.emplace(make_http_driver(
          remote.protocol(), make_http_client(parts->http), HttpAccess::read_only));
    } else if (!open()) {
      return std::move(findings_);
    }
    look_for_zarr();
    return std::move(findings_);
  }

 private:
  // A doctor's question is asked twice, not until the next day.
  static void be_brief(HttpOptions& http) {
    using std::chrono::milliseconds;
    http.max_attempts = std::min(http.max_attempts, 2);
    http.connect_timeout = std::min(http.connect_timeout, milliseconds(10'000));
    http.idle_timeout = std::min(http.idle_timeout, milliseconds(15'000));
    http.timeout = std::min(http.timeout, milliseconds(30'000));
    http.hedge = false;
  }

  // Nothing: the options name credentials, of whatever kind.
  std::optional<RemoteParts> anonymous_parts() {
    options_["anon"] = "true";
    try {
      std::optional<RemoteParts> parts = remote_parts(place_, options_, be_brief);
      if (parts) parts->anonymous = parts->protocol;
      return parts;
    } catch (const Error&) {
      return std::nullopt;  // the first error is the one that was told
    }
  }

  bool open() {
    try {
      store_.emplace(open_store(place_, StoreMode::read, options_));
      findings_.good("store", "opened " + store_->url());
      return true;
    } catch (const Error& error) {
      findings_.problem("store", without_store(error.what()));
    }
    if (const auto folder = above(place_)) look_in_parent(*folder);
    return false;
  }

  // The report says what place it is of.
  std::string without_store(const std::string& text) const {
    const std::string prefix = "store " + shown_ + ": ";
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
  }

  void look_for_zarr() {
    try {
      const std::optional<bool> is_group = node_is_group(*store_, "");
      if (is_group) {
        *is_group ? look_at_group() : look_at_array();
        return look_for_notes();
      }
    } catch (const Error& error) {
      return findings_.problem("zarr", error.what());
    }
    findings_.problem("zarr",
                      "no Zarr array or group lies here: none of zarr.json, .zarray, "
                      ".zgroup");
    const std::size_t said = findings_.size();
    look_below();
    if (const auto folder = above(place_)) look_in_parent(*folder);
    look_above();
    if (findings_.size() == said) {
      findings_.note("zarr",
                     "nothing of Zarr was found around it either: look at the name" +
                         std::string(lists_ ? "" : "; names are not listed here"));
    }
  }

  void look_at_array() {
    const Array array = open_array(*store_, "", OpenOptions{});
    findings_.good("zarr",
                   "an array of " + shape_text(array.shape()) + " of " + array.dtype().to_string() +
                       ", Zarr " + std::to_string(array.zarr_format()));
  }

  void look_at_group() {
    open_group(*store_, "", OpenOptions{});
    findings_.good("zarr", "a group");
    if (!remote_ || lists_) return;
    try {
      const std::size_t n = open_group(*store_, "", OpenOptions{}).members().size();
      findings_.good("members", std::to_string(n) + " by its consolidated metadata");
    } catch (const Error&) {
      findings_.note("members",
                     "the group has no consolidated metadata and nothing is listed here: what lies "
                     "in it is found by its name alone; zarr.consolidate_metadata() writes them");
    }
  }

  void look_for_notes() {
    try {
      if (!rechunk_is_unfinished(*store_, "")) return;
    } catch (const Error& error) {
      return findings_.note("rechunk", error.what());
    }
    findings_.problem(
        "rechunk",
        "a rechunk to here is at work or has stopped halfway: what it has not written "
        "reads as the fill value; the same call goes on where it stopped");
  }

  // Names below the place, and which of them are nodes.
  void look_below() {
    if (remote_ && !lists_) return;
    std::vector<DirEntry> entries;
    try {
      entries = store_->driver().list_dir("");
    } catch (const Error& error) {
      return findings_.note("names", error.what());
    }
    if (entries.empty()) return findings_.note("names", "nothing at all lies here");
    std::vector<std::string> names;
    std::vector<std::string> nodes;
    bool is_repository = false;
    for (const DirEntry& entry : entries) {
      names.push_back(entry.name + (entry.is_prefix ? "/" : ""));
      is_repository = is_repository || (entry.is_prefix && entry.name == "snapshots");
    }
    for (std::size_t i = 0; i < std::min(entries.size(), kMostLookedAt); ++i) {
      if (entries[i].is_prefix && holds_node(*store_, entries[i].name + "/")) {
        nodes.push_back(entries[i].name);
      }
    }
    findings_.note("names", "what lies here: " + listed(names));
    if (is_repository) {
      findings_.note("zarr", "it looks like an Icechunk repository: open icechunk+" + shown_);
    }
    if (!nodes.empty()) {
      findings_.note("zarr",
                     "below it are arrays or groups: " + listed(nodes) + "; open " + shown_ +
                         (shown_.ends_with('/') ? "" : "/") + nodes.front());
    }
  }

  // What the last name of the place is in the folder above: an object, a name in other letters.
  void look_in_parent(const Folder& folder) {
    try {
      const Store parent = open_at(folder.place);
      if (remote_ || parent.driver().exists(folder.name)) {
        if (const auto object = parent.open(folder.name)) return look_at_object(folder, *object);
      }
      if (remote_ && !lists_) return;
      std::vector<std::string> alike;
      for (const DirEntry& entry : parent.driver().list_dir("")) {
        if (entry.name != folder.name && is_alike(entry.name, folder.name)) {
          alike.push_back(entry.name);
        }
      }
      if (!alike.empty()) findings_.note("names", "beside it lies " + listed(alike));
    } catch (const Error&) {
      // The folder above may be nobody's to look at: nothing is known, and nothing said.
    }
  }

  void look_at_object(const Folder& folder, const StoredObject& object) {
    std::array<std::byte, 8> magic{};
    const std::size_t n = std::min<std::uint64_t>(magic.size(), object.size());
    object.read(0, std::span(magic).first(n));
    const std::string_view begin(reinterpret_cast<const char*>(magic.data()), n);
    std::string what = "it is one object of " + std::to_string(object.size()) + " bytes";
    if (std::find(kDocuments.begin(), kDocuments.end(), folder.name) != kDocuments.end()) {
      what += ", a node's document: open the folder above, " + shown(folder.place);
    } else if (begin.starts_with("PK\x03\x04")) {
      what += remote_ ? ", a zip archive: archives are read from files; copy it here first"
                      : ", a zip archive: name it *.zip, or open zip://" + shown_;
    } else if (begin.starts_with('{') || folder.name.ends_with(".json") ||
               folder.name.ends_with(".json.zst")) {
      what += ", which may be references of kerchunk: open reference://" + shown_;
    } else if (begin.starts_with("\x89HDF") || begin.starts_with("CDF") ||
               begin.starts_with("GRIB") || begin.starts_with("II*") || begin.starts_with("MM")) {
      what +=
          ", of HDF5, NetCDF, GRIB or TIFF: read it by references (reference://), or through "
          "xarray";
    } else {
      what += ", and no folder";
    }
    findings_.note("object", what);
  }

  void look_above() {
    std::optional<Folder> folder = above(place_);
    std::string path;
    for (std::size_t i = 0; i < kMostFoldersUp && folder; ++i) {
      path = folder->name + (path.empty() ? "" : "/" + path);
      try {
        if (holds_node(open_at(folder->place), "")) {
          return findings_.note("zarr",
                                "a group or array lies above, at " + shown(folder->place) +
                                    ": it has no \"" + path + "\"");
        }
      } catch (const Error&) {
        return;
      }
      folder = above(folder->place);
    }
  }

  Store open_at(const std::string& place) const {
    if (!remote_) return open_plain_place(place, StoreMode::read, options_);
    RemoteParts parts = *remote_parts(place, options_, be_brief);
    return Store(make_http_driver(
        std::move(parts.protocol), make_http_client(parts.http), HttpAccess::read_only));
  }

  // Equal but for case, '-' and '_', and an ending.
  static bool is_alike(std::string_view a, std::string_view b) { return plain(a) == plain(b); }
  static std::string plain(std::string_view name) {
    std::string text;
    for (const char c : name.substr(0, name.rfind('.'))) {
      if (c == '-' || c == '_') continue;
      text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return text;
  }

  const std::string place_;
  const std::string shown_;
  StorageOptions options_;
  Findings findings_;
  std::optional<Store> store_;
  bool remote_ = false;
  bool lists_ = true;
};

}  // namespace

std::string doctor_json(std::string_view path_or_url, const StorageOptions& options) {
  const Findings findings = PlaceDoctor(path_or_url, options).examine();
  Json rows = Json::array();
  for (const Finding& finding : findings.rows()) {
    rows.push_back({{"check", finding.check}, {"state", finding.state}, {"says", finding.says}});
  }
  const Json report = {
      {"url", shown(path_or_url)}, {"good", findings.is_good()}, {"findings", rows}};
  return report.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headrace
