#include "store/temporary_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/system.h"
#include "base/thread_pool.h"
#include "headrace/error.h"
#include "store/temporary_name.h"
#include "store/unnamed_file.h"

namespace headrace {

namespace {

// False once the file system of some store took a file without a name and refused to name it.
std::atomic<bool> g_links_nameless = true;

bool can_link_nameless() {
  return has_unnamed_files() && g_links_nameless.load(std::memory_order_relaxed);
}

std::string beside(const std::string& folder, const std::string& name) {
  return folder + (folder == "/" ? "" : "/") + name;
}

}  // namespace

TemporaryFile::TemporaryFile(std::string target, bool durable)
    : target_(std::move(target)), durable_(durable), generation_(fork_generation()) {
  const std::string folder = parent_of(target_);
  int failure = ENOENT;
  // The folder may go between mkdir and open when another thread erases the prefix.
  for (int attempt = 0; attempt < kRaceAttempts; ++attempt) {
    if (can_link_nameless()) {
      fd_ = FileDescriptor(open_unnamed(folder.c_str()));
      if (fd_) {
        nameless_ = true;
        path_ = target_;
        return;
      }
      if (errno == ENOENT) {
        make_folders(folder, durable_);
        continue;
      }
    }
    path_ = beside(folder, temporary_name());
    fd_ = FileDescriptor(open_retrying(path_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0666));
    if (fd_) {
      pending_ = true;
      if (hold_temporary(fd_.get(), hold_)) return;
      pending_ = false;
      continue;
    }
    failure = errno;
    if (failure == ENOENT) {
      make_folders(folder, durable_);
    } else if (failure != EEXIST) {
      break;
    }
  }
  throw_io(failure, "create a file for", target_);
}

TemporaryFile::~TemporaryFile() {
  if (pending_ && generation_ == fork_generation()) os().unlink(path_.c_str());
}

bool TemporaryFile::publish(bool keep_open) {
  if (durable_) sync_file(fd_.get(), target_);
  if (nameless_ && !give_name()) return false;
  if (path_ != target_) {
    // Network file systems report a full disk at close, so before the object is replaced.
    if (!keep_open && os().close(fd_.release()) != 0 && errno != EINTR) {
      throw_io(errno, "close", target_);
    }
    if (os().rename(path_.c_str(), target_.c_str()) != 0) {
      if (errno != ENOENT) throw_io(errno, "rename to", target_);
      pending_ = false;
      return false;
    }
  } else if (!keep_open) {
    close_published();
  }
  pending_ = false;
  hold_ = {};
  path_ = target_;
  if (durable_) sync_folder(parent_of(target_));
  return true;
}

std::optional<bool> TemporaryFile::publish_new(bool keep_open) {
  if (durable_) sync_file(fd_.get(), target_);
  const int linked = nameless_ ? link_unnamed(fd_.get(), target_.c_str())
                               : os().linkat(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), 0);
  if (linked != 0) {
    switch (errno) {
      case EEXIST:
        return std::nullopt;
      case ENOENT:
        return false;  // it was taken away, or its folder
      case EXDEV:
      case EOPNOTSUPP:
      case ENOSYS:
      case EINVAL:
      case EPERM:
        if (!nameless_) {
          throw Error(ErrorCode::unsupported,
                      target_ + ": its file system does not tell whether a file is new");
        }
        g_links_nameless = false;
        return false;
      default:
        throw_io(errno, "name", target_);
    }
  }
  // The other name, if it has one; what cannot be removed now, the destructor tries again.
  if (!nameless_ && os().unlink(path_.c_str()) == 0) {
    pending_ = false;
    path_ = target_;
  }
  nameless_ = false;
  hold_ = {};
  if (!keep_open) close_published();
  if (durable_) sync_folder(parent_of(target_));
  return true;
}

// Of a new object that has its name already: what the file system could not keep must not stay.
void TemporaryFile::close_published() {
  struct stat mine;
  const bool known = os().fstat(fd_.get(), &mine) == 0;
  if (os().close(fd_.release()) == 0 || errno == EINTR) return;
  const int failure = errno;
  struct stat there;
  if (known && os().lstat(target_.c_str(), &there) == 0 && there.st_ino == mine.st_ino &&
      there.st_dev == mine.st_dev) {
    os().unlink(target_.c_str());
  }
  throw_io(failure, "close", target_);
}

// The target itself when nothing lies there, otherwise a temporary name that a rename takes over.
bool TemporaryFile::give_name() {
  const auto link = [&](const std::string& to) { return link_unnamed(fd_.get(), to.c_str()) == 0; };
  const std::string folder = parent_of(target_);
  for (int attempt = 0; attempt < kRaceAttempts; ++attempt) {
    bool named = link(target_);
    if (!named && errno == EEXIST) {
      path_ = beside(folder, temporary_name());
      named = pending_ = link(path_);
      if (!named) {
        const int failure = errno;
        path_ = target_;
        errno = failure;
      }
    }
    if (named) {
      nameless_ = false;
      return true;
    }
    if (errno == EXDEV || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) {
      g_links_nameless = false;  // what is written anew has a name from the beginning
      return false;
    }
    if (errno != ENOENT) throw_io(errno, "name", target_);
    make_folders(folder, durable_);  // it was empty, and another thread erased it
  }
  return false;
}

bool TemporaryFile::is_temporary(std::string_view name) {
  return name.starts_with(kTemporaryPrefix);
}

}  // namespace headrace
