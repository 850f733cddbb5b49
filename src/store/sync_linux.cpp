#include <fcntl.h>

#include <cerrno>

#include "base/system.h"
#include "store/posix.h"

namespace headrace {

void sync_below(const std::string& path) {
  FileDescriptor folder(open_retrying(path.c_str(), O_RDONLY | O_DIRECTORY));
  if (!folder) throw_io(errno, "open folder", path);
  int rc;
  do {
    rc = os().syncfs(folder.get());
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) throw_io(errno, "sync the file system of", path);
}

}  // namespace headrace
