#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "base/system.h"

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

constexpr SystemCalls kReal = {
    // Lambdas where the C library has a macro, more arguments, or an older signature.
    .open = [](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); },
    .openat =
        [](int folder, const char* name, int flags, mode_t mode) {
          return ::openat(folder, name, flags, mode);
        },
    .close = ::close,
    .pread = ::pread,
    .preadv = read_each,
    .pwrite = ::pwrite,
    .ftruncate = ::ftruncate,
    .fsync = sync_to_disk,
    .syncfs = nullptr,
    .flock = ::flock,
    .stat = [](const char* path, struct stat* found) { return ::stat(path, found); },
    .lstat = [](const char* path, struct stat* found) { return ::lstat(path, found); },
    .fstat = [](int fd, struct stat* found) { return ::fstat(fd, found); },
    .fstatat =
        [](int folder, const char* name, struct stat* found, int flags) {
          return ::fstatat(folder, name, found, flags);
        },
    .statx = nullptr,
    .mkdir = ::mkdir,
    .linkat = ::linkat,
    .rename = ::rename,
    .unlink = ::unlink,
    .unlinkat = ::unlinkat,
    .fdopendir = ::fdopendir,
    .readdir = ::readdir,
    .memfd_create = nullptr,
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
    .accept4 = nullptr,
    .connect = [](int fd,
                  const sockaddr* address,
                  socklen_t nbytes) { return ::connect(fd, address, nbytes); },
    .sendmsg = ::sendmsg,
    .recvmsg = ::recvmsg,
    .getsockopt = ::getsockopt,
    .setsockopt = ::setsockopt,
    .poll =
        [](pollfd* fds, nfds_t count, int timeout_ms) { return ::poll(fds, count, timeout_ms); },
    .pidfd_open = nullptr,
    .ring_submit_and_wait = nullptr,
    .ring_wait = nullptr,
};

}  // namespace

namespace detail {
constinit std::atomic<const SystemCalls*> system_calls = &kReal;
}

bool is_portable() { return true; }

const SystemCalls& real_system_calls() { return kReal; }

const SystemCalls* exchange_system_calls(const SystemCalls* calls) {
  return detail::system_calls.exchange(calls != nullptr ? calls : &kReal);
}

}  // namespace headrace
