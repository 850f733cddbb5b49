// Memory of shm_open() can be mapped on a Mac, not read: so it is a temporary file.

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "base/unnamed_memory.h"

namespace headrace {

int open_unnamed_memory(const char* what) {
  const char* folder = ::getenv("TMPDIR");
  if (folder == nullptr || *folder == '\0') folder = "/tmp";
  std::string name = std::string(folder) + '/' + what + "-XXXXXX";
  const int fd = ::mkstemp(name.data());
  if (fd < 0) return -1;
  ::unlink(name.c_str());
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

}  // namespace headrace
