#include "device/mapped_files.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/file_times.h"
#include "base/per_process.h"
#include "base/settled.h"
#include "base/system.h"
#include "base/trace.h"
#include "device/mapped_file.h"
#include "headrace/error.h"

namespace headrace {
namespace {

// What the driver has refused it would most likely refuse again, and to ask takes time.
constexpr std::int64_t kPause_ns = 1'000'000'000;
// A copy as short as the rest of a range behind a window's end may be done by the processor, which
// must not read through the mapping.
constexpr std::size_t kLeastPart = std::size_t{64} << 10;
// Files whose paths are looked at each time that another is mapped.
constexpr std::size_t kLooks = 2;
constexpr std::size_t kMostAsked = 1 << 16;

std::atomic<std::size_t> process_limit{0};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// Never destroyed: reads may outlive statics. A child of fork has neither the mappings nor what the
// driver knows of them.
MappedFiles& MappedFiles::get() {
  struct OfProcess {
    MappedFiles files{process_limit.load()};
  };
  static auto* files = new PerProcess<OfProcess>;
  return files->get().files;
}

void MappedFiles::limit_process(std::size_t most_nbytes) {
  process_limit = most_nbytes;
  get().limit(most_nbytes);
}

MappedFiles::Version MappedFiles::version_of(const struct stat& st) {
  return {static_cast<std::uint64_t>(st.st_size),
          modified_at(st).tv_sec,
          modified_at(st).tv_nsec,
          changed_at(st).tv_sec,
          changed_at(st).tv_nsec};
}

std::vector<MappedFiles::Part> MappedFiles::find(Backend& devices,
                                                 int index,
                                                 int fd,
                                                 std::uint64_t size,
                                                 std::uint64_t offset,
                                                 std::size_t nbytes) {
  const std::size_t page = fd < 0 || nbytes < kLeast ? 0 : page_nbytes_in_memory(fd);
  if (page == 0) return {};
  struct stat st {};
  if (os().fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return {};
  const Version version = version_of(st);
  // What is no more as it was found says so when it is read.
  const bool within = version.size == size && offset <= size && nbytes <= size - offset;
  if (!within || !is_settled(st)) return {};
  const FileId file{devices.own_name(), st.st_dev, st.st_ino};
  const std::size_t length = std::max(kWindow, page);
  std::vector<Part> parts;
  for (std::uint64_t at = offset; at < offset + nbytes;) {
    const std::uint64_t begin = at / length * length;
    const std::uint64_t end = std::min<std::uint64_t>(begin + length, size);
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(end, offset + nbytes) - at);
    if (n < kLeastPart) return {};
    // The last page whole: of hugetlbfs nothing less can be mapped.
    const auto mapped = static_cast<std::size_t>((end - begin + page - 1) / page * page);
    auto window = this->window(devices, index, fd, {file, begin}, version, mapped);
    if (!window) return {};
    parts.push_back({std::move(window), static_cast<std::size_t>(at - begin), n});
    at += n;
  }
  return parts;
}

std::shared_ptr<const MappedFile> MappedFiles::window(Backend& devices,
                                                      int index,
                                                      int fd,
                                                      const Key& key,
                                                      const Version& version,
                                                      std::size_t nbytes) {
  Dropped dropped;
  {
    const MutexLock lock(mutex_);
    const auto known = by_key_.find(key);
    if (known != by_key_.end() && known->second->version == version) {
      const Windows::iterator found = known->second;
      found->used = ++clock_;
      windows_.splice(windows_.begin(), windows_, found);
      ++(found->file ? stats_.reused : stats_.refused);  // not yet: by another thread
      return found->file;
    }
    drop_others(key.file, version, dropped);
    if (now_ns() < paused_until_ns_ || !make_room(key, nbytes, dropped)) {
      ++stats_.refused;
      return nullptr;
    }
    windows_.push_front({key, version, nbytes, nullptr, ++clock_, {}});
    by_key_[key] = windows_.begin();
    stats_.nbytes += nbytes;
  }
  std::shared_ptr<const MappedFile> made;
  std::string path, why_not;
  bool is_short = false;
  try {
    const Span span("map", nbytes);
    path = path_of_open(fd);
    made = devices.map_file(index, fd, key.offset, nbytes);
  } catch (const Error& error) {
    why_not = error.what();
    is_short = error.code() == ErrorCode::out_of_memory;
  }
  {
    const MutexLock lock(mutex_);
    const auto known = by_key_.find(key);
    // Another thread may have found the file changed meanwhile.
    const bool kept =
        known != by_key_.end() && known->second->version == version && !known->second->file;
    if (made) {
      ++stats_.mapped;
      if (kept) {
        known->second->file = made;
        known->second->path = std::move(path);
      }
    } else {
      if (kept) drop(known->second, dropped);
      ++stats_.refused;
      stats_.why_not = why_not;
      paused_until_ns_ = now_ns() + kPause_ns;
      // Others want the memory, too.
      for (const std::size_t half = stats_.nbytes / 2; is_short && stats_.nbytes > half;) {
        drop(std::prev(windows_.end()), dropped);
        ++stats_.evicted;
      }
    }
  }
  if (made) look_at_some(dropped);
  return made;
}

bool MappedFiles::make_room(const Key& key, std::size_t nbytes, Dropped& dropped) {
  if (nbytes > most_nbytes_) return false;
  const auto has_room = [&]() REQUIRES(mutex_) {
    return stats_.nbytes + nbytes <= most_nbytes_ && windows_.size() < kMostWindows;
  };
  if (has_room()) return true;
  const auto asked = asked_.find(key);
  const std::uint64_t before = asked == asked_.end() ? 0 : asked->second;
  while (!has_room() && windows_.back().used < before) {
    drop(std::prev(windows_.end()), dropped);
    ++stats_.evicted;
  }
  if (has_room()) {
    asked_.erase(key);
    return true;
  }
  if (asked_.size() >= kMostAsked) asked_.clear();
  asked_[key] = ++clock_;
  return false;
}

// Of the file as it was.
void MappedFiles::drop_others(const FileId& file, const Version& version, Dropped& dropped) {
  for (auto at = by_key_.lower_bound({file, 0}); at != by_key_.end() && at->first.file == file;) {
    const Windows::iterator window = (at++)->second;
    if (window->version == version) continue;
    drop(window, dropped);
    ++stats_.dropped;
  }
}

// Each in its turn: what was replaced or removed is asked for by nobody any more, and its memory is
// not given back before.
void MappedFiles::look_at_some(Dropped& dropped) {
  struct Look {
    FileId file;
    Version version;
    std::string path;
  };
  std::vector<Look> looks;
  {
    const MutexLock lock(mutex_);
    auto at = by_key_.upper_bound(looked_at_);
    for (std::size_t i = 0; i < std::min(kLooks, by_key_.size()); ++i, ++at) {
      if (at == by_key_.end()) at = by_key_.begin();
      looked_at_ = at->first;
      const Window& window = *at->second;
      if (window.file && !window.path.empty())
        looks.push_back({window.key.file, window.version, window.path});
    }
  }
  for (const Look& look : looks) {
    struct stat st {};
    if (os().stat(look.path.c_str(), &st) == 0 && st.st_dev == look.file.device &&
        st.st_ino == look.file.inode && version_of(st) == look.version)
      continue;
    const MutexLock lock(mutex_);
    for (auto at = by_key_.lower_bound({look.file, 0});
         at != by_key_.end() && at->first.file == look.file;) {
      const Windows::iterator window = (at++)->second;
      if (window->version != look.version || !window->file) continue;
      drop(window, dropped);
      ++stats_.dropped;
    }
  }
}

void MappedFiles::drop(Windows::iterator window, Dropped& dropped) {
  stats_.nbytes -= window->nbytes;
  if (window->file) dropped.push_back(std::move(window->file));
  by_key_.erase(window->key);
  windows_.erase(window);
}

void MappedFiles::limit(std::size_t most_nbytes) {
  Dropped dropped;
  const MutexLock lock(mutex_);
  most_nbytes_ = most_nbytes;
  while (stats_.nbytes > most_nbytes) {
    drop(std::prev(windows_.end()), dropped);
    ++stats_.dropped;
  }
  if (most_nbytes > 0) return;
  asked_.clear();
  paused_until_ns_ = 0;
}

MappedFiles::Stats MappedFiles::stats() const {
  const MutexLock lock(mutex_);
  Stats stats = stats_;
  stats.windows = windows_.size();
  return stats;
}

std::size_t default_mapped_nbytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return 0;
  return static_cast<std::size_t>(pages) / 4 * static_cast<std::size_t>(page);
}

}  // namespace headrace
