#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "base/system.h"
#include "device/mapped_file.h"
#include "headrace/error.h"

namespace headrace {
namespace {

[[noreturn]] void fail(ErrorCode code, const char* what, int os_error) {
  throw Error(code, std::string(what) + ": " + std::generic_category().message(os_error), os_error);
}

}  // namespace

MappedPages::MappedPages(int fd, std::uint64_t offset, std::size_t nbytes, Access access)
    : nbytes_(nbytes), owner_(::getpid()) {
  const bool writable = access == Access::writable;
  int opened = -1;
  if (writable) {
    // By way of the descriptor: the path may lead to another file by now.
    const std::string same = "/proc/self/fd/" + std::to_string(fd);
    opened = os().open(same.c_str(), O_RDWR | O_CLOEXEC, 0);
    if (opened < 0)
      fail(ErrorCode::unsupported,
           "the driver locks pages of files that may be written only",
           errno);
  }
  void* const mapped = os().mmap(nullptr,
                                 nbytes,
                                 PROT_READ | (writable ? PROT_WRITE : 0),
                                 MAP_SHARED,
                                 writable ? opened : fd,
                                 static_cast<off_t>(offset));
  const int os_error = errno;
  if (opened >= 0) os().close(opened);
  if (mapped == MAP_FAILED)
    fail(os_error == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::io, "mmap", os_error);
  data_ = static_cast<std::byte*>(mapped);
  // A child could do nothing with it, and would hold the memory of files that are gone.
  static_cast<void>(os().madvise(mapped, nbytes, MADV_DONTFORK));
}

// In a child the address may be that of something else.
MappedPages::~MappedPages() {
  if (::getpid() == owner_) static_cast<void>(os().munmap(data_, nbytes_));
}

void MappedPages::protect() const { static_cast<void>(::mprotect(data_, nbytes_, PROT_READ)); }

void MappedPages::read(std::size_t at, void* target, std::size_t nbytes) const {
  std::size_t done = 0;
  while (done < nbytes) {
    const iovec to{static_cast<std::byte*>(target) + done, nbytes - done};
    const iovec from{data_ + at + done, nbytes - done};
    const ssize_t n = ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
      continue;
    }
    if (n < 0 && errno != EFAULT) fail(ErrorCode::io, "process_vm_readv", errno);
    throw Error(ErrorCode::io, "a mapped file became shorter while it was read", ESTALE);
  }
}

std::size_t page_nbytes_in_memory(int fd) {
  struct statfs found {};
  if (::fstatfs(fd, &found) != 0) return 0;
  const auto magic = static_cast<unsigned long>(found.f_type);
  if (magic != TMPFS_MAGIC && magic != HUGETLBFS_MAGIC) return 0;
  return static_cast<std::size_t>(found.f_bsize);
}

std::string path_of_open(int fd) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t n = ::readlink(link.c_str(), path.data(), path.size());
  return n > 0 && static_cast<std::size_t>(n) < path.size()
             ? std::string(path.data(), static_cast<std::size_t>(n))
             : std::string();
}

}  // namespace headrace
