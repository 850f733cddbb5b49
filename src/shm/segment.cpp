#include "shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/vfs.h>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/system.h"
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
  constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL of Linux 6.3, which may insist on it
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge_pages ? MFD_HUGETLB : 0U);
  OwnedFd fd(os().memfd_create("headrace", flags | kNoExecSeal));
  if (fd.get() < 0 && errno == EINVAL) fd = OwnedFd(os().memfd_create("headrace", flags));
  if (fd.get() < 0) fail(ErrorCode::io, "memfd_create", errno);
  if (fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) fail(ErrorCode::io, "fchmod of a memfd", errno);
  return fd;
#else
  throw Error(ErrorCode::unsupported, "[shm] this system has no memfd_create");
#endif
}

OwnedFd open_posix() {
  // The name is there between two calls only, and nobody can guess it and be there first.
  std::uint64_t random[2] = {};
  if (getentropy(random, sizeof random) != 0) fail(ErrorCode::io, "getentropy", errno);
  const std::string name =
      "/headrace-" + std::to_string(random[0]) + "-" + std::to_string(random[1]);
  OwnedFd fd(os().shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd.get() < 0) fail(ErrorCode::io, "shm_open " + name, errno);
  if (os().shm_unlink(name.c_str()) != 0) fail(ErrorCode::io, "shm_unlink " + name, errno);
  return fd;
}

std::span<std::byte> map(const OwnedFd& fd, std::size_t nbytes, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* memory = os().mmap(nullptr, nbytes, protection, MAP_SHARED, fd.get(), 0);
#ifdef MAP_NORESERVE
  // Before 6.7 Linux shares no sealed memory by a descriptor that is for writing, too. What nobody
  // can write to is the same when it is private.
  if (memory == MAP_FAILED && errno == EPERM && !writable) {
    memory = os().mmap(nullptr, nbytes, protection, MAP_PRIVATE | MAP_NORESERVE, fd.get(), 0);
  }
#endif
  if (memory != MAP_FAILED) return {static_cast<std::byte*>(memory), nbytes};
  if (errno == EACCES || errno == EPERM) {
    fail(ErrorCode::invalid_argument, "the descriptor is not for what it is needed for", errno);
  }
  fail_memory("mapping shared memory", nbytes, errno);
}

#ifdef MFD_ALLOW_SEALING

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int kFutureWrite = 0x10;  // F_SEAL_FUTURE_WRITE of Linux 5.1

void seal_size(const OwnedFd& fd) {
  if (os().fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    fail(ErrorCode::io, "sealing shared memory", errno);
  }
}

// Its size and what it holds. The kernel refuses while the memory is mapped to be written to, which
// a child may have done that was forked meanwhile; then nobody else can, from now on.
void seal_all(const OwnedFd& fd) {
  constexpr int kTries = 10;  // pages that a device reads are busy for a moment
  for (int i = 0; i < kTries; ++i) {
    if (os().fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_WRITE | F_SEAL_SEAL) == 0) return;
    if (errno != EBUSY && errno != EINTR) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (errno != EBUSY ||
      os().fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | kFutureWrite | F_SEAL_SEAL) != 0) {
    fail(ErrorCode::io, "sealing shared memory", errno);
  }
}

// The same memory by a descriptor that cannot be written to, where /proc is there to give it.
OwnedFd for_reading(OwnedFd fd) {
  OwnedFd reading(
      os().open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), O_RDONLY | O_CLOEXEC, 0));
  return reading.get() >= 0 ? std::move(reading) : std::move(fd);
}

#else

void seal_size(const OwnedFd&) {}

[[noreturn]] void seal_all(const OwnedFd&) {
  throw Error(ErrorCode::unsupported, "[shm] this system seals no memory");
}

OwnedFd for_reading(OwnedFd fd) { return fd; }

#endif

[[noreturn]] void throw_unfit(const std::string& why) {
  throw Error(ErrorCode::invalid_argument,
              "[shm] the descriptor is no shared memory of headrace: " + why);
}

// Memory of open_posix(), which has no seals: only processes that share it could cut it short.
[[maybe_unused]] bool is_posix(int fd, const struct stat& status) {
#ifdef __linux__
  constexpr unsigned long kTmpfs = 0x01021994;  // TMPFS_MAGIC of linux/magic.h
  struct statfs system {};
  return fstatfs(fd, &system) == 0 && static_cast<unsigned long>(system.f_type) == kTmpfs &&
         status.st_nlink == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
#else
  return status.st_nlink == 0;
#endif
}

