#include "store/temporary_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/per_process.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "headrace/error.h"

namespace headrace {

namespace {

constexpr std::string_view kPrefix = ".headrace-tmp-";
constexpr std::string_view kVersion = "2-";  // names of other versions are nobody's to remove

// False once the file system of some store took a file without a name and refused to name it.
std::atomic<bool> g_links_nameless = true;

// linkat() names an open file by way of /proc.
bool can_link_nameless() {
  static const bool can = ::access("/proc/self/fd", F_OK) == 0;
  return can && g_links_nameless.load(std::memory_order_relaxed);
}

// A short file of /proc; empty where it cannot be read. Not through os(): who asks whether a
// writer lives must not be told so by a fault that is meant for a store.
std::string proc_text(const char* path) {
  char text[1024];
  FileDescriptor fd(::open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t n = fd ? ::read(fd.get(), text, sizeof text) : -1;
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : std::string();
}

// This start of this host, and the namespace of its process numbers; 0: unknown.
std::uint64_t host_token() {
  static const std::uint64_t token = [] {
    char space[64];
    const ssize_t n = ::readlink("/proc/self/ns/pid", space, sizeof space);
    const std::string boot = proc_text("/proc/sys/kernel/random/boot_id");
    if (n <= 0 || boot.empty()) return std::uint64_t{0};
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const char c : boot + std::string(space, static_cast<std::size_t>(n)))
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash == 0 ? 1 : hash;
  }();
  return token;
}

// When a process began, in ticks since the host did: the 22nd field, behind a name in brackets
// that may hold anything. Nothing where /proc does not say.
std::optional<std::uint64_t> start_of(const char* path) {
  const std::string text = proc_text(path);
  std::size_t at = text.rfind(')');
  for (int field = 2; at != std::string::npos && field < 22; ++field) at = text.find(' ', at + 1);
  if (at == std::string::npos) return std::nullopt;
  std::uint64_t start = 0;
  const char* first = text.data() + at + 1;
  if (std::from_chars(first, text.data() + text.size(), start).ec != std::errc()) return {};
  return start;
}

struct Writer {
  const std::uint64_t start = start_of("/proc/self/stat").value_or(0);
};

std::uint64_t process_random() {
  static const std::uint64_t value = [] {
    std::uint64_t v = 0;
    // Never short for 8 bytes; without it pid, counter and O_EXCL still keep names apart.
    if (::getrandom(&v, sizeof v, GRND_NONBLOCK) != sizeof v) v = 0;
    return v;
  }();
  return value;
}

std::string temporary_name() {
  static std::atomic<std::uint64_t> counter{0};
  static auto* writer = new PerProcess<Writer>;  // never destroyed: threads may outlive statics
  char text[140];
  // The random part keeps apart the same process number on two hosts that share a network folder.
  const int n = std::snprintf(text,
                              sizeof text,
                              "%s%s%016" PRIx64 "-%" PRId64 "-%" PRIu64 "-%" PRIu64 "-%016" PRIx64,
                              kPrefix.data(),
                              kVersion.data(),
                              host_token(),
                              static_cast<std::int64_t>(::getpid()),
                              writer->get().start,
                              counter.fetch_add(1, std::memory_order_relaxed),
                              process_random());
  return std::string(text, static_cast<std::size_t>(n));
}

std::string beside(const std::string& folder, const std::string& name) {
  return folder + (folder == "/" ? "" : "/") + name;
}

// The numbers between the dashes of a name, five of them; false for any other text.
bool parse_name(std::string_view text, std::array<std::uint64_t, 5>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t end = i + 1 < parts.size() ? text.find('-') : text.size();
    if (end == std::string_view::npos || end == 0) return false;
    const int base = i == 0 || i + 1 == parts.size() ? 16 : 10;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + end, parts[i], base);
    if (error != std::errc() || stop != text.data() + end) return false;
    text.remove_prefix(i + 1 < parts.size() ? end + 1 : end);
  }
  return true;
}

}  // namespace

TemporaryFile::TemporaryFile(std::string target, bool durable)
    : target_(std::move(target)), durable_(durable), generation_(fork_generation()) {
  const std::string folder = parent_of(target_);
  int failure = ENOENT;
  // The folder may go between mkdir and open when another thread erases the prefix.
  for (int attempt = 0; attempt < kRaceAttempts; ++attempt) {
    if (can_link_nameless()) {
      fd_ = FileDescriptor(open_retrying(folder.c_str(), O_TMPFILE | O_RDWR, 0666));
      if (fd_) {
        nameless_ = true;
        path_ = target_;
        return;
      }
      if (errno == ENOENT) {
        make_folders(folder, durable_);
        continue;
      }
    }
    path_ = beside(folder, temporary_name());
    fd_ = FileDescriptor(open_retrying(path_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0666));
    if (fd_) {
      pending_ = true;
      return;
    }
    failure = errno;
    if (failure == ENOENT) {
      make_folders(folder, durable_);
    } else if (failure != EEXIST) {
      break;
    }
  }
  throw_io(failure, "create a file for", target_);
}

