#include "store/posix.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "base/system.h"
#include "headrace/error.h"

namespace headrace {

namespace {

// Linux moves at most 0x7ffff000 bytes a call, whatever is asked.
constexpr std::size_t kMaxTransfer = 0x7ffff000;

std::uint64_t checked_offset(std::uint64_t offset, std::uint64_t nbytes, std::string_view path) {
  if (offset > std::uint64_t{INT64_MAX} || nbytes > std::uint64_t{INT64_MAX} - offset) {
    throw_io(EFBIG, "seek past 2^63 in", path);
  }
  return offset;
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) os().close(fd_);
}

FolderStream::FolderStream(std::string path)
    : FolderStream(FileDescriptor(open_retrying(path.c_str(), O_RDONLY | O_DIRECTORY)), path) {}

FolderStream::FolderStream(FileDescriptor fd, std::string path)
    : path_(std::move(path)), folder_(fd ? os().fdopendir(fd.get()) : nullptr) {
  if (folder_ == nullptr) throw_io(errno, "open folder", path_);
  fd.release();
}

FolderStream::~FolderStream() { ::closedir(folder_); }

int FolderStream::fd() const { return ::dirfd(folder_); }

const dirent* FolderStream::next() const {
  errno = 0;
  const dirent* entry = os().readdir(folder_);
  if (entry == nullptr && errno != 0) throw_io(errno, "list folder", path_);
  return entry;
}

bool was_folder(int os_error, int folder, const char* name) {
  if (os_error != EPERM) return os_error == EISDIR;
  struct stat st;
  const bool found = os().fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
  errno = os_error;
  return found && S_ISDIR(st.st_mode);
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
    fd = os().open(path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

int openat_retrying(int folder, const char* name, int flags) {
  int fd;
  do {
    fd = os().openat(folder, name, flags | O_CLOEXEC, 0);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

std::size_t read_at(int fd, std::uint64_t offset, MutableBytes dst, std::string_view path) {
  checked_offset(offset, dst.size(), path);
  std::size_t done = 0;
  while (done < dst.size()) {
    ssize_t n = os().pread(fd,
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
        os().preadv(fd, slots.data(), static_cast<int>(used), static_cast<off_t>(offset + done));
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
      ssize_t n = os().pwrite(
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
    rc = os().fsync(fd);
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) throw_io(errno, "fsync", path);
}

void sync_folder(const std::string& path) {
  FileDescriptor folder(open_retrying(path.c_str(), O_RDONLY | O_DIRECTORY));
  if (!folder) {
    if (errno == ENOENT || errno == ENOTDIR) return;
    throw_io(errno, "open folder", path);
  }
  sync_file(folder.get(), path);
}

std::string parent_of(const std::string& path) {
  std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string make_folders(const std::string& path, bool durable) {
  std::string topmost;
  for (int attempt = 0; attempt < kRaceAttempts; ++attempt) {
    if (os().mkdir(path.c_str(), 0777) == 0) {
      if (durable) sync_folder(parent_of(path));
      return topmost.empty() ? path : topmost;
    }
    int failure = errno;
    if (failure == ENOENT && path != "/" && path != ".") {
      std::string above = make_folders(parent_of(path), durable);
      if (!above.empty()) topmost = std::move(above);
      continue;
    }
    if (failure == EEXIST) {
      struct stat st;
      if (os().stat(path.c_str(), &st) != 0) {
        if (errno == ENOENT) continue;
      } else {
        if (S_ISDIR(st.st_mode)) return topmost;
        failure = ENOTDIR;
      }
    }
    throw_io(failure, "make folder", path);
  }
  throw_io(ENOENT, "make folder", path);
}

void remove_empty_folders(const std::string& path, const std::string& topmost) {
  std::string folder = path;
  while (os().unlinkat(AT_FDCWD, folder.c_str(), AT_REMOVEDIR) == 0 && folder != topmost)
    folder = parent_of(folder);
}

}  // namespace headrace
