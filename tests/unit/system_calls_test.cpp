// System calls of the stores that go wrong in particular ways.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/system.h"
#include "conformance/temp_folder.h"
#include "headrace/error.h"
#include "headrace/store.h"
#include "store/store.h"
#include "store/temporary_name.h"
#include "store/uring.h"
#include "support/portable.h"

#ifdef HEADRACE_HAVE_URING
#include <liburing.h>
#endif

namespace headrace::test {
namespace {

namespace fs = std::filesystem;

// The table with some calls replaced.
class SystemCallsTest : public testing::Test {
 protected:
  ~SystemCallsTest() override { exchange_system_calls(nullptr); }
  void use() { exchange_system_calls(&calls_); }
  void restore() { exchange_system_calls(nullptr); }

  std::string get(const Store& store, const std::string& key) {
    Buffer bytes;
    return store.driver().get(key, bytes) ? std::string(text_of(bytes)) : "(none)";
  }
  std::vector<std::string> names() {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(path_))
      result.push_back(entry.path().filename());
    std::sort(result.begin(), result.end());
    return result;
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "s.zarr";
  SystemCalls calls_ = real_system_calls();
};

// Kernels before 3.11 take O_TMPFILE for O_DIRECTORY, many file systems do not know it.
TEST_F(SystemCallsTest, WithoutNamelessFiles) {
  SKIP_IF_PORTABLE("files without a name");
  for (const int refusal : {EISDIR, EOPNOTSUPP, EINVAL}) {
    static int error;
    error = refusal;
    calls_.open = [](const char* path, int flags, mode_t mode) {
      if ((flags & O_TMPFILE) == O_TMPFILE) {
        errno = error;
        return -1;
      }
      return real_system_calls().open(path, flags, mode);
    };
    use();
    const Store store = open_store(path_, StoreMode::append);
    for (const char* text : {"one", "two"}) {
      store.driver().set("a/b", bytes_of(text));
      EXPECT_EQ(get(store, "a/b"), text);
    }
    EXPECT_EQ(store.list(""), std::vector<std::string>{"a/b"});
    EXPECT_EQ(std::distance(fs::directory_iterator(path_ + "/a"), {}), 1);
    Store archive = open_store(folder_ / "a.zip", StoreMode::overwrite);
    archive.driver().set("k", bytes_of("v"));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), error == EISDIR ? 2 : 3);
    archive.close();
    EXPECT_EQ(get(open_store(folder_ / "a.zip"), "k"), "v");
    archive = open_store(folder_ / "b.zip", StoreMode::overwrite);
    archive.discard();
    archive = open_store(path_);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 2);
    store.erase_prefix("");
    restore();
  }
}

// What a network file system could not keep shows at close(): the object must not stay.
TEST_F(SystemCallsTest, CloseThatFailsTakesTheNewObjectAway) {
  const Store store = open_store(path_, StoreMode::append);
  // Twice: the first replacement of a process reads what tells it from others, and closes that.
  for (int i = 0; i < 2; ++i) store.driver().set("old", bytes_of("old"));
  static std::atomic<int> left;
  calls_.close = [](int fd) {
    const int result = real_system_calls().close(fd);
    if (--left != 0) return result;
    errno = ENOSPC;
    return -1;
  };
  for (const char* key : {"old", "new"}) {
    left = 1;
    use();
    try {
      store.driver().set(key, bytes_of("half"));
      ADD_FAILURE() << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.os_error(), ENOSPC) << error.what();
      EXPECT_NE(std::string(error.what()).find(path_ + "/" + key), std::string::npos);
    }
    restore();
  }
  EXPECT_EQ(get(store, "old"), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"old"});
}

// The name that a process of this host gives a file when it replaces an object.
std::string temporary_name_of_child(const std::string& path, bool stays, pid_t& child) {
  int ready[2];
  if (::pipe(ready) != 0) return "";
  child = ::fork();
  if (child == 0) {
    static SystemCalls calls = real_system_calls();
    static int out;
    out = ready[1];
    calls.rename = [](const char* from, const char*) -> int {
      const std::string name = std::string(from) + '\n';
      if (::write(out, name.data(), name.size()) < 0) ::_exit(1);
      for (;;) ::pause();
    };
    exchange_system_calls(&calls);
    open_store(path, StoreMode::append).driver().set("k", bytes_of("new"));
  }
  ::close(ready[1]);
  std::string name;
  char c = 0;
  while (::read(ready[0], &c, 1) == 1 && c != '\n') name += c;
  ::close(ready[0]);
  if (!stays) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  return fs::path(name).filename();
}

