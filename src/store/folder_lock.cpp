#include "store/folder_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/fork_mutex.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "store/file.h"
#include "store/posix.h"

namespace headrace {
namespace {

// The open folders of all locks. A child of fork shares their descriptions, and with them the
// locks: it closes what it finds here before it does anything else.
struct OpenFolders {
  struct Entry {
    int fd = -1;
    Entry* previous = nullptr;
    Entry* next = nullptr;
  };

  ForkMutex mutex;
  Entry* head GUARDED_BY(mutex) = nullptr;

  static OpenFolders& get() {
    static OpenFolders& folders = *[] {
      auto* made = new OpenFolders;  // never destroyed: threads may outlive statics
      // After those of ForkMutex, which its member has registered: the list is whole in the child.
      pthread_atfork(nullptr, nullptr, [] { get().close_all(); });
      return made;
    }();
    return folders;
  }

  // False, with errno, when the folder cannot be opened. Under the mutex, so that no fork finds it
  // open and not listed.
  bool open(const std::string& path, Entry& entry) {
    const ForkLock lock(mutex);
    entry.fd = open_retrying(path.c_str(), O_RDONLY | O_DIRECTORY);
    if (entry.fd < 0) return false;
    entry.next = head;
    if (head) head->previous = &entry;
    head = &entry;
    return true;
  }

  void close(Entry& entry) {
    const ForkLock lock(mutex);
    (entry.previous ? entry.previous->next : head) = entry.next;
    if (entry.next) entry.next->previous = entry.previous;
    os().close(entry.fd);
  }

  // In the child.
  void close_all() {
    const ForkLock lock(mutex);
    for (Entry* entry = head; entry; entry = entry->next) os().close(entry->fd);
    head = nullptr;
  }
};

class FolderLock final : public PrefixLock {
 public:
  explicit FolderLock(const std::string& path) : is_open_(OpenFolders::get().open(path, entry_)) {}
  ~FolderLock() override {
    if (generation_ != fork_generation() || !is_open_) return;
    // In words, not by close(): a child between fork and exec has the description open still.
    os().flock(entry_.fd, LOCK_UN);
    OpenFolders::get().close(entry_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool is_open() const { return is_open_; }
  int fd() const { return entry_.fd; }

 private:
  OpenFolders::Entry entry_;
  const bool is_open_;
  const unsigned generation_ = fork_generation();
};

LockAttempt::State state_of(int os_error) {
  switch (os_error) {
    case EWOULDBLOCK:
    case EINTR:
      return LockAttempt::State::busy;
    default:
      return LockAttempt::State::unavailable;
  }
}

}  // namespace

LockAttempt try_lock_folder(const std::string& path) {
  auto lock = std::make_unique<FolderLock>(path);
  if (!lock->is_open()) {
    // Out of descriptors is no reason to go on without a lock.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EIO)
      throw_io(errno, "lock folder", path);
    return {LockAttempt::State::unavailable};
  }
  if (os().flock(lock->fd(), LOCK_EX | LOCK_NB) != 0) return {state_of(errno)};
  // Whoever had it may have removed the folder, and somebody else made it anew.
  struct stat held, there;
  if (os().fstat(lock->fd(), &held) != 0) throw_io(errno, "stat", path);
  if (os().stat(path.c_str(), &there) != 0) {
    if (means_missing(errno)) return {LockAttempt::State::unavailable};
    throw_io(errno, "stat", path);
  }
  if (held.st_dev != there.st_dev || held.st_ino != there.st_ino) return {LockAttempt::State::busy};
  return {LockAttempt::State::held, std::move(lock)};
}

}  // namespace headrace
