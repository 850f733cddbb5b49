#include <fcntl.h>

#include <string>

#include "store/direct.h"
#include "store/posix.h"

namespace headrace {

int direct_flag() { return O_DIRECT; }

int open_direct_again(int fd) {
  const std::string same = "/proc/self/fd/" + std::to_string(fd);
  return open_retrying(same.c_str(), O_RDONLY | O_DIRECT);
}

}  // namespace headrace
