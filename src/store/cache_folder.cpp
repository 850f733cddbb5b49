#include "store/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <system_error>

#include "base/file_times.h"
#include "base/system.h"
#include "headrace/error.h"
#include "store/file.h"
#include "store/folder_facts.h"
#include "store/url.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = "CACHEDIR.TAG";
// The first line is that of https://bford.info/cachedir, the second says whose folder it is.
constexpr std::string_view kMarkerStart =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# headrace cache 1\n";
constexpr std::string_view kMarkerRest =
    "# Copies that headrace made of what it read of slow stores. They may be removed at any time,\n"
    "# with this folder.\n";

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
bool is_folder_of_entries(std::string_view name) { return name.size() == 2 && is_hex(name); }
bool is_entry(std::string_view name) { return name.size() == 14 && is_hex(name); }

int open_in(int folder, const std::string& name, int flags) {
  return openat_retrying(folder, name.c_str(), flags | O_NOFOLLOW);
}

std::vector<std::string> names_in(FileDescriptor fd, const std::string& path) {
  const FolderStream folder(std::move(fd), path);
  std::vector<std::string> names;
  while (const dirent* entry = folder.next()) names.emplace_back(entry->d_name);
  return names;
}

// Its name appears with the marker in it, so that a process that looks finds both or neither.
void make_marked(const std::string& directory, const std::string& path) {
  std::random_device random;
  char name[48];
  std::snprintf(name, sizeof name, "/.headrace-tmp-cache-%08x%08x", random(), random());
  const std::string aside = directory + name;
  if (os().mkdir(aside.c_str(), 0700) != 0) throw_io(errno, "make folder", aside);
  const std::string marker = aside + '/' + kMarker;
  const auto remove = [&] {
    std::error_code ignored;
    fs::remove(marker, ignored);
    fs::remove(aside, ignored);
  };
  try {
    const ConstBytes parts[] = {bytes_of(kMarkerStart), bytes_of(kMarkerRest)};
    TemporaryFile file(marker, true);
    write_at(file.fd(), 0, parts, marker);
    if (!file.publish()) throw_io(ENOENT, "write", marker);
    // Who was sooner has put a folder there that is not empty.
    if (os().rename(aside.c_str(), path.c_str()) == 0) return;
    if (errno != EEXIST && errno != ENOTEMPTY) throw_io(errno, "make folder", path);
  } catch (...) {
    remove();
    throw;
  }
  remove();
}

[[noreturn]] void refuse(ErrorCode code, const std::string& path, const std::string& why) {
  throw Error(code,
              "[cached_store] " + path + ": " + why + "; give another directory, or remove it");
}

void check_private(const std::string& path, const FileDescriptor& folder) {
  struct stat st;
  if (os().fstat(folder.get(), &st) != 0) throw_io(errno, "stat", path);
  if (st.st_uid != ::geteuid()) {
    refuse(ErrorCode::permission_denied,
           path,
           "belongs to user " + std::to_string(st.st_uid) + ", not to user " +
               std::to_string(::geteuid()) + ", who would read its files as data");
  }
  if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    refuse(ErrorCode::permission_denied,
           path,
           "other users may write to it, and its files are read as data (chmod go-w)");
  }
}

