#include "store/cache_disk.h"

#include <libdeflate.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <system_error>
#include <vector>

#include "headrace/error.h"
#include "store/file.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "hrcache1";
constexpr std::size_t kCrcAt = 8, kNameSizeAt = 12, kNameAt = 16;
// What a writer that was killed has left behind; none takes so long.
constexpr std::chrono::hours kAbandoned{1};

// FNV-1a.
std::string key_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string key;
  for (int shift = 60; shift >= 0; shift -= 4) {
    key += kDigits[hash >> shift & 15];
    if (shift == 56) key += '/';
  }
  return key;
}

std::uint32_t crc_of(std::uint32_t before, ConstBytes bytes) {
  return libdeflate_crc32(before, bytes.data(), bytes.size());
}

std::string fs_path(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  const fs::path path = error ? fs::path() : fs::canonical(directory, error);
  if (error) throw_io(error.value(), "make", directory);
  return path.string();
}

}  // namespace

DiskCache::DiskCache(const std::string& directory, std::uint64_t limit_nbytes)
    : directory_(fs_path(directory)),
      limit_(limit_nbytes),
      files_(make_file_store(directory_.string(), {.read_only = false})) {}

CachedBytes DiskCache::find(const std::string& name) {
  try {
    return load(name);
  } catch (const Error& error) {  // a folder that cannot be read has nothing
    note_failure(error.what());
    return nullptr;
  }
}

CachedBytes DiskCache::load(const std::string& name) {
  const std::string key = key_of(name);
  Buffer file;
  if (!files_->get(key, file)) return nullptr;
  const std::size_t bytes_at = kNameAt + name.size();
  const bool is_whole =
      file.size() >= kNameAt && std::memcmp(file.data(), kMagic.data(), kMagic.size()) == 0 &&
      load_le<std::uint32_t>(file.data() + kCrcAt) == crc_of(0, file.bytes().subspan(kNameSizeAt));
  if (!is_whole) {
    files_->erase(key);
    const ForkLock lock(mutex_);
    ++stats_.damaged_files;
    return nullptr;
  }
  if (load_le<std::uint32_t>(file.data() + kNameSizeAt) != name.size() ||
      std::memcmp(file.data() + kNameAt, name.data(), name.size()) != 0)
    return nullptr;
  std::error_code ignored;  // a file that is gone by now was read all the same
  fs::last_write_time(directory_ / key, fs::file_time_type::clock::now(), ignored);
  auto bytes = std::make_shared<Buffer>();
  bytes->assign(file.bytes().subspan(bytes_at));
  return bytes;
}

void DiskCache::put(const std::string& name, ConstBytes bytes) {
  std::byte head[kNameAt];
  std::memcpy(head, kMagic.data(), kMagic.size());
  store_le(head + kNameSizeAt, static_cast<std::uint32_t>(name.size()));
  const ConstBytes name_bytes = std::as_bytes(std::span(name));
  std::uint32_t crc = crc_of(0, std::span(head).subspan(kNameSizeAt));
  crc = crc_of(crc_of(crc, name_bytes), bytes);
  store_le(head + kCrcAt, crc);
  const ConstBytes parts[] = {head, name_bytes, bytes};
  try {
    files_->set_parts(key_of(name), parts);
    if (is_time_to_sweep(total_size(parts))) sweep();
  } catch (const Error& error) {
    note_failure(error.what());
  }
}

void DiskCache::erase(const std::string& name) { files_->erase(key_of(name)); }

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
  struct File {
    fs::file_time_type used;
    std::uint64_t nbytes;
    fs::path path;
  };
  std::vector<File> files;
  std::uint64_t total = 0;
  until_sweep_ = static_cast<std::int64_t>(limit_ / 16);  // others go on meanwhile
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (fs::recursive_directory_iterator at(directory_, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    if (!at->is_regular_file(gone)) continue;
    File file{at->last_write_time(gone), 0, at->path()};
    file.nbytes = gone ? 0 : at->file_size(gone);
    if (gone) continue;
    if (TemporaryFile::is_temporary(file.path.filename().string())) {
      if (now - file.used > kAbandoned) fs::remove(file.path, gone);
      continue;
    }
    total += file.nbytes;
    files.push_back(std::move(file));
  }
  if (error) note_failure(directory_.string() + ": " + error.message());
  if (total > limit_) {
    std::sort(
        files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
    for (const File& file : files) {
      if (total <= limit_ - limit_ / 8) break;
      std::error_code gone;
      fs::remove(file.path, gone);
      total -= file.nbytes;
    }
  }
  until_sweep_ = static_cast<std::int64_t>(
      std::max<std::uint64_t>(std::min(limit_ / 16, limit_ - std::min(total, limit_)), 1));
}

}  // namespace headrace
