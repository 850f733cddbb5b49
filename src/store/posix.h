#pragma once

// The few system calls of the file and zip stores, with EINTR and short counts dealt with and
// failures thrown as `io` errors that keep errno.

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

[[noreturn]] void throw_io(int os_error, std::string_view action, std::string_view path);

int open_retrying(const char* path, int flags, mode_t mode = 0);

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
void sync_folder(const std::string& path);

// How often a write starts again when another thread erases its folders under its hands.
inline constexpr int kRaceAttempts = 200;

// The folder that a path lies in: "/a/b" -> "/a", "/a" -> "/".
std::string parent_of(const std::string& path);
// mkdir -p. With `durable`, the new entries are on the disk when it returns.
void make_folders(const std::string& path, bool durable);

// A file that takes its final name only when it is whole. Removed by the destructor until then.
class TemporaryFile {
 public:
  // Makes it in the folder of `target`, with that folder when it is missing.
  TemporaryFile(std::string target, bool durable);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  // Gives it the target's name, replacing what is there. With `durable` data and name are on the
  // disk afterwards. The descriptor is closed unless `keep_open`. False when somebody has removed
  // the file before it had its name.
  bool publish(bool keep_open = false);
  // Leaves the file to whoever owns it (a child after fork must not remove its parent's).
  void forget();

  // Names that stores neither list nor read: what a writer that was killed has left behind.
  static bool is_temporary(std::string_view name);

 private:
  bool give_name();

  std::string target_;
  std::string path_;  // the target itself while the file has no name
  bool durable_;
  // Without a name (O_TMPFILE) a new object costs one change of the folder in place of two, and a
  // killed writer leaves nothing behind. Measured on ext4, 128 KiB files: 35 us, 55 with a rename.
  bool nameless_ = false;
  bool pending_ = false;  // has a temporary name
  FileDescriptor fd_;
};

}  // namespace headrace
