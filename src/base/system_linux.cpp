#include <sys/syscall.h>

#include "base/posix_calls.h"

#ifdef HEADRACE_HAVE_URING
#include <liburing.h>
#endif

namespace headrace {

namespace {

constexpr SystemCalls linux_calls() {
  SystemCalls calls = detail::kPosixCalls;
  calls.preadv = ::preadv;
  calls.syncfs = ::syncfs;
  calls.preadv2 = ::preadv2;
  calls.fadvise = ::posix_fadvise;
  calls.statx = ::statx;
  calls.memfd_create = ::memfd_create;
  calls.accept4 = [](int fd, sockaddr* address, socklen_t* nbytes, int flags) {
    return ::accept4(fd, address, nbytes, flags);
  };
  calls.pidfd_open = [](pid_t pid, unsigned flags) {
    return static_cast<int>(::syscall(SYS_pidfd_open, pid, flags));
  };
#ifdef HEADRACE_HAVE_URING
  calls.ring_submit_and_wait = ::io_uring_submit_and_wait;
  calls.ring_wait = [](io_uring* ring) {
    io_uring_cqe* entry = nullptr;
    return ::io_uring_wait_cqe(ring, &entry);
  };
#endif
  return calls;
}

}  // namespace

namespace detail {
constinit const SystemCalls real_calls = linux_calls();
}

bool is_portable() { return false; }

}  // namespace headrace
