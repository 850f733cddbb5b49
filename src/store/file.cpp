#include "store/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "base/checked.h"
#include "base/file_times.h"
#include "base/system.h"
#include "base/trace.h"
#include "headrace/error.h"
#include "store/async.h"
#include "store/direct.h"
#include "store/read_ahead.h"
#include "store/url.h"

namespace headrace {

namespace {

constexpr std::size_t kDirectWindow = std::size_t{1} << 20;

std::size_t align_down(std::size_t v) { return v & ~(kDirectAlignment - 1); }
bool is_aligned(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % kDirectAlignment == 0;
}

}  // namespace

std::uint64_t version_of(const struct stat& st) {
  std::uint64_t hash = 0;
  auto mix = [&](auto value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
  };
  mix(st.st_dev);
  mix(st.st_ino);
  mix(st.st_size);
  mix(modified_at(st).tv_sec);
  mix(modified_at(st).tv_nsec);
  mix(changed_at(st).tv_sec);
  mix(changed_at(st).tv_nsec);
  return hash | 1;  // 0 means unknown
}

std::optional<WrittenAt> written_of(const timespec& modified, const timespec& changed) {
  const auto a = written_time(modified.tv_sec, modified.tv_nsec);
  const auto b = written_time(changed.tv_sec, changed.tv_nsec);
  if (!a || !b) return std::nullopt;
  const auto [earliest, latest] = std::minmax(*a, *b);
  // Times are those of the kernel's last tick, or, on file systems that keep no fractions, of the
  // last second or two.
  constexpr std::chrono::milliseconds kTick{10}, kWithoutFractions{2000};
  const bool has_fraction =
      latest.time_since_epoch() % std::chrono::seconds(1) != std::chrono::nanoseconds(0);
  const auto step = has_fraction ? kTick : kWithoutFractions;
  if (latest > WrittenAt::Time::max() - step) return std::nullopt;
  return WrittenAt{earliest, latest + step};
}

namespace {

class FileReader : public ObjectReader {
 public:
  FileReader(FileDescriptor fd, const struct stat& st, std::string path)
      : fd_(std::move(fd)),
        size_(static_cast<std::uint64_t>(st.st_size)),
        version_(version_of(st)),
        modified_(modified_at(st)),
        changed_(changed_at(st)),
        path_(std::move(path)) {}

  std::uint64_t size() const override { return size_; }
  std::uint64_t version() const override { return version_; }
  std::optional<WrittenAt> written() const override { return written_of(modified_, changed_); }
  // A file that was replaced stays what it was; only its count of names changes.
  bool unchanged() const override {
    struct stat st;
    if (os().fstat(fd_.get(), &st) != 0) throw_io(errno, "stat", path_);
    return static_cast<std::uint64_t>(st.st_size) == size_ &&
           modified_at(st).tv_sec == modified_.tv_sec &&
           modified_at(st).tv_nsec == modified_.tv_nsec;
  }

  void read(std::uint64_t offset, MutableBytes dst) const override {
    const Span span("fetch", dst.size());
    check_object_range(path_, size_, offset, dst.size());
    std::size_t n = read_at(fd_.get(), offset, dst, path_);
    if (n != dst.size()) throw_short(path_, dst.size(), n);
  }

  void read_scattered(std::uint64_t offset, std::span<const MutableBytes> dsts) const override {
    const std::uint64_t total = total_size(dsts);
    const Span span("fetch", total);
    check_object_range(path_, size_, offset, total);
    std::size_t n = read_at_scattered(fd_.get(), offset, dsts, path_);
    if (n != total) throw_short(path_, total, n);
  }

  void expect_parts() const override { stop_reading_ahead(fd_.get()); }
  void expect(const ByteRange& part) const override {
    read_ahead(fd_.get(), part.offset, part.nbytes);
  }

  int file() const override { return fd_.get(); }

  ObjectFile open_direct() const override {
    FileDescriptor fd(open_direct_again(fd_.get()));
    if (!fd) {
      const int os_error = errno;
      throw Error(
          ErrorCode::unsupported,
          path_ + ": cannot be opened with O_DIRECT: " + std::generic_category().message(os_error),
          os_error);
    }
    return {std::move(fd), path_};
  }

 protected:
  FileDescriptor fd_;
  std::uint64_t size_;
  std::uint64_t version_;
  timespec modified_;
  timespec changed_;
  std::string path_;
};

// Reads whole blocks, through a window where the caller's memory or offset does not fit them.
class DirectReader : public FileReader {
 public:
  using FileReader::FileReader;

  int file() const override { return -1; }
  void expect_parts() const override {}
  void expect(const ByteRange&) const override {}

