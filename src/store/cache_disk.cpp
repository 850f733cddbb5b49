#include "store/cache_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <optional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/error.h"
#include "store/cache_file.h"
#include "store/store.h"

namespace headrace {
namespace {

constexpr const char* kGenerationFile = "generation";
constexpr const char* kProbeFile = "probe";
// What a writer that was killed has left behind; none takes so long.
constexpr std::time_t kAbandonedSeconds = 3600;

// FNV-1a.
std::string entry_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string entry;
  for (int shift = 60; shift >= 0; shift -= 4) {
    entry += kDigits[hash >> shift & 15];
    if (shift == 56) entry += '/';
  }
  return entry;
}

std::string new_generation() {
  std::random_device random;
  char text[24];
  std::snprintf(text, sizeof text, "%08x%08x\n", random(), random());
  return text;
}

}  // namespace

DiskCache::DiskCache(const std::string& directory,
                     std::uint64_t limit_nbytes,
                     std::size_t max_nbytes)
    : limit_(limit_nbytes), max_nbytes_(max_nbytes), folder_(directory) {
  // A folder that cannot be written to cannot be kept true, either. One that is full can be: to
  // erase takes no room.
  try {
    constexpr std::size_t kMost = 64;
    Buffer text;
    if (folder_.read(kGenerationFile, kMost, text)) generation_ = text_of(text);
    folder_.write(kProbeFile, {});
    folder_.erase(kProbeFile);
  } catch (const Error& error) {
    note_failure(error.what());
    usable_ = error.os_error() == ENOSPC || error.os_error() == EDQUOT;
  }
}

std::string DiskCache::generation() const {
  const ForkLock lock(mutex_);
  return generation_;
}

CachedBytes DiskCache::find(const std::string& name) {
  if (!usable_) return nullptr;
  try {
    return load(generation() + name);
  } catch (const Error& error) {  // a folder that cannot be read has nothing
    note_failure(error.what());
    return nullptr;
  }
}

CachedBytes DiskCache::load(const std::string& name) {
  const std::string entry = entry_of(name);
  const std::size_t most = kCacheFileHead + name.size() + max_nbytes_;
  Buffer file;
  if (!folder_.read(entry, most, file)) return nullptr;
  const std::optional<CacheFile> parsed =
      file.size() > most ? std::nullopt : parse_cache_file(file);
  if (!parsed) {
    folder_.erase(entry);
    const ForkLock lock(mutex_);
    ++stats_.damaged_files;
    return nullptr;
  }
  if (parsed->name != name) return nullptr;
  auto bytes = std::make_shared<Buffer>();
  bytes->assign(parsed->bytes);
  return bytes;
}

void DiskCache::put(const std::string& name, ConstBytes bytes) {
  if (!usable_) return;
  const std::string full = generation() + name;
  const auto head = cache_file_head(full, bytes);
  const ConstBytes parts[] = {head, bytes_of(full), bytes};
  try {
    folder_.write(entry_of(full), parts);
    if (is_time_to_sweep(total_size(parts))) sweep();
  } catch (const Error& error) {
    note_failure(error.what());
  }
}

void DiskCache::erase(const std::string& name) {
  if (!usable_) return;
  try {
    folder_.erase(entry_of(generation() + name));
  } catch (const Error& error) {
    note_failure(error.what());
    disown();
  }
}

void DiskCache::disown() noexcept {
  try {
    const std::string next = new_generation();
    const ConstBytes parts[] = {bytes_of(next)};
    folder_.write(kGenerationFile, parts);
    const ForkLock lock(mutex_);
    generation_ = next;
  } catch (const std::exception& error) {
    usable_ = false;
    note_failure(error.what());
  }
}

DiskCache::Stats DiskCache::stats() const {
  const ForkLock lock(mutex_);
  return stats_;
}

// One thread finds that it is; the first time it is at once.
bool DiskCache::is_time_to_sweep(std::uint64_t added) {
  const auto nbytes = static_cast<std::int64_t>(added);
  const std::int64_t before = until_sweep_.fetch_sub(nbytes);
  return before >= 0 && before < nbytes;
}

void DiskCache::note_failure(const std::string& what) {
  const ForkLock lock(mutex_);
  ++stats_.failures;
  stats_.last_failure = what;
}

// Removes the files that were used longest ago where there is too much. Other processes do so at
// the same time: what is gone is gone.
void DiskCache::sweep() {
  until_sweep_ = static_cast<std::int64_t>(limit_ / 16);  // others go on meanwhile
  std::vector<CacheFolder::File> files = folder_.files();
  std::uint64_t total = 0;
  const std::time_t now = std::time(nullptr);
  std::erase_if(files, [&](const CacheFolder::File& file) {
    if (!file.is_temporary) total += file.nbytes;
    if (file.is_temporary && now - file.used.tv_sec > kAbandonedSeconds) folder_.erase(file.name);
    return file.is_temporary;
  });
  if (total > limit_) {
    std::ranges::sort(files, {}, [](const CacheFolder::File& file) {
      return std::pair(file.used.tv_sec, file.used.tv_nsec);
    });
    for (const CacheFolder::File& file : files) {
      if (total <= limit_ - limit_ / 8) break;
      folder_.erase(file.name);
      total -= file.nbytes;
    }
  }
  until_sweep_ = static_cast<std::int64_t>(
      std::max<std::uint64_t>(std::min(limit_ / 16, limit_ - std::min(total, limit_)), 1));
}

}  // namespace headrace
