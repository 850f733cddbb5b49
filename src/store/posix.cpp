#include "store/posix.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <vector>

#include "headrace/error.h"

namespace headrace {

namespace {

constexpr std::string_view kTemporaryPrefix = ".headrace-tmp-";

// Linux moves at most 0x7ffff000 bytes a call, whatever is asked.
constexpr std::size_t kMaxTransfer = 0x7ffff000;

std::uint64_t process_random() {
  static const std::uint64_t value = [] {
    std::uint64_t v = 0;
    // Never short for 8 bytes; without it pid, counter and O_EXCL still keep names apart.
    if (::getrandom(&v, sizeof v, GRND_NONBLOCK) != sizeof v) v = 0;
    return v;
  }();
  return value;
}

// linkat() names an open file by way of /proc.
bool can_link_nameless() {
  static const bool can = ::access("/proc/self/fd", F_OK) == 0;
  return can;
}

std::string temporary_name() {
  static std::atomic<unsigned long> counter{0};
  char text[80];
  // The random part keeps apart the same pid on two hosts that share a network folder.
  int n = std::snprintf(text,
                        sizeof text,
                        "%s%ld-%lu-%016llx",
                        kTemporaryPrefix.data(),
                        static_cast<long>(::getpid()),
                        counter.fetch_add(1, std::memory_order_relaxed),
                        static_cast<unsigned long long>(process_random()));
  return std::string(text, static_cast<std::size_t>(n));
}

std::uint64_t checked_offset(std::uint64_t offset, std::uint64_t nbytes, std::string_view path) {
  if (offset > std::uint64_t{INT64_MAX} || nbytes > std::uint64_t{INT64_MAX} - offset) {
    throw_io(EFBIG, "seek past 2^63 in", path);
  }
  return offset;
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void throw_io(int os_error, std::string_view action, std::string_view path) {
  std::string message(action);
  message += ' ';
  message += path;
  message += ": ";
  message += std::generic_category().message(os_error);
  throw Error(ErrorCode::io, message, os_error);
}

int open_retrying(const char* path, int flags, mode_t mode) {
  int fd;
  do {
    fd = ::open(path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

std::size_t read_at(int fd, std::uint64_t offset, MutableBytes dst, std::string_view path) {
  checked_offset(offset, dst.size(), path);
  std::size_t done = 0;
  while (done < dst.size()) {
    ssize_t n = ::pread(fd,
                        dst.data() + done,
                        std::min(dst.size() - done, kMaxTransfer),
                        static_cast<off_t>(offset + done));
    if (n == 0) break;
    if (n < 0) {
      if (errno == EINTR) continue;
      throw_io(errno, "read", path);
    }
    done += static_cast<std::size_t>(n);
  }
  return done;
}

std::size_t read_at_scattered(int fd,
                              std::uint64_t offset,
                              std::span<const MutableBytes> dsts,
                              std::string_view path) {
  std::size_t done = 0;
  std::size_t next = 0;    // first destination with room
  std::size_t filled = 0;  // bytes that it has already
  std::array<iovec, 64> few;
  std::vector<iovec> many;
  std::span<iovec> slots = few;
  if (dsts.size() > few.size()) {
    many.resize(std::min<std::size_t>(dsts.size(), IOV_MAX));
    slots = many;
  }
  for (;;) {
    std::size_t used = 0;
    std::size_t wanted = 0;
    std::size_t skip = filled;
    for (std::size_t i = next; i < dsts.size() && used < slots.size(); ++i) {
      std::size_t n = std::min(dsts[i].size() - skip, kMaxTransfer - wanted);
      if (n != 0) slots[used++] = {dsts[i].data() + skip, n};
      wanted += n;
      skip = 0;
      if (wanted == kMaxTransfer) break;
    }
    if (wanted == 0) return done;
    checked_offset(offset, done + wanted, path);
    ssize_t n =
        ::preadv(fd, slots.data(), static_cast<int>(used), static_cast<off_t>(offset + done));
    if (n == 0) return done;
    if (n < 0) {
      if (errno == EINTR) continue;
      throw_io(errno, "read", path);
    }
    done += static_cast<std::size_t>(n);
    for (auto left = static_cast<std::size_t>(n); next < dsts.size();) {
      std::size_t step = std::min(left, dsts[next].size() - filled);
      filled += step;
      left -= step;
      if (filled < dsts[next].size()) break;
      ++next;
      filled = 0;
    }
  }
}

void write_at(int fd,
              std::uint64_t offset,
              std::span<const ConstBytes> parts,
              std::string_view path) {
  for (ConstBytes part : parts) {
    checked_offset(offset, part.size(), path);
    while (!part.empty()) {
      ssize_t n = ::pwrite(
          fd, part.data(), std::min(part.size(), kMaxTransfer), static_cast<off_t>(offset));
      if (n < 0) {
        if (errno == EINTR) continue;
        throw_io(errno, "write", path);
      }
      if (n == 0) throw_io(ENOSPC, "write", path);
      offset += static_cast<std::uint64_t>(n);
      part = part.subspan(static_cast<std::size_t>(n));
    }
  }
}

void sync_file(int fd, std::string_view path) {
  int rc;
  do {
    rc = ::fsync(fd);
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) throw_io(errno, "fsync", path);
}

void sync_folder(const std::string& path) {
  FileDescriptor folder(open_retrying(path.c_str(), O_RDONLY | O_DIRECTORY));
  if (!folder) throw_io(errno, "open folder", path);
  sync_file(folder.get(), path);
}

std::string parent_of(const std::string& path) {
  std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void make_folders(const std::string& path, bool durable) {
  for (int attempt = 0; attempt < kRaceAttempts; ++attempt) {
    if (::mkdir(path.c_str(), 0777) == 0) {
      if (durable) sync_folder(parent_of(path));
      return;
    }
    int failure = errno;
    if (failure == ENOENT && path != "/" && path != ".") {
      make_folders(parent_of(path), durable);
      continue;
    }
    if (failure == EEXIST) {
      struct stat st;
      if (::stat(path.c_str(), &st) != 0) {
        if (errno == ENOENT) continue;
      } else {
        if (S_ISDIR(st.st_mode)) return;
        failure = ENOTDIR;
      }
    }
    throw_io(failure, "make folder", path);
  }
  throw_io(ENOENT, "make folder", path);
}

TemporaryFile::TemporaryFile(std::string target, bool durable)
    : target_(std::move(target)), durable_(durable) {
  const std::string folder = parent_of(target_);
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
    path_ = folder + (folder == "/" ? "" : "/") + temporary_name();
    fd_ = FileDescriptor(open_retrying(path_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0666));
    if (fd_) {
      pending_ = true;
      return;
    }
    if (errno == ENOENT) {
      make_folders(folder, durable_);
    } else if (errno != EEXIST) {
      break;
    }
  }
  throw_io(errno, "create a file for", target_);
}

TemporaryFile::~TemporaryFile() {
  if (pending_) ::unlink(path_.c_str());
}

bool TemporaryFile::publish(bool keep_open) {
  if (durable_) sync_file(fd_.get(), path_);
  if (nameless_ && !give_name()) return false;
  // Network file systems report a full disk at close.
  if (!keep_open && ::close(fd_.release()) != 0 && errno != EINTR) throw_io(errno, "close", path_);
  if (path_ != target_ && ::rename(path_.c_str(), target_.c_str()) != 0) {
    if (errno != ENOENT) throw_io(errno, "rename to", target_);
    pending_ = false;
    return false;
  }
  pending_ = false;
  path_ = target_;
  if (durable_) sync_folder(parent_of(target_));
  return true;
}

// The target itself when nothing lies there, otherwise a temporary name that a rename takes over.
bool TemporaryFile::give_name() {
  const std::string from = "/proc/self/fd/" + std::to_string(fd_.get());
  const auto link = [&](const std::string& to) {
    return ::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  const std::string folder = parent_of(target_);
  for (int attempt = 0; attempt < kRaceAttempts; ++attempt) {
    bool named = link(target_);
    if (!named && errno == EEXIST) {
      path_ = folder + (folder == "/" ? "" : "/") + temporary_name();
      named = pending_ = link(path_);
    }
    if (named) {
      nameless_ = false;
      return true;
    }
    if (errno != ENOENT) throw_io(errno, "name", target_);
    make_folders(folder, durable_);  // it was empty, and another thread erased it
  }
  return false;
}

void TemporaryFile::forget() { pending_ = false; }

bool TemporaryFile::is_temporary(std::string_view name) {
  return name.starts_with(kTemporaryPrefix);
}

}  // namespace headrace
