// Listing and removing below a folder.

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/file_times.h"
#include "base/settled.h"
#include "base/system.h"
#include "headrace/error.h"
#include "store/file.h"
#include "store/left_out.h"
#include "store/temporary_name.h"

namespace headrace {

namespace {

struct FolderIdentity {
  dev_t device;
  ino_t inode;
  friend bool operator==(const FolderIdentity&, const FolderIdentity&) = default;
};

struct Folder {
  bool exists = false;
  bool at_rest = true;  // while it was read; and it has nothing but what is in `entries`
  FolderIdentity identity{};
  std::vector<DirEntry> entries;
};

// What kind a symbolic link leads to, or the file is when the file system does not say at once.
// Nothing for what a store does not list: pipes, devices, links to themselves. A link to what is
// not there is an object, whose read says so.
std::optional<bool> is_prefix_entry(int folder, const dirent& entry, const std::string& path) {
  if (entry.d_type == DT_REG) return false;
  if (entry.d_type == DT_DIR) return true;
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return std::nullopt;
  struct stat st;
  if (os().fstatat(folder, entry.d_name, &st, 0) != 0) {
    if (means_missing(errno) && entry.d_type == DT_LNK) return false;
    if (means_missing(errno) || errno == ELOOP || errno == EACCES) return std::nullopt;
    throw_io(errno, "stat", path + "/" + entry.d_name);
  }
  if (S_ISREG(st.st_mode)) return false;
  if (S_ISDIR(st.st_mode)) return true;
  return std::nullopt;
}

// `key_prefix` is "" or "a/b/". With `remove_abandoned`, what writers that were killed have left in
// it is removed on the way.
Folder read_folder(const std::string& path, const std::string& key_prefix, bool remove_abandoned) {
  Folder folder;
  FileDescriptor fd(open_retrying(path.c_str(), O_RDONLY | O_DIRECTORY));
  struct stat st;
  if (!fd) {
    if (means_missing(errno)) return folder;
    throw_io(errno, "open folder", path);
  }
  if (os().fstat(fd.get(), &st) != 0) throw_io(errno, "stat", path);
  const FolderStream stream(std::move(fd), path);
  folder.exists = true;
  folder.identity = {st.st_dev, st.st_ino};
  folder.at_rest = is_settled(st);
  while (const dirent* entry = stream.next()) {
    std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (TemporaryFile::is_temporary(name)) {
      // What cannot be removed stays, as it has until now: nobody sees it.
      if (remove_abandoned && is_abandoned(stream.fd(), name)) {
        os().unlinkat(stream.fd(), entry->d_name, 0);
      }
      continue;
    }
    if (name.find('\\') != std::string_view::npos) {  // no key can name it
      tell_left_out(key_prefix + std::string(name));
      continue;
    }
    if (std::optional<bool> prefix = is_prefix_entry(stream.fd(), *entry, path)) {
      folder.entries.push_back({std::string(name), *prefix, false});
    } else {
      folder.at_rest = false;
    }
  }
  const timespec before = changed_at(st);
  if (os().fstat(stream.fd(), &st) != 0) throw_io(errno, "stat", path);
  if (changed_at(st).tv_sec != before.tv_sec || changed_at(st).tv_nsec != before.tv_nsec)
    folder.at_rest = false;
  return folder;
}

// Whether all was at rest. `ancestors` ends a link that leads back to a folder it lies in.
bool list_below(const std::string& path,
                const std::string& key_prefix,
                bool remove_abandoned,
                std::vector<FolderIdentity>& ancestors,
                std::vector<std::string>& keys) {
  Folder folder = read_folder(path, key_prefix, remove_abandoned);
  if (!folder.exists) return true;
  if (std::find(ancestors.begin(), ancestors.end(), folder.identity) != ancestors.end())
    return true;
  bool at_rest = folder.at_rest;
  ancestors.push_back(folder.identity);
  for (const DirEntry& entry : folder.entries) {
    std::string key = key_prefix + entry.name;
    if (entry.is_prefix) {
      const std::string below = path + "/" + entry.name;
      at_rest &= list_below(below, key + "/", remove_abandoned, ancestors, keys);
    } else {
      keys.push_back(std::move(key));
    }
  }
  ancestors.pop_back();
  return at_rest;
}

std::optional<FolderIdentity> identity_of(const std::string& path) {
  struct stat st;
  if (os().stat(path.c_str(), &st) != 0) return std::nullopt;
  return FolderIdentity{st.st_dev, st.st_ino};
}

// Marks the folders among `entries` of root/prefix that are the root, the folder itself or one
// between. A link to somewhere above the root comes back to it by a folder that is no link, so all
// folders are looked at.
void mark_links_back(const std::string& root,
                     std::string_view prefix,
                     std::vector<DirEntry>& entries) {
  std::vector<FolderIdentity> above;
  const auto add = [&](const std::string& path) {
    if (const auto identity = identity_of(path)) above.push_back(*identity);
  };
  add(root);
  for (std::size_t end = 0; end < prefix.size();) {
    end = std::min(prefix.find('/', end + 1), prefix.size());
    add(root + '/' + std::string(prefix.substr(0, end)));
  }
  const std::string folder = prefix.empty() ? root : root + '/' + std::string(prefix);
  for (DirEntry& entry : entries) {
    if (!entry.is_prefix) continue;
    const auto identity = identity_of(folder + '/' + entry.name);
    entry.leads_back = identity && std::find(above.begin(), above.end(), *identity) != above.end();
  }
}

// Removes links, not what they lead to. std::filesystem::remove_all() would stop half-way when
// another thread's temporary file gets its final name under its hands (ENOENT).
void remove_entry(int folder, const std::string& name, const std::string& path);

void remove_entries(FileDescriptor fd, const std::string& path) {
  const FolderStream stream(std::move(fd), path);
  std::vector<std::string> names;
  while (const dirent* entry = stream.next()) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  for (const std::string& name : names) remove_entry(stream.fd(), name, path + "/" + name);
}

void remove_entry(int folder, const std::string& name, const std::string& path) {
  if (os().unlinkat(folder, name.c_str(), 0) == 0 || means_missing(errno)) return;
  const int failure = errno;
  if (failure != EISDIR && failure != EPERM) throw_io(failure, "erase", path);
  FileDescriptor fd(openat_retrying(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (!fd) {
    if (errno == ENOENT) return;
    throw_io(errno == ENOTDIR ? failure : errno, "erase", path);
  }
  remove_entries(std::move(fd), path);
  if (os().unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return;
  // What another thread has set meanwhile is newer than this call, and so may stay.
  if (errno != ENOTEMPTY && errno != EEXIST) throw_io(errno, "erase", path);
}

}  // namespace

std::vector<std::string> FileStore::list(std::string_view prefix) {
  std::vector<std::string> keys;
  list_into(prefix, keys);
  return keys;
}

std::optional<std::vector<std::string>> FileStore::list_at_rest(std::string_view prefix) {
  std::vector<std::string> keys;
  if (!list_into(prefix, keys)) return std::nullopt;
  return keys;
}

bool FileStore::list_into(std::string_view prefix, std::vector<std::string>& keys) {
  prefix = check_prefix(prefix);
  const std::string folder = prefix.empty() ? root_ : path_of(prefix);
  const std::string before = prefix.empty() ? "" : std::string(prefix) + "/";
  std::vector<FolderIdentity> ancestors;
  const bool at_rest = list_below(folder, before, !options_.read_only, ancestors, keys);
  std::sort(keys.begin(), keys.end());
  return at_rest;
}

std::vector<DirEntry> FileStore::list_dir(std::string_view prefix) {
  prefix = check_prefix(prefix);
  std::vector<DirEntry> entries = read_folder(prefix.empty() ? root_ : path_of(prefix),
                                              prefix.empty() ? "" : std::string(prefix) + "/",
                                              !options_.read_only)
                                      .entries;
  if (!entries.empty()) mark_links_back(root_, prefix, entries);
  std::sort(entries.begin(), entries.end());
  return entries;
}

void FileStore::erase_prefix(std::string_view prefix) {
  if (options_.read_only) throw_read_only(url());
  prefix = check_prefix(prefix);
  forget_settled();
  if (prefix.empty()) {
    FileDescriptor root(open_retrying(root_.c_str(), O_RDONLY | O_DIRECTORY));
    if (!root) throw_io(errno, "open folder", root_);
    refuse_root(root_, false);
    remove_entries(std::move(root), root_);
    if (options_.durability == Durability::everything) sync_folder(root_);
    return;
  }
  // A link on the way leads out of the tree that this store owns; the link itself may be removed.
  for (std::size_t slash = prefix.find('/'); slash != std::string_view::npos;
       slash = prefix.find('/', slash + 1)) {
    const std::string folder = path_of(prefix.substr(0, slash));
    struct stat st;
    if (os().lstat(folder.c_str(), &st) != 0) {
      if (means_missing(errno)) return;
      throw_io(errno, "stat", folder);
    }
    if (S_ISLNK(st.st_mode)) throw_io(ELOOP, "erase below the symbolic link", folder);
  }
  const std::string path = path_of(prefix);
  struct stat st;
  if (os().lstat(path.c_str(), &st) != 0) {
    if (means_missing(errno)) return;
    throw_io(errno, "stat", path);
  }
  bool is_object = S_ISREG(st.st_mode);
  if (S_ISLNK(st.st_mode)) {
    struct stat target;
    is_object = os().stat(path.c_str(), &target) == 0 && S_ISREG(target.st_mode);
  }
  if (is_object) return;  // the key "a" is not below the prefix "a/"
  remove_entry(AT_FDCWD, path, path);
  if (options_.durability == Durability::everything) sync_folder(parent_of(path));
}

}  // namespace headrace