TEST_F(SystemCallsTest, StoresRemoveWhatDeadWritersOfThisHostLeft) {
  SKIP_IF_PORTABLE("processes in names");
  const Store store = open_store(path_, StoreMode::append);
  store.driver().set("k", bytes_of("old"));
  pid_t living = 0;
  pid_t gone = 0;
  const std::string of_living = temporary_name_of_child(path_, true, living);
  const std::string of_dead = temporary_name_of_child(path_, false, gone);
  EXPECT_FALSE(is_abandoned(AT_FDCWD, of_living)) << of_living;
  EXPECT_TRUE(is_abandoned(AT_FDCWD, of_dead)) << of_dead;
  // Of another host, of another start of this one, and of versions that had no host in them.
  std::string elsewhere = of_dead;
  char& digit = elsewhere[std::string(".headrace-tmp-2-").size()];
  digit = digit == '0' ? '1' : '0';
  std::vector<std::string> kept = {of_living,
                                   elsewhere,
                                   ".headrace-tmp-1-0-0123456789abcdef",
                                   ".headrace-tmp-2-",
                                   ".headrace-tmp-2-0-1-1-1-1",
                                   of_dead + "x",
                                   "k"};
  for (const std::string& name : kept) {
    if (!fs::exists(path_ + "/" + name)) std::ofstream(path_ + "/" + name) << "half";
  }
  std::sort(kept.begin(), kept.end());
  const Store reader = open_store(path_);
  EXPECT_EQ(reader.list(""), std::vector<std::string>{"k"});
  EXPECT_TRUE(fs::exists(path_ + "/" + of_dead)) << "a reader removed something";
  EXPECT_EQ(store.list_dir(""), std::vector<std::string>{"k"});
  EXPECT_EQ(names(), kept);
  EXPECT_EQ(get(store, "k"), "old");
  // The number of a dead writer that another process has by now.
  ::kill(living, SIGKILL);
  ::waitpid(living, nullptr, 0);
  const std::size_t pid_at = of_dead.find('-', std::string(".headrace-tmp-2-").size()) + 1;
  std::string reused = of_dead;
  reused.replace(pid_at, reused.find('-', pid_at) - pid_at, std::to_string(::getpid()));
  EXPECT_TRUE(is_abandoned(AT_FDCWD, reused)) << reused;
  store.list("");
  EXPECT_FALSE(fs::exists(path_ + "/" + of_living));
}

// The same in the portable build, where a writer has its file locked.
TEST_F(SystemCallsTest, StoresRemoveWhatNobodyHasLocked) {
  if (!is_portable()) GTEST_SKIP() << "names say whose they are";
  const Store store = open_store(path_, StoreMode::append);
  store.driver().set("k", bytes_of("old"));
  pid_t living = 0;
  pid_t gone = 0;
  const std::string of_living = temporary_name_of_child(path_, true, living);
  const std::string of_dead = temporary_name_of_child(path_, false, gone);
  // Of other versions, and what is no file.
  std::vector<std::string> kept = {
      of_living, ".headrace-tmp-1-0-0123456789abcdef", ".headrace-tmp-2-0-1-1-1-1", "k"};
  for (const std::string& name : kept) {
    if (!fs::exists(path_ + "/" + name)) std::ofstream(path_ + "/" + name) << "half";
  }
  kept.push_back(".headrace-tmp-3-link");
  fs::create_symlink("k", path_ + "/" + kept.back());
  kept.push_back(".headrace-tmp-3-pipe");
  ASSERT_EQ(::mkfifo((path_ + "/" + kept.back()).c_str(), 0600), 0);
  kept.push_back(of_dead);
  std::sort(kept.begin(), kept.end());
  const Store reader = open_store(path_);
  EXPECT_EQ(reader.list(""), std::vector<std::string>{"k"});
  EXPECT_EQ(names(), kept) << "a reader removed something";
  EXPECT_EQ(store.list_dir(""), std::vector<std::string>{"k"});
  std::erase(kept, of_dead);
  EXPECT_EQ(names(), kept);
  EXPECT_EQ(get(store, "k"), "old");
  ::kill(living, SIGKILL);
  ::waitpid(living, nullptr, 0);
  store.list("");
  EXPECT_FALSE(fs::exists(path_ + "/" + of_living));
}

