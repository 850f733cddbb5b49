#pragma once

// A folder as a store: a key is a path below it.
//
// Paths, not a kept descriptor of the folder: openat() on one saves 0.1 us (a root 1 level deep) to
// 0.8 us (12 levels) of the 3 us that a warm 4 KiB object takes, but a folder that was removed and
// made anew would read as empty for ever, which means fill values instead of data.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/fork_mutex.h"
#include "store/folder_facts.h"
#include "store/io_threads.h"
#include "store/posix.h"
#include "store/store.h"
#include "store/temporary_file.h"

namespace headrace {

// What is synced, files and their entries in folders, before a write returns.
enum class Durability { nothing, metadata, everything };

struct FileOptions {
  bool read_only = true;
  bool direct = false;  // O_DIRECT for reads
  Durability durability = Durability::metadata;
};

class FileStore : public StoreDriver {
 public:
  // `root`: absolute, without a slash at the end, existing.
  FileStore(std::string root, FileOptions options);

  std::string url() const override;
  bool read_only() const override { return options_.read_only; }
  bool has_files() const override { return true; }
  bool get(std::string_view key, Buffer& into) override;
  bool get_within(std::string_view key, Buffer& into, std::uint64_t max_nbytes) override;
  std::unique_ptr<ObjectReader> open(std::string_view key) override;
  bool exists(std::string_view key) override;
  bool is_cold(std::string_view key) override;
  void expect(std::vector<std::string> keys, const Extent& part) override;
  void set(std::string_view key, ConstBytes bytes) override;
  void set_parts(std::string_view key, std::span<const ConstBytes> parts) override;
  // By a link, which is made where nothing has the name; `unsupported` too on file systems that
  // have none.
  WriteConditions write_conditions() const override { return {.missing = !options_.read_only}; }
  std::string set_if(std::string_view key,
                     std::span<const ConstBytes> parts,
                     const WriteCondition& condition) override;
  void erase(std::string_view key) override;
  void erase_prefix(std::string_view prefix) override;
  std::vector<std::string> list(std::string_view prefix) override;
  std::optional<std::vector<std::string>> list_at_rest(std::string_view prefix) override;
  std::vector<DirEntry> list_dir(std::string_view prefix) override;
  std::string identity(std::string_view prefix) override;
  LockAttempt try_lock(std::string_view prefix, MissingFolder missing) override;
  bool is_link(std::string_view prefix) override;
  std::vector<StoredName> list_names(std::string_view prefix) override;
  void erase_names(std::span<const StoredName> names, std::string_view kept) override;
  void sync() override;
  // Removes the folders that were made for it, if nothing has come to lie there.
  void discard() override;
  // The topmost of them, as make_folders() gives it.
  void made_below(std::string topmost);

 protected:
  std::string path_of(std::string_view key) const;
  int open_flags() const;
  const FileOptions& options() const { return options_; }

 private:
  // Whether it is as list_at_rest() gives it.
  bool list_into(std::string_view prefix, std::vector<std::string>& keys);
  // False: there was an object, where one is to be new.
  bool publish(std::string_view key, std::span<const ConstBytes> parts, bool is_new);
  bool is_durable(std::string_view key) const;
  // Syncs the entries of the folders that a key is in, below the root: who made them may have been
  // a write that was not to be synced, or another program.
  void sync_folders_of(std::string_view key);
  void forget_settled();

  std::string root_;
  FileOptions options_;
  // They open files, for the system reads ahead by itself.
  IoThreads ahead_{8};
  ForkMutex mutex_;
  // Folders whose entry is known to be synced.
  std::map<std::string, FolderId> settled_ GUARDED_BY(mutex_);
  std::string topmost_made_ GUARDED_BY(mutex_);
};

// invalid_argument for the root of the file system, and, if so wanted, of a mount: by what lies
// there, not by how it is spelled ("/tmp/..", links and bind mounts lead there too).
void refuse_root(const std::string& path, bool mounts);
// Keys of such names are never objects.
bool names_temporary(std::string_view key);
[[noreturn]] void throw_short(const std::string& path, std::uint64_t wanted, std::uint64_t found);
// Whether a path that failed with this errno is not there.
bool means_missing(int os_error);
// Whether an open that failed means that there is no such object. Keeps errno. With O_DIRECT, which
// folders refuse like file systems do (EINVAL), it has to look at what lies there.
bool open_found_nothing(int os_error, const std::string& path, bool direct);
// The size of an object's file; nothing for a folder. Pipes, devices and sockets are an `io` error:
// reading one could hang or never end.
std::optional<std::uint64_t> object_size(const struct stat& st, std::string_view path);
// A replaced file has another inode, one written over has other times.
std::uint64_t version_of(const struct stat& st);
// Between the file's times: that of its bytes, and that of anything about it, which no program
// sets.
std::optional<WrittenAt> written_of(const timespec& modified, const timespec& changed);
[[noreturn]] void throw_open_failure(int os_error, const std::string& path, bool direct);

// O_DIRECT wants memory, offset and length in multiples of the device's block, at most this.
inline constexpr std::size_t kDirectAlignment = 4096;
// Resizes `into` so that `nbytes` and the padding fit at an aligned place, which is returned.
MutableBytes direct_place(Buffer& into, std::uint64_t nbytes);
// Moves the `nbytes` read there to the front of `into`.
void direct_settle(Buffer& into, MutableBytes place, std::uint64_t nbytes);

std::unique_ptr<FileStore> make_file_store(std::string root, FileOptions options);

}  // namespace headrace
