#include <fcntl.h>

#include "base/system.h"
#include "store/read_ahead.h"

namespace headrace {

void stop_reading_ahead(int fd) { os().fadvise(fd, 0, 0, POSIX_FADV_RANDOM); }

void read_ahead(int fd, std::uint64_t offset, std::uint64_t nbytes) {
  os().fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(nbytes), POSIX_FADV_WILLNEED);
}

}  // namespace headrace
