#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "headrace/error.h"
#include "shm/segment_system.h"

namespace headrace::shm {

OwnedFd open_unnamed(bool huge_pages) {
  throw Error(ErrorCode::unsupported,
              huge_pages ? "[shm] this build knows no huge pages"
                         : "[shm] this build has no memory that never had a name (memfd)");
}

void seal_size(const OwnedFd&) {}

void seal_all(const OwnedFd&) {
  throw Error(ErrorCode::unsupported, "[shm] this build seals no memory");
}

OwnedFd for_reading(OwnedFd fd) { return fd; }

void* map_sealed(int, std::size_t) {
  errno = EPERM;
  return MAP_FAILED;
}

// On a Mac memory of shm_open() has no type.
bool may_be_memory(const struct stat& status) {
  const mode_t type = status.st_mode & S_IFMT;
  return type == 0 || S_ISREG(type);
}

// Files that have a name are no memory of ours.
const char* why_unsafe(int, const struct stat& status, bool writable) {
  if (!writable) return "others can write to it or cut it short";
  const bool is_own = status.st_nlink == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  return is_own ? nullptr : "others can cut it short";
}

void interleave(std::span<std::byte>) {}
void want_huge_pages(std::span<std::byte>) {}
void keep_from_children(std::span<std::byte>) {}

int populate(std::span<std::byte>) { return EINVAL; }

// An option of POSIX, which macOS does not have: there the pages come out of the swap.
int reserve_pages([[maybe_unused]] int fd, [[maybe_unused]] std::size_t nbytes) {
#if defined(_POSIX_ADVISORY_INFO) && _POSIX_ADVISORY_INFO > 0
  int result = 0;
  do {
    result = posix_fallocate(fd, 0, static_cast<off_t>(nbytes));
  } while (result == EINTR);
  return result;
#else
  return 0;
#endif
}

}  // namespace headrace::shm
