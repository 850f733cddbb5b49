#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include "store/posix.h"
#include "store/temporary_name.h"

// Not through os(): who asks whether a writer lives must not be told so by a fault that is meant
// for a store.

namespace headrace {

namespace {

constexpr std::string_view kVersion = "3-";  // names of other versions are nobody's to remove

bool lock(int fd, int how) {
  int rc;
  do {
    rc = ::flock(fd, LOCK_EX | how);
  } while (rc != 0 && errno == EINTR);
  return rc == 0;
}

std::uint64_t process_random() {
  static const std::uint64_t value = [] {
    std::uint64_t v = 0;
    // Without it pid, counter and O_EXCL still keep names apart.
    if (::getentropy(&v, sizeof v) != 0) v = 0;
    return v;
  }();
  return value;
}

}  // namespace

std::string temporary_name() {
  static std::atomic<std::uint64_t> counter{0};
  char text[100];
  // The random part keeps apart the same process number on two hosts that share a network folder.
  const int n = std::snprintf(text,
                              sizeof text,
                              "%s%s%" PRId64 "-%" PRIu64 "-%016" PRIx64,
                              kTemporaryPrefix.data(),
                              kVersion.data(),
                              static_cast<std::int64_t>(::getpid()),
                              counter.fetch_add(1, std::memory_order_relaxed),
                              process_random());
  return std::string(text, static_cast<std::size_t>(n));
}

// Whoever looks at the file between its making and this takes it for one that was left. So the lock
// is waited for, until that one has removed it; where there are no locks, nobody removes it.
bool hold_temporary(int fd, FileDescriptor& hold) {
  struct stat st;
  if (!lock(fd, 0) || ::fstat(fd, &st) != 0) return true;
  if (st.st_nlink == 0) return false;
  // The lock is that of all descriptors of this opening. Without a second one the file may be taken
  // away between its closing and its renaming, and is written anew.
  hold = FileDescriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  return true;
}

bool is_abandoned(int folder, std::string_view name) {
  if (!name.starts_with(kTemporaryPrefix)) return false;
  name.remove_prefix(kTemporaryPrefix.size());
  if (!name.starts_with(kVersion)) return false;
  const std::string whole = std::string(kTemporaryPrefix) + std::string(name);
  const FileDescriptor fd(
      openat_retrying(folder, whole.c_str(), O_RDWR | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW));
  struct stat st;
  if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return false;
  return lock(fd.get(), LOCK_NB);
}

}  // namespace headrace