FileDescriptor open_marked(const std::string& path) {
  FileDescriptor folder(open_in(AT_FDCWD, path, O_RDONLY | O_DIRECTORY));
  if (!folder) {
    if (errno == ENOTDIR || errno == ELOOP)
      refuse(ErrorCode::invalid_argument, path, "is a file or a link, not a folder of copies");
    throw_io(errno, "open folder", path);
  }
  check_private(path, folder);
  FileDescriptor marker(open_in(folder.get(), kMarker, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  if (!marker && errno != ENOENT && errno != ELOOP) throw_io(errno, "open", path + '/' + kMarker);
  Buffer start(kMarkerStart.size());
  struct stat st;
  const bool is_ours = marker && os().fstat(marker.get(), &st) == 0 && S_ISREG(st.st_mode) &&
                       read_at(marker.get(), 0, start.bytes(), path) == start.size() &&
                       text_of(start) == kMarkerStart;
  if (!is_ours) {
    refuse(ErrorCode::invalid_argument,
           path,
           std::string("is no folder of copies that headrace has made: it lacks the file ") +
               kMarker + " that says so");
  }
  return folder;
}

}  // namespace

void check_apart(const std::string& directory, const std::string& store_url) {
  constexpr std::string_view kFile = "file://";
  if (!store_url.starts_with(kFile)) return;
  const fs::path root = percent_decode(std::string_view(store_url).substr(kFile.size()));
  std::error_code ignored;
  fs::path place = fs::weakly_canonical(fs::absolute(directory, ignored), ignored);
  for (; !place.empty(); place = place.parent_path()) {
    if (fs::equivalent(place, root, ignored)) {
      throw Error(ErrorCode::invalid_argument,
                  "[cached_store] directory " + directory + " lies in the store " + store_url +
                      ", which would hold the copies as its own; give one outside of it");
    }
    if (!place.has_relative_path()) return;
  }
}

CacheFolder::CacheFolder(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  const fs::path path = error ? fs::path() : fs::canonical(directory, error);
  if (error) throw_io(error.value(), "make", directory);
  path_ = (path / kName).string();
  struct stat st;
  if (os().lstat(path_.c_str(), &st) != 0) {
    if (errno != ENOENT) throw_io(errno, "stat", path_);
    make_marked(path.string(), path_);
  }
  folder_ = open_marked(path_);
}

FileDescriptor CacheFolder::open_parent(std::string_view& name, bool make) const {
  const std::size_t slash = name.find('/');
  const std::string folder(slash == std::string_view::npos ? "." : name.substr(0, slash));
  if (slash != std::string_view::npos) name.remove_prefix(slash + 1);
  FileDescriptor fd(open_in(folder_.get(), folder, O_RDONLY | O_DIRECTORY));
  if (!fd && errno == ENOENT && make) {
    if (::mkdirat(folder_.get(), folder.c_str(), 0700) != 0 && errno != EEXIST)
      throw_io(errno, "make folder", path_ + '/' + folder);
    fd = FileDescriptor(open_in(folder_.get(), folder, O_RDONLY | O_DIRECTORY));
  }
  if (!fd && (errno != ENOENT || make)) throw_io(errno, "open folder", path_ + '/' + folder);
  return fd;
}

bool CacheFolder::read(std::string_view name, std::size_t max_nbytes, Buffer& into) const {
  const std::string place = path_ + '/' + std::string(name);
  const FileDescriptor parent = open_parent(name, false);
  if (!parent) return false;
  FileDescriptor fd(open_in(parent.get(), std::string(name), O_RDONLY | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    if (errno == ENOENT) return false;
    throw_io(errno, "open", place);
  }
  struct stat st;
  if (os().fstat(fd.get(), &st) != 0) throw_io(errno, "stat", place);
  const auto size = object_size(st, place);
  if (!size) throw_io(EISDIR, "read", place);
  into.resize(static_cast<std::size_t>(std::min<std::uint64_t>(*size, max_nbytes + 1)));
  into.resize_keep(read_at(fd.get(), 0, into.bytes(), place));
  ::futimens(fd.get(), nullptr);  // of a file that may not be touched the time stays
  return true;
}

void CacheFolder::write(std::string_view name, std::span<const ConstBytes> parts) const {
  const std::string place = path_ + '/' + std::string(name);
  const FileDescriptor parent = open_parent(name, true);
  const std::string folder = lasting_path(parent.get(), parent_of(place));
  try {
    TemporaryFile file(folder + place.substr(place.rfind('/')), false);
    write_at(file.fd(), 0, parts, place);
    if (!file.publish()) throw_io(ENOENT, "write", place);
  } catch (const Error& error) {
    // By its name, and not that of its descriptor.
    std::string message = error.what();
    if (const std::size_t at = message.find(folder + '/'); at != message.npos)
      message.replace(at, folder.size(), parent_of(place));
    throw Error(error.code(), message, error.os_error());
  }
}

void CacheFolder::erase(std::string_view name) const {
  const std::string place = path_ + '/' + std::string(name);
  const FileDescriptor parent = open_parent(name, false);
  if (!parent) return;
  if (os().unlinkat(parent.get(), std::string(name).c_str(), 0) != 0 && errno != ENOENT)
    throw_io(errno, "erase", place);
}

std::vector<CacheFolder::File> CacheFolder::files() const {
  std::vector<File> files;
  for (const std::string& folder :
       names_in(FileDescriptor(open_in(folder_.get(), ".", O_RDONLY | O_DIRECTORY)), path_)) {
    struct stat st;
    if (TemporaryFile::is_temporary(folder) &&
        os().fstatat(folder_.get(), folder.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(st.st_mode)) {
      files.push_back({folder, modified_at(st), static_cast<std::uint64_t>(st.st_size), true});
    }
    if (!is_folder_of_entries(folder)) continue;
    FileDescriptor fd(open_in(folder_.get(), folder, O_RDONLY | O_DIRECTORY));
    if (!fd) continue;  // a link or a file, or gone
    const FileDescriptor listed(open_in(fd.get(), ".", O_RDONLY | O_DIRECTORY));
    for (const std::string& name : names_in(std::move(fd), path_ + '/' + folder)) {
      const bool is_temporary = TemporaryFile::is_temporary(name);
      if (!is_temporary && !is_entry(name)) continue;
      if (os().fstatat(listed.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
        continue;  // gone
      if (!S_ISREG(st.st_mode)) continue;
      files.push_back({folder + '/' + name,
                       modified_at(st),
                       static_cast<std::uint64_t>(st.st_size),
                       is_temporary});
    }
  }
  return files;
}

}  // namespace headrace
