#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include "base/system.h"
#include "headrace/error.h"
#include "shm/segment_system.h"

namespace headrace::shm {

namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  throw Error(ErrorCode::io, "[shm] " + what + ": " + std::strerror(error), error);
}

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int kFutureWrite = 0x10;  // F_SEAL_FUTURE_WRITE of Linux 5.1

// Memory of open_posix(), which has no seals: only processes that share it could cut it short.
bool is_posix(int fd, const struct stat& status) {
  constexpr unsigned long kTmpfs = 0x01021994;  // TMPFS_MAGIC of linux/magic.h
  struct statfs system {};
  return fstatfs(fd, &system) == 0 && static_cast<unsigned long>(system.f_type) == kTmpfs &&
         status.st_nlink == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

}  // namespace

OwnedFd open_unnamed(bool huge_pages) {
  constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL of Linux 6.3, which may insist on it
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge_pages ? MFD_HUGETLB : 0U);
  OwnedFd fd(os().memfd_create("headrace", flags | kNoExecSeal));
  if (fd.get() < 0 && errno == EINVAL) fd = OwnedFd(os().memfd_create("headrace", flags));
  if (fd.get() < 0) fail("memfd_create", errno);
  if (fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) fail("fchmod of a memfd", errno);
  return fd;
}

void seal_size(const OwnedFd& fd) {
  if (os().fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    fail("sealing shared memory", errno);
  }
}

void seal_all(const OwnedFd& fd) {
  constexpr int kTries = 10;  // pages that a device reads are busy for a moment
  for (int i = 0; i < kTries; ++i) {
    if (os().fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_WRITE | F_SEAL_SEAL) == 0) return;
    if (errno != EBUSY && errno != EINTR) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (errno != EBUSY ||
      os().fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | kFutureWrite | F_SEAL_SEAL) != 0) {
    fail("sealing shared memory", errno);
  }
}

OwnedFd for_reading(OwnedFd fd) {
  OwnedFd reading(
      os().open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), O_RDONLY | O_CLOEXEC, 0));
  return reading.get() >= 0 ? std::move(reading) : std::move(fd);
}

// Before 6.7 Linux shares no sealed memory by a descriptor that is for writing, too. What nobody
// can write to is the same when it is private.
void* map_sealed(int fd, std::size_t nbytes) {
  return os().mmap(nullptr, nbytes, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
}

bool may_be_memory(const struct stat& status) { return S_ISREG(status.st_mode); }

const char* why_unsafe(int fd, const struct stat& status, bool writable) {
  const int seals = os().fcntl(fd, F_GET_SEALS, 0);
  const bool is_sized = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  const bool is_constant = is_sized && (seals & (F_SEAL_WRITE | kFutureWrite)) != 0;
  if (!writable && !is_constant) return "others can write to it or cut it short";
  if (writable && !is_sized && !is_posix(fd, status)) return "others can cut it short";
  return nullptr;
}

// Best effort: on a machine with one node there is nothing to spread.
void interleave(std::span<std::byte> memory) {
  constexpr int kInterleave = 3;         // MPOL_INTERLEAVE of linux/mempolicy.h
  constexpr int kAllowedNodes = 1 << 2;  // MPOL_F_MEMS_ALLOWED
  std::uint64_t nodes[16] = {};
  constexpr unsigned long kMaxNodes = sizeof nodes * 8;
  if (syscall(SYS_get_mempolicy, nullptr, nodes, kMaxNodes, nullptr, kAllowedNodes) == 0) {
    syscall(SYS_mbind, memory.data(), memory.size(), kInterleave, nodes, kMaxNodes, 0);
  }
}

void want_huge_pages(std::span<std::byte> memory) {
  os().madvise(memory.data(), memory.size(), MADV_HUGEPAGE);
}

void keep_from_children(std::span<std::byte> memory) {
  os().madvise(memory.data(), memory.size(), MADV_DONTFORK);
}

int populate(std::span<std::byte> memory) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t begin = address / page * page;
  const std::size_t nbytes = address + memory.size() - begin;
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE of Linux 5.14, later in C libraries
  while (os().madvise(reinterpret_cast<void*>(begin), nbytes, kPopulateWrite) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// Before Linux 5.14.
int reserve_pages(int fd, std::size_t nbytes) {
  int result = 0;
  do {
    result = posix_fallocate(fd, 0, static_cast<off_t>(nbytes));
  } while (result == EINTR);
  return result;
}

}  // namespace headrace::shm
