#include <cerrno>

#include "store/unnamed_file.h"

namespace headrace {

bool has_unnamed_files() { return false; }

int open_unnamed(const char*) {
  errno = ENOTSUP;
  return -1;
}

int link_unnamed(int, const char*) {
  errno = ENOTSUP;
  return -1;
}

}  // namespace headrace
