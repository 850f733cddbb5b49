#include "store/overlap.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/system.h"
#include "store/icechunk/repository.h"
#include "store/reference/targets.h"
#include "store/url.h"

namespace headrace {
namespace {

bool is_within(std::string_view inner, std::string_view outer) {
  while (outer.ends_with('/')) outer.remove_suffix(1);
  return outer.empty() || inner == outer ||
         (inner.starts_with(outer) && inner[outer.size()] == '/');
}

bool overlap(std::string_view one, std::string_view other) {
  return is_within(one, other) || is_within(other, one);
}

std::string below(std::string place, std::string_view prefix) {
  if (prefix.empty()) return place;
  if (!place.ends_with('/')) place += '/';
  return place.append(prefix);
}

// The URL of a store that nobody else can name, in memory or one of Python's, tells its kind alone.
bool names_a_place(std::string_view url) {
  const std::size_t colon = url.find("://");
  return colon != std::string_view::npos && colon + 3 < url.size();
}

// What a store takes its objects from: of a repository the whole of it, of references the file that
// they are in.
std::string place_of(const Store& store, std::string_view prefix) {
  const std::string url = store.url();
  const std::string scheme = scheme_of_url(url);
  if (is_icechunk_scheme(scheme)) return icechunk_place(url);
  constexpr std::string_view kReference = "reference://";
  if (scheme != "reference" || url.size() == kReference.size()) return below(url, prefix);
  const std::string file = url.substr(kReference.size());
  return file.starts_with('/') ? "file://" + file : file;
}

// The path of a folder or an archive, its links resolved as far as it exists; nothing elsewhere.
std::optional<std::filesystem::path> path_of(const Store& store, std::string_view prefix) {
  const std::string place = place_of(store, prefix);
  for (const std::string_view scheme : {"file://", "zip://"}) {
    if (!place.starts_with(scheme)) continue;
    const std::filesystem::path path =
        percent_decode(std::string_view(place).substr(scheme.size()));
    std::error_code failed;
    const auto real = std::filesystem::weakly_canonical(path, failed);
    return failed ? path : real;
  }
  return std::nullopt;
}

// The file itself and the folders around it, up to the root; what is missing has no number.
bool has_on_its_way(const std::filesystem::path& inner, const std::filesystem::path& outer) {
  struct stat wanted;
  if (os().stat(outer.c_str(), &wanted) != 0) return is_within(inner.string(), outer.string());
  for (std::filesystem::path at = inner;; at = at.parent_path()) {
    struct stat found;
    if (os().stat(at.c_str(), &found) == 0 && found.st_dev == wanted.st_dev &&
        found.st_ino == wanted.st_ino) {
      return true;
    }
    if (at == at.parent_path()) return false;
  }
}

using FileId = std::pair<dev_t, ino_t>;

// Whether a link below a folder leads into `other`, or to what that lies in: what is read through
// it is what making room there removes. Links behind links are followed, each folder once.
bool links_into(const std::filesystem::path& folder,
                const std::filesystem::path& other,
                std::set<FileId>& seen) {
  struct stat st;
  if (os().stat(folder.c_str(), &st) != 0 || !seen.emplace(st.st_dev, st.st_ino).second)
    return false;
  std::error_code failed;
  auto at = std::filesystem::recursive_directory_iterator(
      folder, std::filesystem::directory_options::skip_permission_denied, failed);
  for (; !failed && at != std::filesystem::recursive_directory_iterator(); at.increment(failed)) {
    std::error_code missing;
    if (!at->is_symlink(missing)) continue;
    const auto target = std::filesystem::canonical(at->path(), missing);
    if (missing) continue;  // leads nowhere: nothing is read through it
    if (has_on_its_way(target, other) || has_on_its_way(other, target)) return true;
    if (std::filesystem::is_directory(target, missing) && links_into(target, other, seen))
      return true;
  }
  return false;
}

}  // namespace

bool places_overlap(const Store& store,
                    std::string_view prefix,
                    const Store& other,
                    std::string_view other_prefix) {
  if (store.shared_driver() == other.shared_driver()) return overlap(prefix, other_prefix);
  const auto path = path_of(store, prefix);
  const auto other_path = path_of(other, other_prefix);
  if (path && other_path) {
    // Into what is not there yet no link leads.
    std::error_code failed;
    std::set<FileId> seen;
    return has_on_its_way(*path, *other_path) || has_on_its_way(*other_path, *path) ||
           (std::filesystem::exists(*other_path, failed) && links_into(*path, *other_path, seen));
  }
  if (overlap(store.identity(prefix), other.identity(other_prefix))) return true;
  if (!names_a_place(store.url()) || !names_a_place(other.url())) return false;
  return overlap(place_of(store, prefix), place_of(other, other_prefix));
}

}  // namespace headrace
