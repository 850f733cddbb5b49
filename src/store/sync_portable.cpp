// sync() of POSIX may return before anything is on the disk, and there is no call for one file
// system: each file and folder is synced.

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <string_view>
#include <vector>

#include "base/system.h"
#include "store/file.h"
#include "store/posix.h"

namespace headrace {
namespace {

// What was erased meanwhile needs no sync; what others have there and this process may not read, it
// has not written. Links are followed nowhere: they lead out of what is synced, or back into it.
bool is_left_out(int os_error) {
  return means_missing(os_error) || os_error == ELOOP || os_error == EACCES;
}

void sync_entries(FileDescriptor folder, const std::string& path) {
  sync_file(folder.get(), path);
  std::vector<std::string> folders;
  const FolderStream stream(std::move(folder), path);
  while (const dirent* entry = stream.next()) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat st;
    const std::string below = path + '/' + entry->d_name;
    if (os().fstatat(stream.fd(), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
      if (is_left_out(errno)) continue;
      throw_io(errno, "stat", below);
    }
    if (S_ISDIR(st.st_mode)) folders.emplace_back(name);
    if (!S_ISREG(st.st_mode)) continue;
    const FileDescriptor file(
        openat_retrying(stream.fd(), entry->d_name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW));
    if (file) {
      sync_file(file.get(), below);
    } else if (!is_left_out(errno)) {
      throw_io(errno, "open", below);
    }
  }
  for (const std::string& name : folders) {
    const std::string below = path + '/' + name;
    FileDescriptor fd(
        openat_retrying(stream.fd(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (fd) {
      sync_entries(std::move(fd), below);
    } else if (!is_left_out(errno)) {
      throw_io(errno, "open folder", below);
    }
  }
}

}  // namespace

void sync_below(const std::string& path) {
  FileDescriptor folder(open_retrying(path.c_str(), O_RDONLY | O_DIRECTORY));
  if (!folder) throw_io(errno, "open folder", path);
  sync_entries(std::move(folder), path);
}

}  // namespace headrace
