#include <fcntl.h>
#include <linux/magic.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include <cerrno>

#include "base/system.h"
#include "store/read_ahead.h"

namespace headrace {

void stop_reading_ahead(int fd) { os().fadvise(fd, 0, 0, POSIX_FADV_RANDOM); }

void read_ahead(int fd, std::uint64_t offset, std::uint64_t nbytes) {
  if (nbytes == 0) return;  // to posix_fadvise() all that follows
  os().fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(nbytes), POSIX_FADV_WILLNEED);
}

bool waits_for_disk(int fd) {
  char byte;
  const iovec into{&byte, 1};
  if (os().preadv2(fd, &into, 1, 0, RWF_NOWAIT) >= 0) return false;
  if (errno == EAGAIN) return true;
  // Not said by NFS, nor by tmpfs of older kernels.
  struct statfs found {};
  const bool is_known = errno == EOPNOTSUPP && ::fstatfs(fd, &found) == 0;
  return is_known && found.f_type != TMPFS_MAGIC && found.f_type != RAMFS_MAGIC &&
         found.f_type != HUGETLBFS_MAGIC;
}

}  // namespace headrace