// Who lists the folder between the making of a file and its lock takes it for one that was left:
// the writer makes another.
TEST_F(SystemCallsTest, AFileThatWasTakenAwayIsMadeAnew) {
  const Store store = open_store(path_, StoreMode::append);
  store.driver().set("k", bytes_of("old"));
  static int taken;
  taken = 0;
  calls_.open = [](const char* path, int flags, mode_t mode) {
    const int fd = real_system_calls().open(path, flags, mode);
    if (fd >= 0 && (flags & O_CREAT) != 0 && ++taken <= 3) ::unlink(path);
    return fd;
  };
  use();
  store.driver().set("k", bytes_of("new"));
  restore();
  EXPECT_EQ(get(store, "k"), "new");
  EXPECT_EQ(names(), std::vector<std::string>{"k"});
}

#ifdef HEADRACE_HAVE_URING

class RingTest : public SystemCallsTest {
 protected:
  void SetUp() override {
    std::string why_not;
    if (!uring_available(why_not)) GTEST_SKIP() << why_not;
    const Store store = open_store(path_, StoreMode::append);
    for (int i = 0; i < 20; ++i) store.driver().set(std::to_string(i), bytes_of(text(i)));
  }
  static std::string text(int i) { return std::string(1000, static_cast<char>('a' + i)); }

  // All of the objects in one batch, or the error that holds for all.
  void read_all() {
    const Store store = open_store(path_, StoreMode::read, {{"io", "uring"}});
    std::vector<Buffer> into(20);
    std::vector<GetRequest> requests;
    for (int i = 0; i < 20; ++i)
      requests.push_back({std::to_string(i), &into[static_cast<std::size_t>(i)]});
    store.driver().get_many(requests);
    for (int i = 0; i < 20; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (requests[at].error) std::rethrow_exception(requests[at].error);
      EXPECT_TRUE(requests[at].found) << i;
      EXPECT_EQ(std::string(text_of(into[at])), text(i));
    }
  }
};

// The results of opens and of reads, as a kernel under load gives them.
TEST_F(RingTest, InterruptedRequestsAreMadeAgain) {
  static int error;
  static int countdown;
  static bool of_opens;
  calls_.ring_submit_and_wait = [](io_uring* ring, unsigned count) {
    const int rc = real_system_calls().ring_submit_and_wait(ring, count);
    unsigned head = 0;
    io_uring_cqe* entry = nullptr;
    io_uring_for_each_cqe(ring, head, entry) {
      if (--countdown % 3 != 0) continue;
      const bool is_open = entry->res >= 0 && entry->res < 900;  // a descriptor
      if (is_open != of_opens) continue;
      if (is_open) ::close(entry->res);
      entry->res = -error;
    }
    return rc;
  };
  const auto descriptors = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), {});
  };
  read_all();  // makes the thread's ring
  const auto before = descriptors();
  for (const int each : {EINTR, EAGAIN}) {
    for (const bool opens : {true, false}) {
      error = each;
      of_opens = opens;
      countdown = 1000;
      use();
      read_all();
      restore();
    }
  }
  EXPECT_EQ(descriptors(), before);
}

// Errors that pass, and one that does not: an error, and nobody waits for ever.
TEST_F(RingTest, FailuresToSubmitEnd) {
  static int error;
  static int times;
  calls_.ring_submit_and_wait = [](io_uring* ring, unsigned count) {
    if (times > 0) {
      --times;
      return -error;
    }
    return real_system_calls().ring_submit_and_wait(ring, count);
  };
  for (const int passing : {EINTR, EAGAIN, EBUSY}) {
    error = passing;
    times = 5;
    use();
    read_all();
    restore();
  }
  error = EBADF;
  times = 1 << 30;
  use();
  EXPECT_THROW(read_all(), Error);
  restore();
  times = 0;
  read_all();  // with a new ring
}

// Requests are on their way and the kernel will not wait for them: their results come all the same.
TEST_F(RingTest, FailuresToWaitEnd) {
  static int waits;
  calls_.ring_submit_and_wait = [](io_uring* ring, unsigned) { return ::io_uring_submit(ring); };
  calls_.ring_wait = [](io_uring*) {
    ++waits;
    return -EBADF;
  };
  use();
  read_all();
  restore();
  read_all();
}

#endif

}  // namespace
}  // namespace headrace::test
