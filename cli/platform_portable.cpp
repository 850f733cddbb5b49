#include <cerrno>

#include "cli/platform.h"

namespace headrace::cli {

int open_unnamed(const char*, mode_t) { return -1; }

int link_unnamed(int, const char*) {
  errno = ENOTSUP;
  return -1;
}

std::filesystem::path own_program() { return {}; }

}  // namespace headrace::cli
