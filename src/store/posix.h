#pragma once

// The few system calls of the file and zip stores, with EINTR and short counts dealt with and
// failures thrown as `io` errors that keep errno.

#include <dirent.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"

namespace headrace {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// A folder that is being listed.
class FolderStream {
 public:
  explicit FolderStream(std::string path);
  FolderStream(FileDescriptor fd, std::string path);
  ~FolderStream();
  FolderStream(const FolderStream&) = delete;
  FolderStream& operator=(const FolderStream&) = delete;

  int fd() const;
  // Valid until the next call; null at the end.
  const dirent* next() const;

 private:
  std::string path_;
  DIR* folder_;
};

// Whether unlinkat() failed because a folder has the name: EISDIR, and EPERM outside of Linux.
// Keeps errno.
bool was_folder(int os_error, int folder, const char* name);

[[noreturn]] void throw_io(int os_error, std::string_view action, std::string_view path);

int open_retrying(const char* path, int flags, mode_t mode = 0);
int openat_retrying(int folder, const char* name, int flags);

// Reads until `dst` is full or the file ends; the number of bytes read.
std::size_t read_at(int fd, std::uint64_t offset, MutableBytes dst, std::string_view path);
// The same into several destinations, IOV_MAX of them a system call.
std::size_t read_at_scattered(int fd,
                              std::uint64_t offset,
                              std::span<const MutableBytes> dsts,
                              std::string_view path);
// Writes the parts one after the other, whole.
void write_at(int fd,
              std::uint64_t offset,
              std::span<const ConstBytes> parts,
              std::string_view path);

void sync_file(int fd, std::string_view path);
// The entries of a folder; of one that was erased meanwhile there are none.
void sync_folder(const std::string& path);
// All that was written below `path`; on Linux, to the whole file system that holds it.
void sync_below(const std::string& path);

// How often a write starts again when another thread erases its folders under its hands.
inline constexpr int kRaceAttempts = 200;

// The folder that a path lies in: "/a/b" -> "/a", "/a" -> "/".
std::string parent_of(const std::string& path);
// mkdir -p. With `durable`, the new entries are on the disk when it returns. Gives the topmost
// folder that was made; "" where all were there.
std::string make_folders(const std::string& path, bool durable);
// Removes the empty folders from `path` up to `topmost`, which make_folders() gave.
void remove_empty_folders(const std::string& path, const std::string& topmost);

}  // namespace headrace
