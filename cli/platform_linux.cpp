#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <system_error>

#include "cli/platform.h"

namespace headrace::cli {

int open_unnamed(const char* folder, mode_t mode) {
  return open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
}

int link_unnamed(int fd, const char* name) {
  const std::string unnamed = "/proc/self/fd/" + std::to_string(fd);
  return linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW);
}

std::filesystem::path own_program() {
  std::error_code failed;
  return std::filesystem::read_symlink("/proc/self/exe", failed);
}

}  // namespace headrace::cli
