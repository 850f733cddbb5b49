#pragma once

// The calls that all systems have, for system_linux.cpp and system_portable.cpp, which put theirs
// in the place of the null ones.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "base/system.h"

namespace headrace::detail {

inline constexpr SystemCalls kPosixCalls = {
    // Lambdas where the C library has a macro, more arguments, or an older signature.
    .open = [](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); },
    .openat =
        [](int folder, const char* name, int flags, mode_t mode) {
          return ::openat(folder, name, flags, mode);
        },
    .close = ::close,
    .pread = ::pread,
    .preadv = nullptr,
    .pwrite = ::pwrite,
    .ftruncate = ::ftruncate,
    .fsync = ::fsync,
    .syncfs = nullptr,
    .flock = ::flock,
    .stat = [](const char* path, struct stat* found) { return ::stat(path, found); },
    .lstat = [](const char* path, struct stat* found) { return ::lstat(path, found); },
    .fstat = [](int fd, struct stat* found) { return ::fstat(fd, found); },
    .fstatat =
        [](int folder, const char* name, struct stat* found, int flags) {
          return ::fstatat(folder, name, found, flags);
        },
    .preadv2 = nullptr,
    .fadvise = nullptr,
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

}  // namespace headrace::detail
