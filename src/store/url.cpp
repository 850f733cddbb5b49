// From a path or URL to a driver.

#include "store/url.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/system.h"
#include "headrace/error.h"
#include "headrace/store.h"
#include "store/cloud/open.h"
#include "store/direct.h"
#include "store/file.h"
#include "store/http/open.h"
#include "store/icechunk/repository.h"
#include "store/memory.h"
#include "store/option_reader.h"
#include "store/reference/open.h"
#include "store/reference/place.h"
#include "store/store.h"
#include "store/uring.h"
#include "store/zip.h"

namespace headrace {

namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Durability take_durability(OptionReader& options) {
  const std::string value = options.take("fsync").value_or("metadata");
  if (value == "metadata") return Durability::metadata;
  if (value == "all" || value == "true" || value == "1") return Durability::everything;
  if (value == "none" || value == "false" || value == "0") return Durability::nothing;
  options.refuse("option fsync: wanted \"none\", \"metadata\" or \"all\", got \"" + value + "\"");
}

std::string absolute_path(std::string_view path, std::string_view place) {
  if (path.empty()) refuse_place(ErrorCode::invalid_argument, place, "the path is empty");
  if (path.find('\0') != std::string_view::npos) {
    refuse_place(ErrorCode::invalid_argument, "", "the path holds a NUL");
  }
  std::string out;
  if (path.front() != '/') {
    char folder[PATH_MAX];
    if (::getcwd(folder, sizeof folder) == nullptr) throw_io(errno, "getcwd for", path);
    out = folder;
  }
  // Drops "." and doubled slashes; ".." stays, as only the file system knows where it leads.
  for (std::size_t at = 0; at <= path.size();) {
    std::size_t slash = std::min(path.find('/', at), path.size());
    std::string_view segment = path.substr(at, slash - at);
    if (!segment.empty() && segment != ".") {
      if (out.empty() || out.back() != '/') out += '/';
      out += segment;
    }
    at = slash + 1;
  }
  return out.empty() ? "/" : out;
}

enum class PathKind { missing, folder, file };

PathKind kind_of(const std::string& path) {
  struct stat st;
  if (os().stat(path.c_str(), &st) != 0) {
    if (means_missing(errno)) return PathKind::missing;
    throw_io(errno, "stat", path);
  }
  return S_ISDIR(st.st_mode) ? PathKind::folder : PathKind::file;
}

bool has_entries(const std::string& path) {
  const FolderStream folder(path);
  int seen = 0;
  while (seen < 3 && folder.next() != nullptr) ++seen;
  return seen == 3;  // beyond "." and ".."
}

// "s3:/bucket/a" is a folder "s3:" that nobody means.
void refuse_one_slash(std::string_view place) {
  const std::size_t colon = place.find(":/");
  if (colon == place.npos || place.substr(colon).starts_with("://")) return;
  constexpr std::array kSchemes{"file",
                                "zip",
                                "memory",
                                "http",
                                "https",
                                "s3",
                                "s3a",
                                "gs",
                                "gcs",
                                "az",
                                "azure",
                                "abfs",
                                "abfss",
                                "reference",
                                "icechunk"};
  if (std::ranges::find(kSchemes, place.substr(0, colon)) == kSchemes.end()) return;
  // What follows may have a password, which is known as one behind two slashes only.
  const std::string scheme(place.substr(0, colon));
  throw Error(ErrorCode::invalid_argument,
              "store " + scheme + ":/...: wants two slashes, as in " + scheme +
                  "://; a folder of that name is ./" + scheme + ":");
}

[[noreturn]] void throw_missing(const std::string& path, std::string_view place, const char* what) {
  throw Error(ErrorCode::not_found,
              "store " + std::string(place) + ": there is no " + what + " " + path,
              ENOENT);
}

// What to do with a file of another format; empty where there is nothing to say.
std::string advice_on(const std::string& path) {
  if (names_metadata(path))
    return ": give the folder that it describes, " + path.substr(0, path.rfind('/'));
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  const std::string_view start(magic, sizeof magic);
  if (start.starts_with('{')) return ": references are opened by reference://" + path;
  if (start != "\x89HDF" && !start.starts_with("CDF") && start != "GRIB") return "";
  return ": HDF5, NetCDF and GRIB are read in Python, by reference:// or through xarray";
}

std::shared_ptr<StoreDriver> open_folder(const std::string& path,
                                         std::string_view place,
                                         StoreMode mode,
                                         OptionReader options) {
  FileOptions file;
  file.read_only = mode == StoreMode::read;
  file.direct = options.take_bool("direct");
  file.durability = take_durability(options);
  const std::string io = options.take("io").value_or("pread");
  options.finish("a file");
  if (io != "pread" && io != "uring") {
    refuse_place(ErrorCode::invalid_argument,
                 place,
                 "option io: wanted \"pread\" or \"uring\", got \"" + io + "\"");
  }

  const PathKind kind = kind_of(path);
  if (kind == PathKind::file) {
    refuse_place(ErrorCode::invalid_argument,
                 place,
                 path + " is a file, neither a folder nor a .zip" + advice_on(path));
  }
  // Before the folder is made or emptied: a call that fails must change nothing.
  if (file.direct && direct_flag() == 0) {
    refuse_place(ErrorCode::unsupported,
                 place,
                 "option direct: this build has no reads past the page cache");
  }
  std::shared_ptr<FileStore> driver =
      io == "uring" ? make_uring_store(path, file) : make_file_store(path, file);
  switch (mode) {
    case StoreMode::read:
    case StoreMode::read_write:
      if (kind == PathKind::missing) throw_missing(path, place, "folder");
      break;
    case StoreMode::create:
      // An empty folder has nothing to lose, and is what mkdtemp gives.
      if (kind == PathKind::folder && has_entries(path)) {
        refuse_place(
            ErrorCode::invalid_argument, place, path + " exists and is not empty (mode w-)");
      }
      break;
    case StoreMode::append:
    case StoreMode::overwrite:
      break;
  }
  if (kind == PathKind::missing) {
    driver->made_below(make_folders(path, file.durability != Durability::nothing));
  }
  return driver;  // with mode w the caller empties it
}

std::shared_ptr<StoreDriver> open_zip(const std::string& path,
                                      std::string_view place,
                                      StoreMode mode,
                                      OptionReader options) {
  const bool durable = take_durability(options) != Durability::nothing;
  options.finish("a zip");
  const PathKind kind = kind_of(path);
  if (kind == PathKind::folder) {
    refuse_place(ErrorCode::invalid_argument, place, path + " is a folder, not a zip archive");
  }
  switch (mode) {
    case StoreMode::read:
      if (kind == PathKind::missing) throw_missing(path, place, "archive");
      return open_zip_archive(path);
    case StoreMode::read_write:
      if (kind == PathKind::missing) throw_missing(path, place, "archive");
      [[fallthrough]];
    case StoreMode::append:
      if (kind != PathKind::missing) {
        refuse_place(
            ErrorCode::unsupported,
            place,
            "an existing zip archive cannot be changed; read it, or write a new one (mode w)");
      }
      break;
    case StoreMode::create:
      if (kind != PathKind::missing) {
        refuse_place(ErrorCode::invalid_argument, place, path + " exists (mode w-)");
      }
      break;
    case StoreMode::overwrite:
      break;
  }
  return create_zip_archive(path, durable, mode != StoreMode::overwrite);
}

std::shared_ptr<StoreDriver> open_memory(const std::string& name,
                                         std::string_view place,
                                         StoreMode mode,
                                         OptionReader options) {
  options.finish("a memory");
  if (name.empty()) {
    refuse_place(ErrorCode::invalid_argument,
                 place,
                 "wants a name, as in memory://scratch; memory_store() makes one without");
  }
  const bool must_exist = mode == StoreMode::read || mode == StoreMode::read_write;
  bool created = false;
  auto contents = named_memory_contents(name, !must_exist, created);
  if (!contents) throw Error(ErrorCode::not_found, "there is no store memory://" + name);
  std::shared_ptr<StoreDriver> driver =
      make_memory_store(std::move(contents), name, mode == StoreMode::read);
  if (!created && mode == StoreMode::create && !driver->list("").empty()) {
    refuse_place(ErrorCode::invalid_argument, place, "exists and is not empty (mode w-)");
  }
  if (!created && mode == StoreMode::overwrite) driver->erase_prefix("");
  return driver;
}

// The scheme of "s3://...", lower case; empty for a path.
std::string scheme_of(std::string_view text) {
  std::size_t end = text.find("://");
  if (end == std::string_view::npos || end == 0) return {};
  std::string scheme;
  for (char c : text.substr(0, end)) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    bool fits = (c >= 'a' && c <= 'z') ||
                (!scheme.empty() && ((c >= '0' && c <= '9') || c == '+' || c == '.' || c == '-'));
    if (!fits) return {};
    scheme += c;
  }
  return scheme;
}