  void read(std::uint64_t offset, MutableBytes dst) const override {
    check_object_range(path_, size_, offset, dst.size());
    const std::size_t within = offset % kDirectAlignment;
    const std::size_t head = std::min(dst.size(), within == 0 ? 0 : kDirectAlignment - within);
    const std::size_t whole = align_down(dst.size() - head);
    // Memory that lies to the blocks as the bytes in the file do: only what begins and ends within
    // a block is copied.
    if (is_aligned(dst.data() + head) && (head == 0 || whole >= kDirectWindow / 4)) {
      if (head > 0) read_copied(offset, dst.first(head));
      std::size_t n = read_at(fd_.get(), offset + head, dst.subspan(head, whole), path_);
      if (n != whole) throw_short(path_, whole, n);
      offset += head + whole;
      dst = dst.subspan(head + whole);
    }
    if (!dst.empty()) read_copied(offset, dst);
  }

  void read_copied(std::uint64_t offset, MutableBytes dst) const {
    read_scattered(offset, {&dst, 1});
  }

  void read_scattered(std::uint64_t offset, std::span<const MutableBytes> dsts) const override {
    std::uint64_t left = total_size(dsts);
    check_object_range(path_, size_, offset, left);
    Buffer window;
    std::size_t next = 0;
    std::size_t filled = 0;  // of the next destination
    while (left > 0) {
      const std::size_t before = offset % kDirectAlignment;
      const std::size_t take = std::min<std::uint64_t>(left, kDirectWindow - before);
      MutableBytes place = direct_place(window, before + take);
      std::size_t n = read_at(fd_.get(), offset - before, place, path_);
      if (n < before + take) throw_short(path_, before + take, n);
      for (ConstBytes bytes = place.subspan(before, take); !bytes.empty();) {
        MutableBytes dst = dsts[next].subspan(filled);
        const std::size_t step = std::min(dst.size(), bytes.size());
        if (step > 0) std::memcpy(dst.data(), bytes.data(), step);
        bytes = bytes.subspan(step);
        filled += step;
        if (filled == dsts[next].size()) {
          ++next;
          filled = 0;
        }
      }
      offset += take;
      left -= take;
    }
  }
};

}  // namespace

bool names_temporary(std::string_view key) {
  std::size_t slash = key.rfind('/');
  return TemporaryFile::is_temporary(slash == std::string_view::npos ? key : key.substr(slash + 1));
}

void throw_short(const std::string& path, std::uint64_t wanted, std::uint64_t found) {
  throw Error(ErrorCode::io,
              path + ": became shorter while it was read: wanted " + std::to_string(wanted) +
                  " bytes, got " + std::to_string(found));
}

bool means_missing(int os_error) { return os_error == ENOENT || os_error == ENOTDIR; }

namespace {

// An object that is a link is there, whatever became of what it leads to: its chunk is no missing
// one.
void refuse_dangling(const std::string& path) {
  struct stat st;
  if (os().lstat(path.c_str(), &st) != 0 || !S_ISLNK(st.st_mode)) return;
  throw Error(ErrorCode::io, path + ": is a link to what is not there");
}

}  // namespace

bool open_found_nothing(int os_error, const std::string& path, bool direct) {
  if (means_missing(os_error)) {
    refuse_dangling(path);
    return true;
  }
  if (!direct || os_error != EINVAL) return false;
  struct stat st;
  bool missing = os().stat(path.c_str(), &st) == 0 ? !object_size(st, path) : means_missing(errno);
  errno = os_error;
  return missing;
}

std::optional<std::uint64_t> object_size(const struct stat& st, std::string_view path) {
  if (S_ISREG(st.st_mode)) return static_cast<std::uint64_t>(st.st_size);
  if (S_ISDIR(st.st_mode)) return std::nullopt;
  const char* kind = S_ISFIFO(st.st_mode)  ? "a pipe"
                     : S_ISCHR(st.st_mode) ? "a character device"
                     : S_ISBLK(st.st_mode) ? "a block device"
                                           : "a socket";
  throw Error(ErrorCode::io, std::string(path) + ": is " + kind + ", not a regular file", EINVAL);
}

void throw_open_failure(int os_error, const std::string& path, bool direct) {
  if (direct && os_error == EINVAL) {
    throw Error(ErrorCode::unsupported,
                path + ": the file system refuses O_DIRECT; open the store without direct=true",
                os_error);
  }
  // open() of a socket fails with ENXIO before fstat can tell what it is.
  if (os_error == ENXIO) {
    throw Error(ErrorCode::io, path + ": is a socket or device, not a regular file", os_error);
  }
  throw_io(os_error, "open", path);
}

MutableBytes direct_place(Buffer& into, std::uint64_t nbytes) {
  auto size = checked_cast<std::size_t>(nbytes, "object size");
  std::size_t padded = align_down(checked_add(size, kDirectAlignment - 1, "object size"));
  into.resize(checked_add(padded, kDirectAlignment, "object size"));
  std::size_t misfit = reinterpret_cast<std::uintptr_t>(into.data()) % kDirectAlignment;
  return into.bytes().subspan(misfit == 0 ? 0 : kDirectAlignment - misfit, padded);
}

void direct_settle(Buffer& into, MutableBytes place, std::uint64_t nbytes) {
  auto size = static_cast<std::size_t>(nbytes);
  if (size != 0 && place.data() != into.data()) std::memmove(into.data(), place.data(), size);
  into.resize_keep(size);
}

FileStore::FileStore(std::string root, FileOptions options)
    : root_(std::move(root)), options_(options) {}

std::string FileStore::url() const { return "file://" + percent_encode_path(root_); }

std::string FileStore::path_of(std::string_view key) const {
  check_key(key);
  std::string path;
  path.reserve(root_.size() + 1 + key.size());
  path += root_;
  if (path.back() != '/') path += '/';
  path += key;
  return path;
}

// O_NONBLOCK and O_NOCTTY: a pipe or terminal in the place of an object must not hang or attach.
int FileStore::open_flags() const {
  return O_RDONLY | O_NONBLOCK | O_NOCTTY | (options_.direct ? direct_flag() : 0);
}

// open, fstat, read, close. A read up to the buffer's capacity instead of fstat would save 0.5 us
// of 3, and read from a device before knowing that it is one.
bool FileStore::get(std::string_view key, Buffer& into) {
  return get_within(key, into, UINT64_MAX);
}

bool FileStore::get_within(std::string_view key, Buffer& into, std::uint64_t max_nbytes) {
  const std::string path = path_of(key);
  if (names_temporary(key)) return false;
  FileDescriptor fd(open_retrying(path.c_str(), open_flags()));
  if (!fd) {
    if (open_found_nothing(errno, path, options_.direct)) return false;
    throw_open_failure(errno, path, options_.direct);
  }
  struct stat st;
  if (os().fstat(fd.get(), &st) != 0) throw_io(errno, "stat", path);
  std::optional<std::uint64_t> size = object_size(st, path);
  if (!size) return false;
  check_object_nbytes(path, *size, max_nbytes);

  if (options_.direct) {
    MutableBytes place = direct_place(into, *size);
    std::size_t n = read_at(fd.get(), 0, place, path);
    if (n < *size) throw_short(path, *size, n);
    direct_settle(into, place, *size);
    return true;
  }
  into.resize(checked_cast<std::size_t>(*size, "object size"));
  std::size_t n = read_at(fd.get(), 0, into.bytes(), path);
  if (n != *size) throw_short(path, *size, n);
  return true;
}

std::unique_ptr<ObjectReader> FileStore::open(std::string_view key) {
  std::string path = path_of(key);
  if (names_temporary(key)) return nullptr;
  FileDescriptor fd(open_retrying(path.c_str(), open_flags()));
  if (!fd) {
    if (open_found_nothing(errno, path, options_.direct)) return nullptr;
    throw_open_failure(errno, path, options_.direct);
  }
  struct stat st;
  if (os().fstat(fd.get(), &st) != 0) throw_io(errno, "stat", path);
  if (!object_size(st, path)) return nullptr;  // a folder, of other keys
  if (options_.direct) return std::make_unique<DirectReader>(std::move(fd), st, std::move(path));
  return std::make_unique<FileReader>(std::move(fd), st, std::move(path));
}

bool FileStore::is_cold(std::string_view key) {
  if (options_.direct || names_temporary(key)) return false;
  const FileDescriptor fd(open_retrying(path_of(key).c_str(), open_flags()));
  struct stat st;
  return fd && os().fstat(fd.get(), &st) == 0 && S_ISREG(st.st_mode) && waits_for_disk(fd.get());
}

namespace {

// What is not there, or no file, is nothing to be said here: who reads it will be told.
void read_file_ahead(const std::string& path, int flags, const Extent& part) {
  const FileDescriptor fd(open_retrying(path.c_str(), flags));
  struct stat st;
  if (!fd || os().fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return;
  const auto size = static_cast<std::uint64_t>(st.st_size);
  const std::uint64_t begin = part.kind == Extent::Kind::range ? std::min(part.offset, size) : 0;
  const std::uint64_t nbytes =
      part.kind == Extent::Kind::whole ? size : std::min(part.nbytes, size - begin);
  read_ahead(fd.get(), part.kind == Extent::Kind::suffix ? size - nbytes : begin, nbytes);
}

}  // namespace

void FileStore::expect(std::vector<std::string> keys, const Extent& part) {
  for (std::string& key : keys) key = path_of(key);
  try {
    ahead_.run([paths = std::move(keys), part, flags = open_flags()] {
      for (const std::string& path : paths) read_file_ahead(path, flags, part);
    });
  } catch (const std::exception&) {
    return;  // no thread: the reads find what they want by themselves
  }
}

bool FileStore::exists(std::string_view key) {
  const std::string path = path_of(key);
  if (names_temporary(key)) return false;
  struct stat st;
  if (os().stat(path.c_str(), &st) != 0) {
    if (!means_missing(errno)) throw_io(errno, "stat", path);
    refuse_dangling(path);
    return false;
  }
  return object_size(st, path).has_value();
}

void FileStore::set(std::string_view key, ConstBytes bytes) { set_parts(key, {&bytes, 1}); }

void FileStore::set_parts(std::string_view key, std::span<const ConstBytes> parts) {
  publish(key, parts, false);
}

std::string FileStore::set_if(std::string_view key,
                              std::span<const ConstBytes> parts,
                              const WriteCondition& condition) {
  if (condition.kind != WriteCondition::Kind::missing) {
    return StoreDriver::set_if(key, parts, condition);
  }
  if (!publish(key, parts, true)) throw_exists(path_of(key));
  return {};
}

bool FileStore::publish(std::string_view key, std::span<const ConstBytes> parts, bool is_new) {
  const Span span("store", total_size(parts));
  if (options_.read_only) throw_read_only(url());
  const std::string path = path_of(key);
  if (names_temporary(key)) {
    throw Error(ErrorCode::invalid_argument,
                "key \"" + std::string(key) + "\": such names are kept for temporary files");
  }
  const bool durable = is_durable(key);
  if (durable) make_folders(parent_of(path), false);  // they are synced together below
  // Another thread that erases the prefix may take the temporary file away, as it does any stale
  // one.
  for (int attempt = 0; attempt < kRaceAttempts; ++attempt) {
    TemporaryFile file(path, durable);
    write_at(file.fd(), 0, parts, path);
    const auto published = is_new ? file.publish_new() : std::optional(file.publish());
    if (!published) return false;
    if (!*published) continue;
    if (durable) sync_folders_of(key);
    return true;
  }
  throw_io(ENOENT, "write", path);
}

// The notes of a rechunk always: it goes on from what they say.
bool FileStore::is_durable(std::string_view key) const {
  if (key.ends_with(".rechunk/progress.json") || key.ends_with(".rechunk.json")) return true;
  if (options_.durability == Durability::everything) return true;
  return options_.durability == Durability::metadata && names_metadata(key);
}

void FileStore::sync_folders_of(std::string_view key) {
  constexpr std::size_t kMostKnown = 1 << 16;
  for (std::size_t end = key.rfind('/'); end != std::string_view::npos; end = key.rfind('/')) {
    key = key.substr(0, end);
    const std::string folder = path_of(key);
    FolderId id{};
    bool is_unique = false;
    if (find_folder_id(folder.c_str(), id, is_unique) != 0) {
      if (means_missing(errno)) continue;  // erased meanwhile: no entry to sync
      throw_io(errno, "stat", folder);
    }
    {
      ForkLock lock(mutex_);
      const auto known = settled_.find(folder);
      if (known != settled_.end() && known->second == id) continue;
    }
    sync_folder(parent_of(folder));
    // Where the system does not say when it was made, the next write syncs it again.
    if (!is_unique) continue;
    ForkLock lock(mutex_);
    if (settled_.size() >= kMostKnown) settled_.clear();
    settled_[folder] = id;
  }
}

// Before folders are erased: one may be made anew within a tick of the clock.
void FileStore::forget_settled() {
  ForkLock lock(mutex_);
  settled_.clear();
}

void FileStore::sync() {
  if (!options_.read_only) sync_below(root_);
}

void FileStore::erase(std::string_view key) {
  if (options_.read_only) throw_read_only(url());
  const std::string path = path_of(key);
  if (os().unlink(path.c_str()) != 0) {
    // A folder: a prefix of other keys, so there is no object of this name.
    if (means_missing(errno) || was_folder(errno, AT_FDCWD, path.c_str())) return;
    throw_io(errno, "erase", path);
  }
  if (is_durable(key)) sync_folder(parent_of(path));
}

void FileStore::made_below(std::string topmost) {
  const ForkLock lock(mutex_);
  topmost_made_ = std::move(topmost);
}

void FileStore::discard() {
  std::string topmost;
  {
    const ForkLock lock(mutex_);
    topmost.swap(topmost_made_);
  }
  if (!topmost.empty()) remove_empty_folders(root_, topmost);
}

std::unique_ptr<FileStore> make_file_store(std::string root, FileOptions options) {
  return std::make_unique<FileStore>(std::move(root), options);
}

}  // namespace headrace
