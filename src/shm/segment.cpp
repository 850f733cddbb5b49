#include "shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/available_memory.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "headrace/error.h"
#include "shm/process.h"
#include "shm/segment_system.h"

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

OwnedFd open_posix() {
  // The name is there between two calls only, and nobody can guess it and be there first. macOS has
  // room for 31 bytes.
  std::uint64_t random = 0;
  if (getentropy(&random, sizeof random) != 0) fail(ErrorCode::io, "getentropy", errno);
  const std::string name = "/headrace-" + std::to_string(random);
  OwnedFd fd(os().shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd.get() < 0) fail(ErrorCode::io, "shm_open " + name, errno);
  if (os().shm_unlink(name.c_str()) != 0) fail(ErrorCode::io, "shm_unlink " + name, errno);
  return fd;
}

std::span<std::byte> map(const OwnedFd& fd, std::size_t nbytes, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* memory = os().mmap(nullptr, nbytes, protection, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED && errno == EPERM && !writable) memory = map_sealed(fd.get(), nbytes);
  if (memory != MAP_FAILED) return {static_cast<std::byte*>(memory), nbytes};
  if (errno == EACCES || errno == EPERM) {
    fail(ErrorCode::invalid_argument, "the descriptor is not for what it is needed for", errno);
  }
  fail_memory("mapping shared memory", nbytes, errno);
}

[[noreturn]] void throw_unfit(const std::string& why) {
  throw Error(ErrorCode::invalid_argument,
              "[shm] the descriptor is no shared memory of headrace: " + why);
}

// Before a byte of it is touched.
std::size_t checked_nbytes(int fd, bool writable) {
  struct stat status {};
  if (os().fstat(fd, &status) != 0) fail(ErrorCode::io, "fstat", errno);
  if (!may_be_memory(status)) throw_unfit("it is no memory");
  if (status.st_uid != this_user.load()()) {
    throw_unfit("it is of the user " + std::to_string(status.st_uid));
  }
  if (const char* why = why_unsafe(fd, status, writable)) throw_unfit(why);
  if (status.st_size <= 0) throw_unfit("it has no bytes");
  return static_cast<std::size_t>(status.st_size);
}

// All of it is made at once. More than there is would not fail: the kernel kills a process for it,
// which may be another's.
void check_available(std::size_t nbytes) {
  const auto available = available_memory();
  if (!available || nbytes <= *available) return;
  throw Error(ErrorCode::out_of_memory,
              "[shm] shared memory of " + std::to_string(nbytes) +
                  " bytes: " + std::to_string(*available) + " are available");
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
  if (result == EINVAL) result = reserve_pages(fd.get(), memory.size());
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
  Segment segment(kind == Kind::posix ? open_posix() : open_unnamed(huge), {});
  if (nbytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max())) {
    fail_memory("shared memory", nbytes, EFBIG);
  }
  while (os().ftruncate(segment.fd(), static_cast<off_t>(nbytes)) != 0) {
    if (errno != EINTR) fail_memory("shared memory", nbytes, errno);
  }
  if (!huge) check_available(nbytes);  // huge pages are set aside
  segment.memory_ = map(segment.fd_, nbytes, true);
  segment.huge_pages_ = huge;
  segment.backing_ = kind == Kind::posix ? Backing::posix : Backing::memfd;
  if (options.interleave) interleave(segment.memory_);
  if (!huge && options.huge_pages != HugePages::never) want_huge_pages(segment.memory_);
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
  keep_from_children(segment.memory_);  // see seal_all()
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
