#include "conformance/power_cut.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/system.h"

namespace headrace::test {

namespace fs = std::filesystem;

namespace {

using FileId = std::pair<dev_t, ino_t>;

// One call that came to pass. Numbers stand for files and folders: an inode may come again.
struct Change {
  enum Kind { write, truncate, sync, sync_all, add, remove } kind;
  std::size_t node = 0;  // of write, truncate and sync; the folder of add and remove
  std::string name{};    // of the entry
  std::size_t child = 0;
  std::uint64_t offset = 0;
  std::string bytes{};
};

struct File {
  std::string bytes;
  std::string synced;
};

// An entry is a child's number; 0 stands for none.
struct Folder {
  std::map<std::string, std::vector<std::size_t>> entries;  // the synced one, then those since
};

}  // namespace

struct PowerCut::Recorder {
  std::string root;
  std::mutex mutex;
  std::map<FileId, std::size_t> numbers;  // of what exists
  std::vector<bool> is_folder{false};     // by number; 0 is nobody
  std::map<std::size_t, std::string> first_bytes;
  std::map<std::size_t, std::map<std::string, std::size_t>> first_entries;
  std::vector<Change> changes;
  const SystemCalls* before = nullptr;

  static Recorder* current;

  std::size_t number_of(const struct stat& st) {
    const auto [at, is_new] = numbers.try_emplace({st.st_dev, st.st_ino}, is_folder.size());
    if (is_new) is_folder.push_back(S_ISDIR(st.st_mode));
    return at->second;
  }
  std::size_t number_at(const std::string& path) {
    struct stat st;
    return ::lstat(path.c_str(), &st) == 0 ? number_of(st) : 0;
  }
  std::size_t number_of_fd(int fd) {
    struct stat st;
    return ::fstat(fd, &st) == 0 ? number_of(st) : 0;
  }

  // Of what was made just now. Its inode may have been another's, which nobody saw go.
  std::size_t new_number_of(int fd) {
    struct stat st;
    if (::fstat(fd, &st) != 0) return 0;
    numbers.erase({st.st_dev, st.st_ino});
    return number_of(st);
  }

  bool is_inside(std::string_view path) const {
    return path == root || (path.starts_with(root) && path[root.size()] == '/');
  }
  static std::string path_of(int fd) {
    char path[PATH_MAX];
    const ssize_t n =
        ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
    return n < 0 ? "" : std::string(path, static_cast<std::size_t>(n));
  }
  // Files without a name are shown in the folder that they were opened in.
  bool is_inside(int fd) const { return is_inside(path_of(fd)); }

  void add(const std::string& path, std::size_t child) {
    const fs::path at(path);
    changes.push_back({.kind = Change::add,
                       .node = number_at(at.parent_path()),
                       .name = at.filename(),
                       .child = child});
  }
  void remove(const std::string& path) {
    const fs::path at(path);
    changes.push_back(
        {.kind = Change::remove, .node = number_at(at.parent_path()), .name = at.filename()});
  }

  void take_as_synced(const fs::path& folder) {
    const std::size_t number = number_at(folder);
    first_entries[number];
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::size_t child = number_at(entry.path());
      first_entries[number][entry.path().filename()] = child;
      if (entry.is_directory()) {
        take_as_synced(entry.path());
      } else {
        std::ifstream in(entry.path(), std::ios::binary);
        first_bytes[child] = std::string(std::istreambuf_iterator<char>(in), {});
      }
    }
  }
};

PowerCut::Recorder* PowerCut::Recorder::current = nullptr;

namespace {

const SystemCalls& real() { return real_system_calls(); }

}  // namespace

