#include "conformance/system_faults.h"

#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <mutex>
#include <random>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "base/system.h"

namespace headrace::test {

namespace {

constexpr int kShort = -1;  // a read or write of less than was asked for

// By manual page. EINTR has to be retried and kShort gone on from: neither is a failure.
constexpr int kOpen[] = {EACCES, EINTR, EIO, EMFILE, ENFILE, ENOMEM, ESTALE};
constexpr int kMake[] = {
    EACCES, EDQUOT, EINTR, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EROFS, ESTALE, EOPNOTSUPP};
constexpr int kClose[] = {EINTR, EIO, ENOSPC, EDQUOT};
constexpr int kRead[] = {EINTR, EIO, ENOMEM, ESTALE, kShort};
constexpr int kWrite[] = {EDQUOT, EFBIG, EINTR, EIO, ENOSPC, ESTALE, kShort};
constexpr int kSync[] = {EDQUOT, EINTR, EIO, ENOSPC};
constexpr int kStat[] = {EACCES, EIO, ENOMEM, ESTALE};
constexpr int kEntry[] = {EACCES, EDQUOT, EIO, ENOMEM, ENOSPC, EROFS, ESTALE};
constexpr int kRemove[] = {EACCES, EBUSY, EIO, ENOMEM, EROFS, ESTALE};
constexpr int kList[] = {EIO, ENOMEM};
constexpr int kLock[] = {EINTR, ENOLCK};

class Injector {
 public:
  // errno, kShort, or 0: let it pass.
  int next(std::string_view call, std::span<const int> ways) {
    std::lock_guard lock(mutex);
    int way = 0;
    if (nth > 0 && --nth == 0) {
      if (kills) ::raise(SIGKILL);
      ways_of_nth = static_cast<unsigned>(ways.size());
      if (wanted < ways.size()) way = ways[wanted];
      lasts = lasting != 0;
    } else if (one_in > 0 && random() % one_in == 0) {
      way = ways[random() % ways.size()];
    }
    if (lasts && std::ranges::find(ways, lasting) != ways.end()) way = lasting;
    if (way == 0) return 0;
    ++injected;
    if (call.starts_with("unlink") || call == "rename") spoiled_removal = true;
    if (!story.empty()) story += ", ";
    story += call;
    story += ": " + (way == kShort ? "short" : std::generic_category().message(way));
    return way;
  }

  void reset() {
    nth = 0;
    kills = false;
    wanted = ways_of_nth = one_in = 0;
    lasting = 0;
    lasts = false;
    injected = 0;
    spoiled_removal = false;
    story.clear();
  }

