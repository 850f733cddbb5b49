#pragma once

// Files in memory (tmpfs, hugetlbfs) that devices copy from where they lie, kept for the next read:
//  1. find() is asked for a range of an open file. What was mapped before comes at once, the rest
//  is
//     mapped and its pages are locked, where there is room.
//  2. A file is known by device, inode, size and times. One that is not what it was is mapped anew,
//     and what was kept of it is let go; so it is when its path leads elsewhere, which is looked at
//     now and then.
//  3. When all room is taken, what was not used for longest makes way only for what has been asked
//     for twice since then: of data that are read round and round, and do not fit, a part stays.
//  4. Whoever copies from a window holds it; the pages are unlocked when nobody does.
// An answer of nothing is no error: such bytes come through pinned memory, as all others.

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "device/backend.h"

namespace headrace {

class MappedFiles {
 public:
  // Mapped and locked at a time: large enough for a run of inner chunks, and not much more than a
  // chunk that is read alone. Locking it takes 1.7 ms read-only, 2.9 else, and letting go 0.2 and
  // 0.4 (H100, device-trials.json).
  static constexpr std::size_t kWindow = std::size_t{16} << 20;
  // Less is cheaper to copy together with others, into pinned memory, than by a copy of its own.
  static constexpr std::size_t kLeast = std::size_t{256} << 10;
  // Windows at a time: a process may have 65,530 mappings (vm.max_map_count).
  static constexpr std::size_t kMostWindows = 16384;

  // A stretch of what was asked for, in order.
  struct Part {
    std::shared_ptr<const MappedFile> window;
    std::size_t at = 0;  // in the window
    std::size_t nbytes = 0;
  };

  struct Stats {
    std::size_t windows = 0, nbytes = 0;  // kept now
    std::uint64_t mapped = 0;             // windows, since the process began
    std::uint64_t reused = 0;             // answers from what was kept
    std::uint64_t evicted = 0;            // for others
    std::uint64_t dropped = 0;            // of files that changed or are gone, or when told to
    std::uint64_t refused = 0;            // answers of nothing, of files in memory
    std::string why_not;                  // what the driver or the system said last
  };

  // Of this process. A child of fork begins with nothing, and with its parent's limit.
  static MappedFiles& get();
  static void limit_process(std::size_t most_nbytes);

  explicit MappedFiles(std::size_t most_nbytes = 0) : most_nbytes_(most_nbytes) {}

  // `size`: of the file, as who opened it found it.
  std::vector<Part> find(Backend& devices,
                         int index,
                         int fd,
                         std::uint64_t size,
                         std::uint64_t offset,
                         std::size_t nbytes);
  // What is kept at most, from now on: lets go of what is beyond. 0: nothing.
  void limit(std::size_t most_nbytes);
  Stats stats() const;

 private:
  // Of a file, whatever its bytes.
  struct FileId {
    std::string_view devices;  // the type, by the name of its kernels
    std::uint64_t device = 0, inode = 0;
    auto operator<=>(const FileId&) const = default;
  };
  struct Key {
    FileId file{};
    std::uint64_t offset = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Version {
    std::uint64_t size;
    std::int64_t modified_s, modified_ns, changed_s, changed_ns;
    bool operator==(const Version&) const = default;
  };
  struct Window {
    Key key;
    Version version;
    std::size_t nbytes;
    std::shared_ptr<const MappedFile> file;  // null while a thread maps it
    std::uint64_t used;                      // when, by clock_
    std::string path;
  };
  using Windows = std::list<Window>;  // the last that was used first
  // What nobody holds any more is unlocked without the mutex: the driver may take its time.
  using Dropped = std::vector<std::shared_ptr<const MappedFile>>;

  static Version version_of(const struct stat& st);
  std::shared_ptr<const MappedFile> window(Backend& devices,
                                           int index,
                                           int fd,
                                           const Key& key,
                                           const Version& version,
                                           std::size_t nbytes);
  bool make_room(const Key& key, std::size_t nbytes, Dropped& dropped) REQUIRES(mutex_);
  void drop_others(const FileId& file, const Version& version, Dropped& dropped) REQUIRES(mutex_);
  void look_at_some(Dropped& dropped);
  void drop(Windows::iterator window, Dropped& dropped) REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::size_t most_nbytes_ GUARDED_BY(mutex_);
  Windows windows_ GUARDED_BY(mutex_);
  std::map<Key, Windows::iterator> by_key_ GUARDED_BY(mutex_);
  std::map<Key, std::uint64_t> asked_ GUARDED_BY(mutex_);  // when there was no room
  Key looked_at_ GUARDED_BY(mutex_){};                     // the last whose path was
  std::uint64_t clock_ GUARDED_BY(mutex_) = 0;
  std::int64_t paused_until_ns_ GUARDED_BY(mutex_) = 0;
  Stats stats_ GUARDED_BY(mutex_);
};

// Where the configuration says nothing: a quarter of the host's memory.
std::size_t default_mapped_nbytes();

}  // namespace headrace