PowerCut::PowerCut(const std::string& root) : recorder_(std::make_unique<Recorder>()) {
  recorder_->root = root;
  recorder_->take_as_synced(root);
  Recorder::current = recorder_.get();
  static const SystemCalls calls = [] {
    SystemCalls recording = real();
    recording.open = [](const char* path, int flags, mode_t mode) {
      Recorder& r = *Recorder::current;
      std::lock_guard lock(r.mutex);
      const bool makes = (flags & O_CREAT) != 0 && r.is_inside(path) && ::access(path, F_OK) != 0;
      const int fd = real().open(path, flags, mode);
      if (fd >= 0 && (makes || (flags & O_TMPFILE) == O_TMPFILE)) {
        const std::size_t number = r.new_number_of(fd);
        if (makes) r.add(path, number);
      }
      return fd;
    };
    recording.pwrite = [](int fd, const void* from, std::size_t nbytes, off_t offset) {
      Recorder& r = *Recorder::current;
      std::lock_guard lock(r.mutex);
      const ssize_t n = real().pwrite(fd, from, nbytes, offset);
      if (n > 0 && r.is_inside(fd)) {
        r.changes.push_back(
            {.kind = Change::write,
             .node = r.number_of_fd(fd),
             .offset = static_cast<std::uint64_t>(offset),
             .bytes = std::string(static_cast<const char*>(from), static_cast<std::size_t>(n))});
      }
      return n;
    };
    recording.fsync = [](int fd) {
      Recorder& r = *Recorder::current;
      std::lock_guard lock(r.mutex);
      if (r.is_inside(fd)) r.changes.push_back({.kind = Change::sync, .node = r.number_of_fd(fd)});
      return 0;
    };
    recording.syncfs = [](int fd) {
      Recorder& r = *Recorder::current;
      std::lock_guard lock(r.mutex);
      if (r.is_inside(fd)) r.changes.push_back({.kind = Change::sync_all});
      return 0;
    };
    recording.mkdir = [](const char* path, mode_t mode) {
      Recorder& r = *Recorder::current;
      std::lock_guard lock(r.mutex);
      const int result = real().mkdir(path, mode);
      if (result == 0 && r.is_inside(path)) {
        struct stat st;
        if (::lstat(path, &st) == 0) r.numbers.erase({st.st_dev, st.st_ino});
        r.add(path, r.number_at(path));
      }
      return result;
    };
    recording.linkat = [](int from_folder, const char* from, int folder, const char* to, int how) {
      Recorder& r = *Recorder::current;
      std::lock_guard lock(r.mutex);
      const int result = real().linkat(from_folder, from, folder, to, how);
      if (result == 0 && r.is_inside(to)) r.add(to, r.number_at(to));
      return result;
    };
    recording.rename = [](const char* from, const char* to) {
      Recorder& r = *Recorder::current;
      std::lock_guard lock(r.mutex);
      const int result = real().rename(from, to);
      if (result == 0 && r.is_inside(to)) {
        r.add(to, r.number_at(to));
        r.remove(from);
      }
      return result;
    };
    // An inode that is gone may come again as another file.
    recording.unlink = [](const char* path) {
      Recorder& r = *Recorder::current;
      std::lock_guard lock(r.mutex);
      struct stat st;
      const bool known = ::lstat(path, &st) == 0;
      const int result = real().unlink(path);
      if (result == 0 && known && r.is_inside(path)) {
        r.remove(path);
        if (st.st_nlink <= 1) r.numbers.erase({st.st_dev, st.st_ino});
      }
      return result;
    };
    recording.unlinkat = [](int folder, const char* name, int flags) {
      Recorder& r = *Recorder::current;
      std::lock_guard lock(r.mutex);
      const std::string path =
          *name == '/' ? std::string(name) : Recorder::path_of(folder) + "/" + name;
      struct stat st;
      const bool known = ::lstat(path.c_str(), &st) == 0;
      const int result = real().unlinkat(folder, name, flags);
      if (result == 0 && known && r.is_inside(path)) {
        r.remove(path);
        r.numbers.erase({st.st_dev, st.st_ino});
      }
      return result;
    };
    recording.ftruncate = [](int, off_t) -> int {
      throw std::logic_error("the model has no ftruncate");
    };
    return recording;
  }();
  recorder_->before = exchange_system_calls(&calls);
}

PowerCut::~PowerCut() { exchange_system_calls(recorder_->before); }

std::size_t PowerCut::calls() const {
  std::lock_guard lock(recorder_->mutex);
  return recorder_->changes.size();
}

void PowerCut::leave(std::size_t at, unsigned seed, const std::string& target) const {
  std::lock_guard lock(recorder_->mutex);
  std::map<std::size_t, File> files;
  std::map<std::size_t, Folder> folders;
  for (const auto& [number, bytes] : recorder_->first_bytes) files[number] = {bytes, bytes};
  for (const auto& [number, entries] : recorder_->first_entries) {
    for (const auto& [name, child] : entries) folders[number].entries[name] = {child};
  }
  const auto sync_file = [](File& file) { file.synced = file.bytes; };
  const auto sync_folder = [](Folder& folder) {
    for (auto& [name, children] : folder.entries) children = {children.back()};
  };
  for (std::size_t i = 0; i < at; ++i) {
    const Change& change = recorder_->changes[i];
    switch (change.kind) {
      case Change::write: {
        std::string& bytes = files[change.node].bytes;
        bytes.resize(std::max<std::size_t>(bytes.size(), change.offset + change.bytes.size()));
        bytes.replace(change.offset, change.bytes.size(), change.bytes);
        break;
      }
      case Change::truncate:
        break;
      case Change::sync:
        if (recorder_->is_folder[change.node]) {
          sync_folder(folders[change.node]);
        } else {
          sync_file(files[change.node]);
        }
        break;
      case Change::sync_all:
        for (auto& [number, file] : files) sync_file(file);
        for (auto& [number, folder] : folders) sync_folder(folder);
        break;
      case Change::add:
      case Change::remove: {
        auto& children = folders[change.node].entries[change.name];
        if (children.empty()) children.push_back(0);
        children.push_back(change.kind == Change::add ? change.child : 0);
        break;
      }
    }
  }
  std::mt19937 random(seed);
  const auto bytes_left = [&](const File& file) {
    if (file.bytes == file.synced) return file.bytes;
    switch (random() % 5) {
      case 0:
        return file.synced;
      case 1:
        return std::string();
      case 2:
        return file.bytes.substr(0, random() % (file.bytes.size() + 1));
      case 3:
        return std::string(file.bytes.size(), '\0');
      default:
        return file.bytes;
    }
  };
  const auto put = [&](const auto& self, std::size_t number, const fs::path& path) -> void {
    fs::create_directory(path);
    for (const auto& [name, children] : folders[number].entries) {
      const std::size_t child = children[random() % children.size()];
      if (child == 0) continue;
      if (recorder_->is_folder[child]) {
        self(self, child, path / name);
      } else {
        std::ofstream(path / name, std::ios::binary) << bytes_left(files[child]);
      }
    }
  };
  std::size_t top = 0;
  struct stat st;
  if (::lstat(recorder_->root.c_str(), &st) == 0) top = recorder_->number_of(st);
  put(put, top, target);
}

}  // namespace headrace::test
