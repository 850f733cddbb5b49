#include "base/posix_calls.h"

namespace headrace {

namespace {

// preadv() is no part of POSIX.
ssize_t read_each(int fd, const iovec* into, int count, off_t offset) {
  ssize_t done = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t n = ::pread(fd, into[i].iov_base, into[i].iov_len, offset + done);
    if (n < 0) return done > 0 ? done : n;
    done += n;
    if (static_cast<std::size_t>(n) < into[i].iov_len) break;
  }
  return done;
}

// On a Mac fsync() leaves the bytes in the cache of the disk.
int sync_to_disk(int fd) {
#ifdef F_FULLFSYNC
  if (::fcntl(fd, F_FULLFSYNC) == 0) return 0;
#endif
  return ::fsync(fd);
}

constexpr SystemCalls portable_calls() {
  SystemCalls calls = detail::kPosixCalls;
  calls.preadv = read_each;
  calls.fsync = sync_to_disk;
  return calls;
}

}  // namespace

namespace detail {
constinit const SystemCalls real_calls = portable_calls();
}

bool is_portable() { return true; }

}  // namespace headrace
