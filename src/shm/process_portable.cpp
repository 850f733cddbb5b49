// POSIX tells of another process only whether its number is in use. What comes of that: one that
// has ended counts as alive while its parent, when that is another process, has not waited for it,
// and when a later process got its number, until that one ends.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "shm/process.h"

namespace headrace::shm {

namespace {

constexpr int kPidBits = 24;  // macOS gives numbers below 100,000
constexpr std::uint64_t kPidMask = (std::uint64_t{1} << kPidBits) - 1;

// Tells this process from those that had its number before, in milliseconds: of the first call, in
// this process or in one that it was forked from, which has another number.
std::uint64_t beginning() {
  static const std::uint64_t ms = monotonic_ns() / 1'000'000 + 1;
  return ms;
}

// A child that has ended and was not waited for.
bool is_ended_child(pid_t pid) {
  siginfo_t found{};
  int rc;
  do {
    rc = ::waitid(P_PID, static_cast<id_t>(pid), &found, WEXITED | WNOHANG | WNOWAIT);
  } while (rc != 0 && errno == EINTR);
  return rc == 0 && found.si_pid == pid;
}

}  // namespace

ProcessIdentity this_process() {
  constexpr std::uint64_t kHighest = std::uint64_t{1} << 63;
  return (beginning() << kPidBits | static_cast<std::uint64_t>(getpid())) & (kHighest - 1);
}

bool is_alive(ProcessIdentity process) {
  const auto pid = static_cast<pid_t>(process & kPidMask);
  if (pid == getpid()) return process == this_process();
  if (::kill(pid, 0) != 0 && errno == ESRCH) return false;
  return !is_ended_child(pid);
}

std::uint64_t pid_namespace() { return 0; }

}  // namespace headrace::shm
