// Writing new zip archives. Entries take their place in the file by moving its end under a lock and
// are written there without it, so threads write in parallel.

#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/fork_mutex.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "headrace/error.h"
#include "store/key_list.h"
#include "store/posix.h"
#include "store/temporary_file.h"
#include "store/url.h"
#include "store/zip.h"
#include "store/zip_directory.h"

namespace headrace {

namespace {

class WrittenReader : public ObjectReader {
 public:
  WrittenReader(std::shared_ptr<TemporaryFile> file, ZipRecord record, std::string place)
      : file_(std::move(file)), record_(record), place_(std::move(place)) {}

  std::uint64_t size() const override { return record_.size; }
  void read(std::uint64_t offset, MutableBytes dst) const override {
    check_object_range(place_, record_.size, offset, dst.size());
    if (read_at(file_->fd(), record_.data + offset, dst, place_) != dst.size()) {
      throw Error(ErrorCode::io, place_ + ": the archive became shorter while it was read");
    }
  }

 private:
  std::shared_ptr<TemporaryFile> file_;
  ZipRecord record_;
  std::string place_;
};

// Where a link leads to, of a file that is not there yet too: a new archive takes the file's place,
// and not the link's.
std::string behind_links(const std::string& path) {
  constexpr int kMost = 40;  // as Linux follows
  std::filesystem::path file = path;
  for (int i = 0; i < kMost; ++i) {
    std::error_code is_no_link;
    const std::filesystem::path target = std::filesystem::read_symlink(file, is_no_link);
    if (is_no_link) return file.string();
    file = file.parent_path() / target;
  }
  throw Error(ErrorCode::io, "zip archive " + path + ": too many links", ELOOP);
}

class ZipWriter : public StoreDriver {
 public:
  ZipWriter(const std::string& path, bool durable, bool is_new)
      : path_(path),
        is_new_(is_new),
        file_(std::make_shared<TemporaryFile>(behind_links(path), durable)) {
    writers().add(this);
  }

  // An archive that nobody closed may lack anything: what raised in its writer has come this far.
  ~ZipWriter() override {
    writers().remove(this);
    // In a child it may be waited for by threads that it lacks: glibc would wait for them here.
    if (generation_ != fork_generation()) {
      static_cast<void>(changed_.release());
      return;
    }
    if (state_ != State::open) return;
    try {
      tell_dropped_archive(url());
    } catch (const std::exception&) {  // no memory for the name
    }
  }

  std::string url() const override { return "zip://" + percent_encode_path(path_); }
  bool read_only() const override { return false; }

  bool get(std::string_view key, Buffer& into) override {
    std::unique_ptr<ObjectReader> reader = open(key);
    if (!reader) return false;
    into.resize(checked_cast<std::size_t>(reader->size(), "object size"));
    reader->read(0, into.bytes());
    return true;
  }

  std::unique_ptr<ObjectReader> open(std::string_view key) override {
    check_key(key);
    ZipRecord record;
    std::shared_ptr<TemporaryFile> file;
    {
      ForkLock lock(mutex_);
      auto it = records_.find(key);
      if (it == records_.end()) return nullptr;
      record = it->second;
      file = file_;
    }
    return std::make_unique<WrittenReader>(
        std::move(file), record, "zip archive " + path_ + ": entry " + std::string(key));
  }

  bool exists(std::string_view key) override {
    check_key(key);
    ForkLock lock(mutex_);
    return records_.contains(key);
  }

  void set(std::string_view key, ConstBytes bytes) override {
    check_key(key);
    if (key.size() > 0xffff) {
      throw Error(ErrorCode::invalid_argument,
                  "zip archive " + path_ + ": a key of " + std::to_string(key.size()) +
                      " bytes; names have at most 65535");
    }
    std::string name(key);
    std::shared_ptr<TemporaryFile> file;
    ZipRecord record;
    record.size = bytes.size();
    record.crc = libdeflate_crc32(0, bytes.data(), bytes.size());
    const std::size_t head_size = zip_local_header_size(key, record.size);
    start_change();
    try {
      {
        ForkLock lock(mutex_);
        record.header = end_;
        record.data = record.header + head_size;
        end_ = record.data + record.size;
        file = file_;
      }
      const Buffer head = zip_local_header(key, record);
      const std::array<ConstBytes, 2> parts = {head.bytes(), bytes};
      // One pwrite for small objects, whose copy costs less than a second call.
      if (bytes.size() <= kSmallObject) {
        Buffer whole;
        whole.append(head);
        whole.append(bytes);
        const ConstBytes all = whole.bytes();
        write_at(file->fd(), record.header, {&all, 1}, path_);
      } else {
        write_at(file->fd(), record.header, parts, path_);
      }
      ForkLock lock(mutex_);
      records_.insert_or_assign(std::move(name), record);
    } catch (...) {
      end_change();
      throw;
    }
    end_change();
  }

  void erase(std::string_view key) override {
    check_key(key);
    start_change();
    {
      ForkLock lock(mutex_);
      if (auto it = records_.find(key); it != records_.end()) records_.erase(it);
    }
    end_change();
  }

  void erase_prefix(std::string_view prefix) override {
    prefix = check_prefix(prefix);
    start_change();
    {
      ForkLock lock(mutex_);
      std::erase_if(records_, [&](const auto& item) { return lies_below(item.first, prefix); });
    }
    end_change();
  }