  std::mutex mutex;
  long nth = 0;
  bool kills = false;
  unsigned wanted = 0;
  unsigned ways_of_nth = 0;
  unsigned one_in = 0;
  int lasting = 0;     // from the nth on
  bool lasts = false;  // it has come
  std::mt19937 random;
  long injected = 0;
  bool spoiled_removal = false;
  std::string story;
  const SystemCalls* before = nullptr;
};

Injector& injector() {
  static auto* injector = new Injector;
  return *injector;
}

const SystemCalls& real() { return real_system_calls(); }

bool fails(std::string_view call, std::span<const int> ways) {
  const int way = injector().next(call, ways);
  if (way > 0) errno = way;
  return way > 0;
}

std::span<const int> ways_to_open(int flags) {
  if ((flags & O_TMPFILE) == O_TMPFILE || (flags & O_CREAT) != 0) return kMake;
  return kOpen;
}

// Bytes to move when `nbytes` are asked for; -1 with errno for none.
ssize_t amount(std::string_view call, std::span<const int> ways, std::size_t nbytes) {
  const int way = injector().next(call, ways);
  if (way > 0) {
    errno = way;
    return -1;
  }
  return static_cast<ssize_t>(way == kShort ? (nbytes + 1) / 2 : nbytes);
}

SystemCalls faulty_calls() {
  SystemCalls calls = real();
  calls.open = [](const char* path, int flags, mode_t mode) {
    return fails("open", ways_to_open(flags)) ? -1 : real().open(path, flags, mode);
  };
  calls.openat = [](int folder, const char* name, int flags, mode_t mode) {
    return fails("openat", ways_to_open(flags)) ? -1 : real().openat(folder, name, flags, mode);
  };
  // Linux lets go of the descriptor whatever close() returns.
  calls.close = [](int fd) {
    const int result = real().close(fd);
    return fails("close", kClose) ? -1 : result;
  };
  calls.pread = [](int fd, void* into, std::size_t nbytes, off_t offset) {
    const ssize_t n = amount("pread", kRead, nbytes);
    return n < 0 ? n : real().pread(fd, into, static_cast<std::size_t>(n), offset);
  };
  calls.preadv = [](int fd, const iovec* into, int count, off_t offset) {
    const int way = injector().next("preadv", kRead);
    if (way > 0) {
      errno = way;
      return ssize_t{-1};
    }
    iovec first = into[0];
    first.iov_len = (first.iov_len + 1) / 2;
    return way == kShort ? real().preadv(fd, &first, 1, offset)
                         : real().preadv(fd, into, count, offset);
  };
  calls.pwrite = [](int fd, const void* from, std::size_t nbytes, off_t offset) {
    const ssize_t n = amount("pwrite", kWrite, nbytes);
    return n < 0 ? n : real().pwrite(fd, from, static_cast<std::size_t>(n), offset);
  };
  calls.ftruncate = [](int fd, off_t nbytes) {
    return fails("ftruncate", kWrite) ? -1 : real().ftruncate(fd, nbytes);
  };
  calls.fsync = [](int) { return fails("fsync", kSync) ? -1 : 0; };
  calls.syncfs = [](int) { return fails("syncfs", kSync) ? -1 : 0; };
  calls.flock = [](int fd, int operation) {
    return fails("flock", kLock) ? -1 : real().flock(fd, operation);
  };
  calls.stat = [](const char* path, struct stat* found) {
    return fails("stat", kStat) ? -1 : real().stat(path, found);
  };
  calls.lstat = [](const char* path, struct stat* found) {
    return fails("lstat", kStat) ? -1 : real().lstat(path, found);
  };
  calls.fstat = [](int fd, struct stat* found) {
    return fails("fstat", kStat) ? -1 : real().fstat(fd, found);
  };
  calls.fstatat = [](int folder, const char* name, struct stat* found, int flags) {
    return fails("fstatat", kStat) ? -1 : real().fstatat(folder, name, found, flags);
  };
  calls.statx = [](int folder, const char* name, int flags, unsigned mask, struct statx* found) {
    return fails("statx", kStat) ? -1 : real().statx(folder, name, flags, mask, found);
  };
  calls.mkdir = [](const char* path, mode_t mode) {
    return fails("mkdir", kEntry) ? -1 : real().mkdir(path, mode);
  };
  calls.linkat = [](int from_folder, const char* from, int to_folder, const char* to, int flags) {
    return fails("linkat", kEntry) ? -1 : real().linkat(from_folder, from, to_folder, to, flags);
  };
  calls.rename = [](const char* from, const char* to) {
    return fails("rename", kEntry) ? -1 : real().rename(from, to);
  };
  calls.unlink = [](const char* path) {
    return fails("unlink", kRemove) ? -1 : real().unlink(path);
  };
  calls.unlinkat = [](int folder, const char* name, int flags) {
    return fails("unlinkat", kRemove) ? -1 : real().unlinkat(folder, name, flags);
  };
  calls.fdopendir = [](int fd) -> DIR* {
    return fails("fdopendir", kList) ? nullptr : real().fdopendir(fd);
  };
  calls.readdir = [](DIR* folder) -> dirent* {
    return fails("readdir", kList) ? nullptr : real().readdir(folder);
  };
  return calls;
}

}  // namespace

SystemFaults::SystemFaults() {
  static const SystemCalls calls = faulty_calls();
  stop();
  injector().before = exchange_system_calls(&calls);
}

SystemFaults::~SystemFaults() {
  stop();
  exchange_system_calls(injector().before);
}

void SystemFaults::fail_nth(long nth, unsigned way) {
  std::lock_guard lock(injector().mutex);
  injector().reset();
  injector().nth = nth;
  injector().wanted = way;
}

void SystemFaults::fail_from(long nth, int error) {
  std::lock_guard lock(injector().mutex);
  injector().reset();
  injector().nth = nth;
  injector().wanted = std::numeric_limits<unsigned>::max();  // by itself it may pass
  injector().lasting = error;
}

void SystemFaults::kill_nth(long nth) {
  fail_nth(nth, 0);
  injector().kills = true;
}

void SystemFaults::fail_at_random(unsigned seed, unsigned one_in) {
  std::lock_guard lock(injector().mutex);
  injector().reset();
  injector().one_in = one_in;
  injector().random.seed(seed);
}

void SystemFaults::stop() {
  std::lock_guard lock(injector().mutex);
  injector().nth = 0;
  injector().one_in = 0;
  injector().lasts = false;
}

long SystemFaults::injected() const {
  std::lock_guard lock(injector().mutex);
  return injector().injected;
}

unsigned SystemFaults::ways() const {
  std::lock_guard lock(injector().mutex);
  return injector().ways_of_nth;
}

std::string SystemFaults::story() const {
  std::lock_guard lock(injector().mutex);
  return injector().story;
}

bool SystemFaults::spoiled_removal() const {
  std::lock_guard lock(injector().mutex);
  return injector().spoiled_removal;
}

}  // namespace headrace::test
