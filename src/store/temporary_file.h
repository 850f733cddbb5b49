#pragma once

// A file that takes its final name only when it is whole.
//
// Where the file system has it (O_TMPFILE), it has no name until then: a new object costs one
// change of the folder in place of two, and a killed writer leaves nothing behind. Measured on
// ext4, 128 KiB files: 35 us, 55 with a rename. Elsewhere, and where an object is replaced, it goes
// by a temporary name that tells whether its writer is gone (temporary_name.h).

#include <optional>
#include <string>
#include <string_view>

#include "store/posix.h"

namespace headrace {

class TemporaryFile {
 public:
  // Makes it in the folder of `target`, with that folder when it is missing.
  TemporaryFile(std::string target, bool durable);
  // Removes it, unless it was published, or a fork lies between: it is the parent's then.
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int fd() const { return fd_.get(); }
  // For messages: the target while the file has no name.
  const std::string& path() const { return path_; }
  // Gives it the target's name, replacing what is there. With `durable` data and name are on the
  // disk afterwards. The descriptor is closed unless `keep_open`. False when somebody has removed
  // the file before it had its name, or the file system has no way to name it: start again.
  bool publish(bool keep_open = false);

  // The same where nothing has that name; nothing when something has.
  std::optional<bool> publish_new(bool keep_open = false);

  // Names that stores neither list nor read: what a writer that was killed has left behind.
  static bool is_temporary(std::string_view name);

 private:
  bool give_name();
  void close_published();

  std::string target_;
  std::string path_;
  bool durable_;
  bool nameless_ = false;
  bool pending_ = false;  // has a temporary name
  unsigned generation_;   // of forks
  FileDescriptor fd_;
  FileDescriptor hold_;  // temporary_name.h
};

}  // namespace headrace
