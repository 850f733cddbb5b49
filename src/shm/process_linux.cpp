#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "base/system.h"
#include "headrace/error.h"
#include "shm/process.h"

namespace headrace::shm {

namespace {

constexpr int kPidBits = 24;  // the kernel gives numbers below 2^22

struct ProcessStat {
  char state;
  std::uint64_t start;  // in clock ticks since the machine was booted
};

// Whether /proc shows the processes of this one's PID namespace: after `unshare --pid` it may be
// the outer one's, where the same numbers are other processes.
bool has_own_proc() {
  char text[16] = {};
  const ssize_t nbytes = readlink("/proc/self", text, sizeof text - 1);
  pid_t pid = 0;
  return nbytes > 0 && std::from_chars(text, text + nbytes, pid).ec == std::errc{} &&
         pid == getpid();
}

// https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
std::optional<ProcessStat> read_stat(pid_t pid) {
  if (!has_own_proc()) return std::nullopt;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  // A process that ends in between makes the read fail (ESRCH), which only the stream's own
  // functions take as such: an iterator over its buffer throws.
  std::string text;
  std::getline(file, text, '\0');
  // The name of the program is in parentheses and may hold anything, also these.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return std::nullopt;
  std::string_view rest = std::string_view(text).substr(name_end + 2);  // field 3 and on
  const char state = rest.front();
  constexpr int kStartField = 22;
  for (int field = 3; field < kStartField; ++field) {
    const std::size_t blank = rest.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(blank + 1);
  }
  std::uint64_t start = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), start);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return ProcessStat{state, start};
}

ProcessIdentity identity(pid_t pid, std::uint64_t start) {
  constexpr std::uint64_t kHighest = std::uint64_t{1} << 63;
  return (start << kPidBits | static_cast<std::uint64_t>(pid)) & (kHighest - 1);
}

// Whether a process of this number has ended. Nothing: the kernel does not say.
std::optional<bool> has_ended(pid_t pid) {
  const int fd = os().pidfd_open(pid, 0);
  if (fd >= 0) {
    pollfd waiting{fd, POLLIN, 0};
    const int ready = os().poll(&waiting, 1, 0);
    os().close(fd);
    if (ready >= 0) return ready > 0;
  } else if (errno == ESRCH) {
    return true;
  }
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  return std::nullopt;
}

}  // namespace

ProcessIdentity this_process() {
  const pid_t pid = getpid();
  const std::optional<ProcessStat> stat = read_stat(pid);
  return identity(pid, stat ? stat->start : 0);
}

bool is_alive(ProcessIdentity process) {
  const auto pid = static_cast<pid_t>(process & ((1U << kPidBits) - 1));
  const std::optional<bool> ended = has_ended(pid);
  if (ended.value_or(false)) return false;
  const std::optional<ProcessStat> stat = read_stat(pid);
  if (!stat) return true;  // no /proc, or no descriptor left to read it
  const std::uint64_t start = process >> kPidBits;
  if (start != 0 && stat->start != start) return false;  // another process has the number now
  return ended.has_value() || (stat->state != 'Z' && stat->state != 'X');
}

// https://man7.org/linux/man-pages/man7/namespaces.7.html: processes are in the same namespace when
// the inodes of these files are the same.
std::uint64_t pid_namespace() {
  struct stat status {};
  if (os().stat("/proc/self/ns/pid", &status) == 0) return status.st_ino;
  const int error = errno;
  if (error == ENOENT || error == ENOTDIR || error == EACCES) return 0;
  throw Error(
      ErrorCode::io, std::string("[shm] /proc/self/ns/pid: ") + std::strerror(error), error);
}

}  // namespace headrace::shm