  std::vector<std::string> list(std::string_view prefix) override {
    prefix = check_prefix(prefix);
    std::vector<std::string> keys;
    ForkLock lock(mutex_);
    auto it = prefix.empty() ? records_.begin() : records_.lower_bound(std::string(prefix) + '/');
    for (; it != records_.end() && lies_below(it->first, prefix); ++it) keys.push_back(it->first);
    return keys;
  }

  std::vector<DirEntry> list_dir(std::string_view prefix) override {
    return names_directly_below(list(prefix), check_prefix(prefix));
  }

  // The archive has no name yet, so nobody else writes it.
  LockAttempt try_lock(std::string_view, MissingFolder) override {
    return {LockAttempt::State::held};
  }
  bool holds_only_keys() const override { return true; }

  // Waits for writes that have started. After a failure (a full disk) it can be called again.
  void close() override {
    if (generation_ != fork_generation()) throw_forked();
    if (!start_closing()) return;
    try {
      write_directory();
    } catch (...) {
      set_state(State::open);
      throw;
    }
    set_state(State::closed);
  }

  // What readers have open they keep.
  void discard() override {
    if (generation_ != fork_generation() || !start_closing()) return;
    std::shared_ptr<TemporaryFile> dropped;
    {
      ForkLock lock(mutex_);
      records_.clear();
      dropped = std::move(file_);
    }
    set_state(State::closed);
  }

  static std::vector<std::string> unpublished() {
    std::vector<std::string> paths;
    ForkLock lock(writers().mutex);
    for (const ZipWriter* writer : writers().all) {
      if (writer->state_ != State::closed && writer->generation_ == fork_generation())
        paths.push_back(writer->path_);
    }
    return paths;
  }

 private:
  struct Writers {
    ForkMutex mutex;
    std::vector<ZipWriter*> all GUARDED_BY(mutex);

    void add(ZipWriter* writer) {
      const ForkLock lock(mutex);
      all.push_back(writer);
    }
    void remove(ZipWriter* writer) {
      const ForkLock lock(mutex);
      std::erase(all, writer);
    }
  };
  static Writers& writers() {
    static auto* writers = new Writers;  // never destroyed: stores may outlive statics
    return *writers;
  }

  enum class State { open, closing, closed };
  static constexpr std::size_t kSmallObject = std::size_t{64} << 10;

  [[noreturn]] void throw_forked() const {
    throw Error(
        ErrorCode::invalid_argument,
        "zip archive " + path_ + ": opened for writing before a fork; its parent writes it");
  }

  // Waits for writes that have started; false when another has closed the archive.
  bool start_closing() {
    const ForkLock lock(mutex_);
    while (state_ == State::closing) changed_->wait(mutex_);
    if (state_ == State::closed) return false;
    state_ = State::closing;
    while (changes_ > 0) changed_->wait(mutex_);
    return true;
  }

  // Of the one that closes, without the lock: changes are over and none begins, and what takes
  // memory may take the lock of another ForkMutex.
  void write_directory() NO_THREAD_SAFETY_ANALYSIS {
    const Buffer directory = zip_directory(records_, end_);
    const ConstBytes bytes = directory.bytes();
    write_at(file_->fd(), end_, {&bytes, 1}, path_);
    if (is_new_ && publish_new()) return;
    if (!file_->publish(true)) throw_io(errno, "finish", path_);
  }

  // False where the file system does not tell whether a name is new.
  bool publish_new() NO_THREAD_SAFETY_ANALYSIS {
    bool is_there = false;
    try {
      const std::optional<bool> published = file_->publish_new(true);
      if (published == true) return true;
      is_there = !published;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      struct stat st;
      is_there = os().stat(path_.c_str(), &st) == 0;
    }
    if (!is_there) return false;
    throw Error(ErrorCode::conflict,
                "zip archive " + path_ + ": somebody has written it since this one was begun");
  }

  void start_change() {
    if (generation_ != fork_generation()) throw_forked();
    ForkLock lock(mutex_);
    if (state_ != State::open) {
      throw Error(ErrorCode::invalid_argument, "zip archive " + path_ + ": is closed");
    }
    ++changes_;
  }

  void end_change() {
    {
      ForkLock lock(mutex_);
      --changes_;
    }
    changed_->notify_all();
  }

  void set_state(State state) {
    {
      ForkLock lock(mutex_);
      state_ = state;
    }
    changed_->notify_all();
  }

  const std::string path_;
  const bool is_new_;
  const unsigned generation_ = fork_generation();
  ForkMutex mutex_;
  std::unique_ptr<ConditionVariable> changed_ = std::make_unique<ConditionVariable>();
  std::shared_ptr<TemporaryFile> file_ GUARDED_BY(mutex_);
  std::map<std::string, ZipRecord, std::less<>> records_ GUARDED_BY(mutex_);
  std::uint64_t end_ GUARDED_BY(mutex_) = 0;
  int changes_ GUARDED_BY(mutex_) = 0;      // under way
  std::atomic<State> state_ = State::open;  // written under mutex_
};

}  // namespace

std::vector<std::string> unpublished_archives() {
  std::vector<std::string> urls = ZipWriter::unpublished();
  for (std::string& url : urls) url = "zip://" + percent_encode_path(url);
  return urls;
}

std::unique_ptr<StoreDriver> create_zip_archive(const std::string& path,
                                                bool durable,
                                                bool is_new) {
  return std::make_unique<ZipWriter>(path, durable, is_new);
}

}  // namespace headrace
