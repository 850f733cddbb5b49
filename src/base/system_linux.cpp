#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include "base/system.h"

#ifdef HEADRACE_HAVE_URING
#include <liburing.h>
#endif

namespace headrace {

namespace {

constexpr SystemCalls kReal = {
    // Lambdas where the C library has a macro, more arguments, or an older signature.
    .open = [](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); },
    .openat =
        [](int folder, const char* name, int flags, mode_t mode) {
          return ::openat(folder, name, flags, mode);
        },
    .close = ::close,
    .pread = ::pread,
    .preadv = ::preadv,
    .pwrite = ::pwrite,
    .ftruncate = ::ftruncate,
    .fsync = ::fsync,
    .syncfs = ::syncfs,
    .flock = ::flock,
    .stat = [](const char* path, struct stat* found) { return ::stat(path, found); },
    .lstat = [](const char* path, struct stat* found) { return ::lstat(path, found); },
    .fstat = [](int fd, struct stat* found) { return ::fstat(fd, found); },
    .fstatat =
        [](int folder, const char* name, struct stat* found, int flags) {
          return ::fstatat(folder, name, found, flags);
        },
    .statx = ::statx,
    .mkdir = ::mkdir,
    .linkat = ::linkat,
    .rename = ::rename,
    .unlink = ::unlink,
    .unlinkat = ::unlinkat,
    .fdopendir = ::fdopendir,
    .readdir = ::readdir,
    .memfd_create = ::memfd_create,
    .shm_open = ::shm_open,
    .shm_unlink = ::shm_unlink,
    .fcntl = [](int fd, int command, long argument) { return ::fcntl(fd, command, argument); },
    .mmap = ::mmap,
    .munmap = ::munmap,
    .madvise = ::madvise,
    .socket = ::socket,
    .bind = [](int fd,
               const sockaddr* address,
               socklen_t nbytes) { return ::bind(fd, address, nbytes); },
    .listen = ::listen,
    .accept4 =
        [](int fd, sockaddr* address, socklen_t* nbytes, int flags) {
          return ::accept4(fd, address, nbytes, flags);
        },
    .connect = [](int fd,
                  const sockaddr* address,
                  socklen_t nbytes) { return ::connect(fd, address, nbytes); },
    .sendmsg = ::sendmsg,
    .recvmsg = ::recvmsg,
    .getsockopt = ::getsockopt,
    .setsockopt = ::setsockopt,
    .poll =
        [](pollfd* fds, nfds_t count, int timeout_ms) { return ::poll(fds, count, timeout_ms); },
    .pidfd_open =
        [](pid_t pid, unsigned flags) {
          return static_cast<int>(::syscall(SYS_pidfd_open, pid, flags));
        },
#ifdef HEADRACE_HAVE_URING
    .ring_submit_and_wait = ::io_uring_submit_and_wait,
    .ring_wait =
        [](io_uring* ring) {
          io_uring_cqe* entry = nullptr;
          return ::io_uring_wait_cqe(ring, &entry);
        },
#else
    .ring_submit_and_wait = nullptr,
    .ring_wait = nullptr,
#endif
};

}  // namespace

namespace detail {
constinit std::atomic<const SystemCalls*> system_calls = &kReal;
}

bool is_portable() { return false; }

const SystemCalls& real_system_calls() { return kReal; }

const SystemCalls* exchange_system_calls(const SystemCalls* calls) {
  return detail::system_calls.exchange(calls != nullptr ? calls : &kReal);
}

}  // namespace headrace