// Before a byte of it is touched.
std::size_t checked_nbytes(int fd, bool writable) {
  struct stat status {};
  if (os().fstat(fd, &status) != 0) fail(ErrorCode::io, "fstat", errno);
  if (!S_ISREG(status.st_mode)) throw_unfit("it is no memory");
  if (status.st_uid != this_user.load()()) {
    throw_unfit("it is of the user " + std::to_string(status.st_uid));
  }
#ifdef MFD_ALLOW_SEALING
  const int seals = os().fcntl(fd, F_GET_SEALS, 0);
  const bool is_sized = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  const bool is_constant = is_sized && (seals & (F_SEAL_WRITE | kFutureWrite)) != 0;
  if (!writable && !is_constant) throw_unfit("others can write to it or cut it short");
  if (writable && !is_sized && !is_posix(fd, status)) throw_unfit("others can cut it short");
#endif
  if (status.st_size <= 0) throw_unfit("it has no bytes");
  return static_cast<std::size_t>(status.st_size);
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
  while (os().madvise(reinterpret_cast<void*>(begin), nbytes, MADV_POPULATE_WRITE) != 0) {
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
    do {
      result = posix_fallocate(fd.get(), 0, static_cast<off_t>(memory.size()));
    } while (result == EINTR);
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
  if (nbytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max())) {
    fail_memory("shared memory", nbytes, EFBIG);
  }
  while (os().ftruncate(segment.fd(), static_cast<off_t>(nbytes)) != 0) {
    if (errno != EINTR) fail_memory("shared memory", nbytes, errno);
  }
  segment.memory_ = map(segment.fd_, nbytes, true);
  segment.huge_pages_ = huge;
  segment.backing_ = kind == Kind::posix ? Backing::posix : Backing::memfd;
  if (options.interleave) interleave(segment.memory_);
#ifdef MADV_HUGEPAGE
  if (!huge && options.huge_pages != HugePages::never) {
    os().madvise(segment.memory_.data(), nbytes, MADV_HUGEPAGE);  // a hint
  }
#endif
  make_pages(segment.fd_, segment.memory_);
  return segment;
}

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) os().close(fd_);
}

OwnedFd::OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Segment Segment::make_first(const std::vector<Kind>& kinds,
                            std::size_t nbytes,
                            const ArenaOptions& options) {
  for (std::size_t i = 0; i + 1 < kinds.size(); ++i) {
    try {
      return make(kinds[i], nbytes, options);
    } catch (const Error&) {  // the next will do
    }
  }
  return make(kinds.back(), nbytes, options);
}

Segment Segment::create(std::size_t nbytes, const ArenaOptions& options) {
  Segment segment = make_first(wanted_kinds(options), nbytes, options);
  if (segment.backing_ == Backing::memfd) seal_size(segment.fd_);
  return segment;
}

Segment Segment::create_sealed(std::size_t nbytes,
                               const std::function<void(std::span<std::byte>)>& fill) {
  ArenaOptions options;
  options.backing = Backing::memfd;
  Segment segment = make_first(wanted_kinds(options), nbytes, options);
#ifdef MADV_DONTFORK
  os().madvise(segment.memory_.data(), segment.memory_.size(), MADV_DONTFORK);  // see seal_all()
#endif
  fill(segment.memory_);
  const std::size_t mapped = segment.memory_.size();
  segment.unmap();
  seal_all(segment.fd_);
  segment.fd_ = for_reading(std::move(segment.fd_));
  segment.memory_ = map(segment.fd_, mapped, false);
  return segment;
}

Segment Segment::attach(int fd, bool writable) {
  OwnedFd own(os().fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (own.get() < 0) fail(ErrorCode::io, "file descriptor " + std::to_string(fd), errno);
  const std::size_t nbytes = checked_nbytes(own.get(), writable);
  Segment segment(std::move(own), {});
  segment.memory_ = map(segment.fd_, nbytes, writable);
  return segment;
}

Segment::~Segment() { unmap(); }

void Segment::unmap() {
  if (!memory_.empty()) os().munmap(memory_.data(), memory_.size());
  memory_ = {};
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
