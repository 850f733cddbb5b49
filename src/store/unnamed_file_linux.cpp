#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "base/system.h"
#include "store/posix.h"
#include "store/unnamed_file.h"

namespace headrace {

// linkat() names an open file by way of /proc.
bool has_unnamed_files() {
  static const bool has = ::access("/proc/self/fd", F_OK) == 0;
  return has;
}

int open_unnamed(const char* folder) { return open_retrying(folder, O_TMPFILE | O_RDWR, 0666); }

int link_unnamed(int fd, const char* name) {
  const std::string from = "/proc/self/fd/" + std::to_string(fd);
  return os().linkat(AT_FDCWD, from.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW);
}

}  // namespace headrace
