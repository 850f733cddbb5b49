// What tells one folder from another, keeps writers of one apart, and removes some of what it
// holds.

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "base/system.h"
#include "headrace/error.h"
#include "store/file.h"
#include "store/folder_facts.h"
#include "store/folder_lock.h"

namespace headrace {
namespace {

std::string text_of(const struct stat& st) {
  return "file:" + std::to_string(st.st_dev) + ':' + std::to_string(st.st_ino);
}

// Links are leaves: what they lead to is not of this tree.
void list_below(int parent,
                const char* name,
                const std::string& path,
                const std::string& prefix,
                bool is_root,
                std::vector<StoredName>& names) {
  // The folder that the caller named may be behind a link.
  const int follow = is_root ? 0 : O_NOFOLLOW;
  FileDescriptor fd(openat_retrying(parent, name, O_RDONLY | O_DIRECTORY | follow));
  if (!fd) {
    if (means_missing(errno) || errno == ELOOP) return;
    throw_io(errno, "open folder", path);
  }
  const FolderStream folder(std::move(fd), path);
  bool is_empty = true;
  while (const dirent* entry = folder.next()) {
    const std::string_view found = entry->d_name;
    if (found == "." || found == "..") continue;
    is_empty = false;
    auto type = entry->d_type;
    if (type == DT_UNKNOWN) {
      struct stat st;
      if (os().fstatat(folder.fd(), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (means_missing(errno)) continue;
        throw_io(errno, "stat", path + '/' + entry->d_name);
      }
      type = S_ISDIR(st.st_mode) ? DT_DIR : S_ISLNK(st.st_mode) ? DT_LNK : DT_REG;
    }
    std::string key = prefix + entry->d_name;
    if (type == DT_DIR) {
      list_below(folder.fd(), entry->d_name, path + '/' + entry->d_name, key + '/', false, names);
    } else {
      names.push_back(
          {std::move(key), type == DT_LNK ? StoredName::Kind::link : StoredName::Kind::object});
    }
  }
  if (is_empty && !is_root)
    names.push_back({prefix.substr(0, prefix.size() - 1), StoredName::Kind::empty_folder});
}

bool is_mount_root(const std::string& path, const struct stat& st) {
  if (const auto said = says_mount_root(path.c_str())) return *said;
  struct stat above;
  return os().stat((path + "/..").c_str(), &above) == 0 && above.st_dev != st.st_dev;
}

[[noreturn]] void refuse_folder(const std::string& path, const char* what) {
  throw Error(ErrorCode::invalid_argument,
              path + what + ", which is not emptied; take a folder within it");
}

bool is_file_system_root(const std::string& path, const struct stat& st) {
  struct stat root;
  if (os().stat("/", &root) != 0) throw_io(errno, "compare with the root folder", path);
  return st.st_dev == root.st_dev && st.st_ino == root.st_ino;
}

}  // namespace

void refuse_root(const std::string& path, bool mounts) {
  struct stat st;
  if (os().stat(path.c_str(), &st) != 0) {
    if (means_missing(errno)) return;  // nothing that could be lost
    throw_io(errno, "stat", path);
  }
  if (is_file_system_root(path, st)) refuse_folder(path, " is the root of the file system");
  if (mounts && is_mount_root(path, st)) refuse_folder(path, " is where a file system is mounted");
}

std::string FileStore::identity(std::string_view prefix) {
  std::string path = prefix.empty() ? root_ : path_of(prefix);
  struct stat st;
  if (os().stat(path.c_str(), &st) == 0) return text_of(st);
  // What is missing is named by the folder it would lie in.
  std::string rest;
  while (means_missing(errno) && path != "/") {
    const std::size_t slash = path.rfind('/');
    rest.insert(0, path.substr(slash));
    path.resize(std::max<std::size_t>(slash, 1));
    if (os().stat(path.c_str(), &st) == 0) return text_of(st) + rest;
  }
  throw_io(errno, "stat", path);
}

LockAttempt FileStore::try_lock(std::string_view prefix, MissingFolder missing) {
  const std::string path = prefix.empty() ? root_ : path_of(prefix);
  const bool makes = missing == MissingFolder::make;
  if (makes) make_folders(path, options_.durability != Durability::nothing);
  LockAttempt attempt = try_lock_folder(path);
  // Removed by somebody since it was made.
  if (makes && attempt.state == LockAttempt::State::unavailable &&
      ::access(path.c_str(), F_OK) != 0)
    attempt.state = LockAttempt::State::busy;
  return attempt;
}

bool FileStore::is_link(std::string_view prefix) {
  const std::string path = path_of(prefix);
  struct stat st;
  if (os().lstat(path.c_str(), &st) == 0) return S_ISLNK(st.st_mode);
  if (means_missing(errno)) return false;
  throw_io(errno, "stat", path);
}

std::vector<StoredName> FileStore::list_names(std::string_view prefix) {
  prefix = check_prefix(prefix);
  const std::string path = prefix.empty() ? root_ : path_of(prefix);
  std::vector<StoredName> names;
  list_below(
      AT_FDCWD, path.c_str(), path, prefix.empty() ? "" : std::string(prefix) + '/', true, names);
  std::sort(names.begin(), names.end(), [](const StoredName& a, const StoredName& b) {
    return a.key < b.key;
  });
  return names;
}

void FileStore::erase_names(std::span<const StoredName> names, std::string_view kept) {
  if (options_.read_only) throw_read_only(url());
  kept = check_prefix(kept);
  refuse_root(kept.empty() ? root_ : path_of(kept), true);
  if (names.empty()) return;
  forget_settled();
  std::set<std::string, std::greater<>> folders;  // those within others first
  for (const StoredName& name : names) {
    const std::string path = path_of(name.key);
    const int flags = name.kind == StoredName::Kind::empty_folder ? AT_REMOVEDIR : 0;
    if (os().unlinkat(AT_FDCWD, path.c_str(), flags) != 0 && !means_missing(errno)) {
      // What another thread has set there meanwhile is newer than this call, and so may stay.
      const bool is_new =
          was_folder(errno, AT_FDCWD, path.c_str()) || errno == ENOTEMPTY || errno == EEXIST;
      if (!is_new) throw_io(errno, "erase", path);
    }
    std::string_view folder = name.key;
    for (;;) {
      const std::size_t slash = folder.rfind('/');
      if (slash == std::string_view::npos) break;
      folder = folder.substr(0, slash);
      if (folder.size() <= kept.size()) break;
      if (!folders.emplace(folder).second) break;
    }
  }
  for (const std::string& folder : folders) {
    const std::string path = path_of(folder);
    if (os().unlinkat(AT_FDCWD, path.c_str(), AT_REMOVEDIR) == 0 || means_missing(errno)) continue;
    if (errno != ENOTEMPTY && errno != EEXIST && errno != EBUSY) throw_io(errno, "erase", path);
  }
  if (options_.durability != Durability::nothing) sync_folder(kept.empty() ? root_ : path_of(kept));
}

}  // namespace headrace
