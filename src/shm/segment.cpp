#include "shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "headrace/error.h"
#include "shm/process.h"

namespace headrace::shm {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

[[noreturn]] void fail(ErrorCode code, const std::string& what, int error) {
  throw Error(code, "[shm] " + what + ": " + std::strerror(error), error);
}

[[noreturn]] void fail_memory(const char* what, std::size_t nbytes, int error) {
  throw Error(ErrorCode::out_of_memory,
              std::string("[shm] ") + what + " of " + std::to_string(nbytes) +
                  " bytes: " + std::strerror(error));
}

using Kind = Segment::Kind;

OwnedFd open_memfd([[maybe_unused]] bool huge_pages) {
#ifdef MFD_ALLOW_SEALING
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge_pages ? MFD_HUGETLB : 0U);
  OwnedFd fd(memfd_create("headrace", flags));
  if (fd.get() < 0) fail(ErrorCode::io, "memfd_create", errno);
  return fd;
#else
  throw Error(ErrorCode::unsupported, "[shm] this system has no memfd_create");
#endif
}

OwnedFd open_posix() {
  // The name is there between two calls only.
  static std::atomic<unsigned> count{0};
  const std::string name = "/headrace-" + std::to_string(this_process()) + "-" +
                           std::to_string(count.fetch_add(1, std::memory_order_relaxed));
  OwnedFd fd(shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd.get() < 0) fail(ErrorCode::io, "shm_open " + name, errno);
  shm_unlink(name.c_str());
  return fd;
}

void seal([[maybe_unused]] const OwnedFd& fd) {
#ifdef MFD_ALLOW_SEALING
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail(ErrorCode::io, "sealing shared memory", errno);
  }
#endif
}

std::span<std::byte> map(const OwnedFd& fd, std::size_t nbytes, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* memory = mmap(nullptr, nbytes, protection, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) fail_memory("mapping shared memory", nbytes, errno);
  return {static_cast<std::byte*>(memory), nbytes};
}

// Best effort: on a machine with one node there is nothing to spread.
void interleave([[maybe_unused]] std::span<std::byte> memory) {
#ifdef SYS_mbind
  constexpr int kInterleave = 3;         // MPOL_INTERLEAVE of linux/mempolicy.h
  constexpr int kAllowedNodes = 1 << 2;  // MPOL_F_MEMS_ALLOWED
  std::uint64_t nodes[16] = {};
  constexpr unsigned long kMaxNodes = sizeof nodes * 8;
  if (syscall(SYS_get_mempolicy, nullptr, nodes, kMaxNodes, nullptr, kAllowedNodes) == 0) {
    syscall(SYS_mbind, memory.data(), memory.size(), kInterleave, nodes, kMaxNodes, 0);
  }
#endif
}

// 0 or an errno; EINVAL where the system cannot.
int populate([[maybe_unused]] std::span<std::byte> memory) {
#ifdef MADV_POPULATE_WRITE
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t begin = address / page * page;
  const std::size_t nbytes = address + memory.size() - begin;
  while (madvise(reinterpret_cast<void*>(begin), nbytes, MADV_POPULATE_WRITE) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
#else
  return EINVAL;
#endif
}

// Makes every page, so that no touch of one can fail later (it would kill the process), by all
// threads: 1 GiB of zeroed pages takes one thread 0.3 s.
void make_pages(const OwnedFd& fd, std::span<std::byte> memory) {
  constexpr std::size_t kStep = std::size_t{32} << 20;
  std::atomic<int> error{0};
  parallel_for((memory.size() + kStep - 1) / kStep, [&](std::size_t i) {
    const std::size_t first = i * kStep;
    const int result = populate(memory.subspan(first, std::min(kStep, memory.size() - first)));
    if (result != 0) error.store(result, std::memory_order_relaxed);
  });
  int result = error.load();
#ifdef __linux__
  if (result == EINVAL) {  // before Linux 5.14
    result = posix_fallocate(fd.get(), 0, static_cast<off_t>(memory.size()));
  }
#endif
  // What the kernel says of a page that the file system (/dev/shm, say) has no room for.
  if (result == EFAULT) result = ENOSPC;
  if (result != 0) fail_memory("shared memory", memory.size(), result);
}

std::vector<Kind> wanted_kinds(const ArenaOptions& options) {
  const bool may_be_huge = options.huge_pages != HugePages::never;
  const bool must_be_huge = options.huge_pages == HugePages::always;
  if (options.backing == Backing::posix && must_be_huge) {
    throw Error(ErrorCode::unsupported, "[shm] POSIX shared memory has no huge pages");
  }
  std::vector<Kind> kinds;
  if (options.backing != Backing::posix && may_be_huge) kinds.push_back(Kind::huge_memfd);
  if (options.backing != Backing::posix && !must_be_huge) kinds.push_back(Kind::memfd);
  if (options.backing != Backing::memfd && !must_be_huge) kinds.push_back(Kind::posix);
  return kinds;
}

}  // namespace

Segment Segment::make(Kind kind, std::size_t nbytes, const ArenaOptions& options) {
  const bool huge = kind == Kind::huge_memfd;
  if (huge) nbytes = (nbytes + kHugePage - 1) / kHugePage * kHugePage;
  Segment segment(kind == Kind::posix ? open_posix() : open_memfd(huge), {});
  if (ftruncate(segment.fd(), static_cast<off_t>(nbytes)) != 0) {
    fail_memory("shared memory", nbytes, errno);
  }
  segment.memory_ = map(segment.fd_, nbytes, true);
  segment.huge_pages_ = huge;
  segment.backing_ = kind == Kind::posix ? Backing::posix : Backing::memfd;
  if (options.interleave) interleave(segment.memory_);
#ifdef MADV_HUGEPAGE
  if (!huge && options.huge_pages != HugePages::never) {
    madvise(segment.memory_.data(), nbytes, MADV_HUGEPAGE);  // a hint
  }
#endif
  make_pages(segment.fd_, segment.memory_);
  if (kind != Kind::posix) seal(segment.fd_);
  return segment;
}

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

OwnedFd::OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Segment Segment::create(std::size_t nbytes, const ArenaOptions& options) {
  const std::vector<Kind> kinds = wanted_kinds(options);
  for (std::size_t i = 0; i + 1 < kinds.size(); ++i) {
    try {
      return make(kinds[i], nbytes, options);
    } catch (const Error&) {  // the next will do
    }
  }
  return make(kinds.back(), nbytes, options);
}

Segment Segment::attach(int fd, bool writable) {
  OwnedFd own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (own.get() < 0) fail(ErrorCode::io, "file descriptor " + std::to_string(fd), errno);
  struct stat status {};
  if (fstat(own.get(), &status) != 0) fail(ErrorCode::io, "fstat", errno);
  if (!S_ISREG(status.st_mode) || status.st_size <= 0) {
    throw Error(ErrorCode::invalid_argument, "[shm] the descriptor is no shared memory");
  }
  Segment segment(std::move(own), {});
  segment.memory_ = map(segment.fd_, static_cast<std::size_t>(status.st_size), writable);
  return segment;
}

Segment::~Segment() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::move(other.fd_)),
      memory_(std::exchange(other.memory_, {})),
      huge_pages_(other.huge_pages_),
      backing_(other.backing_) {}

void map_pages(std::span<std::byte> memory) {
  populate(memory);  // where the system cannot, each page costs a fault when it is touched
}

}  // namespace headrace::shm
