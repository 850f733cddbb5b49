#pragma once

// The system calls of src/store and src/shm, in one table, so that a test can make the nth of them
// fail, count them, or forget what was not synced. Each behaves as its manual page says: the result
// and errno are the caller's to look at.
//
//   int fd = os().open(path, O_RDONLY | O_CLOEXEC, 0);
//
// What cannot fail, and what only asks about the process (getpid), is called directly.
//
// Files NAME_linux.cpp may use all that Linux has. The portable build (HEADRACE_PORTABLE) has
// NAME_portable.cpp in their place, and no more than POSIX.1-2008 and what macOS has, too: their
// headers say what is missing there. The calls marked below are null in it.

#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>

struct io_uring;  // liburing.h
struct statx;

namespace headrace {

struct SystemCalls {
  // Files.
  int (*open)(const char* path, int flags, mode_t mode);
  int (*openat)(int folder, const char* name, int flags, mode_t mode);
  int (*close)(int fd);
  ssize_t (*pread)(int fd, void* into, std::size_t nbytes, off_t offset);
  ssize_t (*preadv)(int fd, const iovec* into, int count, off_t offset);
  ssize_t (*pwrite)(int fd, const void* from, std::size_t nbytes, off_t offset);
  int (*ftruncate)(int fd, off_t nbytes);
  int (*fsync)(int fd);
  int (*syncfs)(int fd);  // Linux
  int (*flock)(int fd, int operation);
  int (*stat)(const char* path, struct stat* found);
  int (*lstat)(const char* path, struct stat* found);
  int (*fstat)(int fd, struct stat* found);
  int (*fstatat)(int folder, const char* name, struct stat* found, int flags);
  // Linux:
  ssize_t (*preadv2)(int fd, const iovec* into, int count, off_t offset, int flags);
  int (*fadvise)(int fd, off_t offset, off_t nbytes, int advice);  // gives the error
  int (*statx)(int folder, const char* name, int flags, unsigned mask, struct statx* found);
  // Folders.
  int (*mkdir)(const char* path, mode_t mode);
  int (*linkat)(int from_folder, const char* from, int to_folder, const char* to, int flags);
  int (*rename)(const char* from, const char* to);
  int (*unlink)(const char* path);
  int (*unlinkat)(int folder, const char* name, int flags);
  DIR* (*fdopendir)(int fd);
  dirent* (*readdir)(DIR* folder);
  // Shared memory and what hands it over.
  int (*memfd_create)(const char* name, unsigned flags);  // Linux
  int (*shm_open)(const char* name, int flags, mode_t mode);
  int (*shm_unlink)(const char* name);
  int (*fcntl)(int fd, int command, long argument);
  void* (*mmap)(void* at, std::size_t nbytes, int protection, int flags, int fd, off_t offset);
  int (*munmap)(void* at, std::size_t nbytes);
  int (*madvise)(void* at, std::size_t nbytes, int advice);
  int (*socket)(int domain, int type, int protocol);
  int (*bind)(int fd, const sockaddr* address, socklen_t nbytes);
  int (*listen)(int fd, int backlog);
  int (*accept4)(int fd, sockaddr* address, socklen_t* nbytes, int flags);  // Linux
  int (*connect)(int fd, const sockaddr* address, socklen_t nbytes);
  ssize_t (*sendmsg)(int fd, const msghdr* message, int flags);
  ssize_t (*recvmsg)(int fd, msghdr* message, int flags);
  int (*getsockopt)(int fd, int level, int name, void* value, socklen_t* nbytes);
  int (*setsockopt)(int fd, int level, int name, const void* value, socklen_t nbytes);
  int (*poll)(pollfd* fds, nfds_t count, int timeout_ms);
  int (*pidfd_open)(pid_t pid, unsigned flags);  // Linux
  // io_uring, whose failures are negative results. Null in builds without it.
  int (*ring_submit_and_wait)(io_uring* ring, unsigned count);
  int (*ring_wait)(io_uring* ring);  // for one result
};

// Whether this is the portable build.
bool is_portable();

const SystemCalls& real_system_calls();

namespace detail {
extern const SystemCalls real_calls;
extern std::atomic<const SystemCalls*> system_calls;
}  // namespace detail

inline const SystemCalls& os() { return *detail::system_calls.load(std::memory_order_acquire); }

// For tests. The table must live for as long as it is in use, null is the real one. Returns the one
// before.
const SystemCalls* exchange_system_calls(const SystemCalls* calls);

}  // namespace headrace
