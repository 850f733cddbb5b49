#pragma once

// The folder of a disk cache: DIRECTORY/headrace-cache-1, marked by a file as bford.info/cachedir
// has it, so that backups pass it over. Nothing else in DIRECTORY is looked at, and below the
// folder only what has the exact name of an entry ("3f/0123456789abcd") or of a temporary file of
// ours in the place of one. No symbolic link is followed: all is opened from the folder's
// descriptor, so the folder stays the one that was looked at when it was opened.
//
// What lies in it is served as data. So it is made for its owner alone (0700), and refused when
// another user owns it, or group or others may write to it.

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "store/posix.h"

namespace headrace {

// `invalid_argument` when the folder of copies would lie in the folder that the store is, by any of
// its names.
void check_apart(const std::string& directory, const std::string& store_url);

class CacheFolder {
 public:
  static constexpr std::string_view kName = "headrace-cache-1";

  // Makes both folders when they are missing. `invalid_argument` when something of that name is
  // there that is no cache of ours, `permission_denied` when others may write to it.
  explicit CacheFolder(const std::string& directory);

  const std::string& path() const { return path_; }

  // "3f/0123456789abcd" is an entry; any other name is a file directly in the folder.
  //
  // False: there is none. A file of more than `max_nbytes` gives so many and one more. Notes that
  // it was used.
  bool read(std::string_view name, std::size_t max_nbytes, Buffer& into) const;
  // Whole, or not at all.
  void write(std::string_view name, std::span<const ConstBytes> parts) const;
  // Of a missing one: nothing happens.
  void erase(std::string_view name) const;

  struct File {
    std::string name;
    timespec used{};
    std::uint64_t nbytes = 0;
    bool is_temporary = false;
  };
  // Entries, and temporary files in their places.
  std::vector<File> files() const;

 private:
  // Of the folder that a name is in, and the name there; no descriptor when there is no folder.
  FileDescriptor open_parent(std::string_view& name, bool make) const;

  std::string path_;
  FileDescriptor folder_;
};

}  // namespace headrace