TemporaryFile::~TemporaryFile() {
  if (pending_ && generation_ == fork_generation()) os().unlink(path_.c_str());
}

bool TemporaryFile::publish(bool keep_open) {
  if (durable_) sync_file(fd_.get(), target_);
  if (nameless_ && !give_name()) return false;
  if (path_ != target_) {
    // Network file systems report a full disk at close, so before the object is replaced.
    if (!keep_open && os().close(fd_.release()) != 0 && errno != EINTR) {
      throw_io(errno, "close", target_);
    }
    if (os().rename(path_.c_str(), target_.c_str()) != 0) {
      if (errno != ENOENT) throw_io(errno, "rename to", target_);
      pending_ = false;
      return false;
    }
  } else if (!keep_open) {
    close_published();
  }
  pending_ = false;
  path_ = target_;
  if (durable_) sync_folder(parent_of(target_));
  return true;
}

std::optional<bool> TemporaryFile::publish_new(bool keep_open) {
  if (durable_) sync_file(fd_.get(), target_);
  const std::string from = nameless_ ? "/proc/self/fd/" + std::to_string(fd_.get()) : path_;
  const int follow = nameless_ ? AT_SYMLINK_FOLLOW : 0;
  if (os().linkat(AT_FDCWD, from.c_str(), AT_FDCWD, target_.c_str(), follow) != 0) {
    switch (errno) {
      case EEXIST:
        return std::nullopt;
      case ENOENT:
        return false;  // it was taken away, or its folder
      case EXDEV:
      case EOPNOTSUPP:
      case ENOSYS:
      case EINVAL:
      case EPERM:
        if (!nameless_) {
          throw Error(ErrorCode::unsupported,
                      target_ + ": its file system does not tell whether a file is new");
        }
        g_links_nameless = false;
        return false;
      default:
        throw_io(errno, "name", target_);
    }
  }
  nameless_ = false;  // of one with a temporary name the destructor removes that
  if (!keep_open) close_published();
  if (durable_) sync_folder(parent_of(target_));
  return true;
}

// Of a new object that has its name already: what the file system could not keep must not stay.
void TemporaryFile::close_published() {
  struct stat mine;
  const bool known = os().fstat(fd_.get(), &mine) == 0;
  if (os().close(fd_.release()) == 0 || errno == EINTR) return;
  const int failure = errno;
  struct stat there;
  if (known && os().lstat(target_.c_str(), &there) == 0 && there.st_ino == mine.st_ino &&
      there.st_dev == mine.st_dev) {
    os().unlink(target_.c_str());
  }
  throw_io(failure, "close", target_);
}

// The target itself when nothing lies there, otherwise a temporary name that a rename takes over.
bool TemporaryFile::give_name() {
  const std::string from = "/proc/self/fd/" + std::to_string(fd_.get());
  const auto link = [&](const std::string& to) {
    return os().linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  const std::string folder = parent_of(target_);
  for (int attempt = 0; attempt < kRaceAttempts; ++attempt) {
    bool named = link(target_);
    if (!named && errno == EEXIST) {
      path_ = beside(folder, temporary_name());
      named = pending_ = link(path_);
      if (!named) {
        const int failure = errno;
        path_ = target_;
        errno = failure;
      }
    }
    if (named) {
      nameless_ = false;
      return true;
    }
    if (errno == EXDEV || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) {
      g_links_nameless = false;  // what is written anew has a name from the beginning
      return false;
    }
    if (errno != ENOENT) throw_io(errno, "name", target_);
    make_folders(folder, durable_);  // it was empty, and another thread erased it
  }
  return false;
}

bool TemporaryFile::is_temporary(std::string_view name) { return name.starts_with(kPrefix); }

bool TemporaryFile::is_abandoned(std::string_view name) {
  if (!is_temporary(name)) return false;
  name.remove_prefix(kPrefix.size());
  if (!name.starts_with(kVersion)) return false;
  name.remove_prefix(kVersion.size());
  std::array<std::uint64_t, 5> parts{};
  if (!parse_name(name, parts)) return false;
  const auto [host, process, start, counter, random] = parts;
  if (host == 0 || host != host_token() || start == 0 || process == 0 || process > INT32_MAX) {
    return false;
  }
  const auto pid = static_cast<pid_t>(process);
  if (::kill(pid, 0) != 0) return errno == ESRCH;
  // The number may be another's by now. A process that /proc hides counts as the writer.
  const auto found = start_of(("/proc/" + std::to_string(pid) + "/stat").c_str());
  return found && *found != start;
}

}  // namespace headrace