// Of a path or a file:// URL, for a look at what lies there.
std::string percent_decoded_path(std::string_view path_or_url, const std::string& scheme) {
  return scheme.empty() ? std::string(path_or_url)
                        : percent_decode(path_or_url.substr(scheme.size() + 3));
}

}  // namespace

std::string percent_encode_path(std::string_view path) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(path.size());
  for (char c : path) {
    auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte == 0x7f || c == '%' || c == '?' || c == '#') {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
    int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
    if (high < 0 || low < 0 || (high == 0 && low == 0)) {
      throw Error(ErrorCode::invalid_argument,
                  "\"" + std::string(text) + "\": '%' wants two hex digits, not 00, after it");
    }
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

Store open_place(std::string_view path_or_url, StoreMode mode, const StorageOptions& options) {
  const std::string scheme = scheme_of(path_or_url);
  if (scheme == "reference") return Store(open_reference_store(path_or_url, mode, options));
  if (is_icechunk_scheme(scheme)) return Store(open_icechunk_store(path_or_url, mode, options));
  if (!scheme.empty() && scheme != "file") return open_plain_place(path_or_url, mode, options);
  StorageOptions rest = options;
  bool looks = mode == StoreMode::read;
  if (const auto at = rest.find("icechunk"); at != rest.end()) {
    looks = looks && OptionReader(rest, std::string(path_or_url)).take_bool("icechunk");
    rest.erase(at);
  }
  if (looks && is_icechunk_repository(percent_decoded_path(path_or_url, scheme)))
    return Store(open_icechunk_store(path_or_url, mode, rest));
  return open_plain_place(path_or_url, mode, rest);
}

namespace {

// Of a path or a file:// URL.
std::string path_of_file(std::string_view place, const std::string& scheme) {
  std::string path = percent_decoded_path(place, scheme);
  if (scheme.empty()) {
    refuse_one_slash(place);
  } else {
    if (path.starts_with("localhost/")) path.erase(0, std::string_view("localhost").size());
    if (!path.starts_with('/')) {
      refuse_place(
          ErrorCode::invalid_argument, place, "wants an absolute path, as in file:///data/a.zarr");
    }
  }
  return absolute_path(path, place);
}

// A folder may be called a.zip; a name that is still free means an archive.
bool is_archive(const std::string& path) {
  return path.ends_with(".zip") && kind_of(path) != PathKind::folder;
}

}  // namespace

bool names_archive(std::string_view path_or_url) {
  const std::string scheme = scheme_of(path_or_url);
  if (scheme == "zip") return true;
  return (scheme.empty() || scheme == "file") && is_archive(path_of_file(path_or_url, scheme));
}

Store open_plain_place(std::string_view path_or_url,
                       StoreMode mode,
                       const StorageOptions& options) {
  const std::string_view place = path_or_url;
  const std::string scheme = scheme_of(path_or_url);
  const bool local = scheme.empty() || scheme == "file" || scheme == "zip" || scheme == "memory";
  OptionReader reader(options, local ? std::string(place) : without_secrets(place));
  if (!scheme.empty()) {
    std::string_view rest = path_or_url.substr(scheme.size() + 3);
    if (scheme == "memory") {
      return Store(open_memory(percent_decode(rest), place, mode, std::move(reader)));
    }
    if (auto store = open_http(scheme, place, mode, reader)) return Store(std::move(store));
    if (auto store = open_cloud(scheme, place, mode, reader)) return Store(std::move(store));
    if (scheme != "file" && scheme != "zip") {
      refuse_place(
          ErrorCode::unsupported, reader.place(), "this build has no store for " + scheme + "://");
    }
    if (scheme == "zip" && (rest.find("://") != rest.npos || rest.find("::") != rest.npos)) {
      refuse_place(
          ErrorCode::invalid_argument,
          shown_place(place),
          "an archive is a file, at a path; of another place it is copied here first, or read "
          "in Python by fsspec+zip://PATH::URL (a path with \"::\" is written %3A%3A)");
    }
    if (scheme == "zip") {
      const std::string path = absolute_path(percent_decode(rest), place);
      return Store(open_zip(path, place, mode, std::move(reader)));
    }
  }
  const std::string path = path_of_file(place, scheme);
  if (is_archive(path)) {
    return Store(open_zip(path, place, mode, std::move(reader)));
  }
  return Store(open_folder(path, place, mode, std::move(reader)));
}

std::optional<RemoteParts> remote_parts(std::string_view url,
                                        const StorageOptions& options,
                                        const HttpAdjustment& adjust) {
  const std::string scheme = scheme_of(url);
  if (scheme.empty()) return std::nullopt;
  OptionReader reader(options, without_secrets(url));
  std::optional<RemoteParts> parts = http_parts(scheme, url, reader, adjust);
  return parts ? std::move(parts) : cloud_parts(scheme, url, reader, adjust);
}

Store memory_store() { return Store(make_memory_store(new_memory_contents(), "", false)); }

}  // namespace headrace
