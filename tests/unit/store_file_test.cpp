#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include "conformance/temp_folder.h"
#include "headrace/error.h"
#include "headrace/store.h"
#include "store/store.h"
#include "store/uring.h"
#include "support/portable.h"
#include "tests/support/joining_thread.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

std::string text_at(StoreDriver& store, std::string_view key) {
  Buffer buffer;
  return store.get(key, buffer) ? std::string(text_of(buffer)) : "(none)";
}

Error caught(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorCode::cancelled, "");
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Runs `body` in a child process; its return value is the exit status.
int in_child(const std::function<int()>& body) {
  pid_t child = ::fork();
  if (child == 0) {
    int rc = 99;
    try {
      rc = body();
    } catch (const std::exception& error) {
      ::dprintf(2, "child: %s\n", error.what());
    }
    ::_exit(rc);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

struct Variant {
  const char* name;
  StorageOptions options;
};

class FileStoreTest : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    std::string why_not;
    if (GetParam().options.contains("io") && !uring_available(why_not)) GTEST_SKIP() << why_not;
    if (GetParam().options.contains("direct")) SKIP_IF_PORTABLE("reads past the page cache");
    store_ = open_store(path_, StoreMode::create, GetParam().options).shared_driver();
  }
  void put(std::string_view key, std::string_view text) { store_->set(key, bytes_of(text)); }

  // By get_many, which is what "io" changes.
  bool get_one(const std::string& key, Buffer& into) {
    GetRequest request{key, &into};
    store_->get_many({&request, 1});
    if (request.error) std::rethrow_exception(request.error);
    return request.found;
  }
  void expect_refused(const std::string& key, std::string_view why) {
    Buffer buffer;
    for (const auto& call : std::vector<std::function<void()>>{[&] { store_->get(key, buffer); },
                                                               [&] { store_->open(key); },
                                                               [&] { get_one(key, buffer); }}) {
      Error error = caught(call);
      EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
      EXPECT_NE(std::string(error.what()).find(path_ + "/" + key), std::string::npos)
          << error.what();
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  }

  TempFolder folder_;
  std::string path_ = folder_ / "a.zarr";
  std::shared_ptr<StoreDriver> store_;
};

INSTANTIATE_TEST_SUITE_P(Ways,
                         FileStoreTest,
                         testing::Values(Variant{"pread", {}},
                                         Variant{"direct", {{"direct", "true"}}},
                                         Variant{"uring", {{"io", "uring"}}}),
                         [](const auto& variant) { return variant.param.name; });

TEST_P(FileStoreTest, LinksToFilesAreFollowed) {
  std::ofstream(folder_ / "outside") << "linked";
  fs::create_symlink(folder_ / "outside", path_ + "/link");
  fs::create_symlink(folder_ / "nowhere", path_ + "/dangling");
  fs::create_directory(folder_ / "elsewhere");
  std::ofstream(folder_ / "elsewhere/x") << "below a linked folder";
  fs::create_directory_symlink(folder_ / "elsewhere", path_ + "/d");
  fs::create_directory_symlink(path_, path_ + "/loop");
  fs::create_symlink("self", path_ + "/self");
  Buffer buffer;
  EXPECT_EQ(text_at(*store_, "link"), "linked");
  EXPECT_EQ(text_at(*store_, "d/x"), "below a linked folder");
  expect_refused("dangling", "link to what is not there");
  EXPECT_EQ(caught([&] { store_->exists("dangling"); }).code(), ErrorCode::io);
  EXPECT_EQ(store_->list(""), (std::vector<std::string>{"d/x", "dangling", "link"}));
  expect_refused("self", "symbolic links");
  put("link", "replaced");
  EXPECT_EQ(text_at(*store_, "link"), "replaced");
  EXPECT_EQ(
      std::string(std::istreambuf_iterator<char>(std::ifstream(folder_ / "outside").rdbuf()), {}),
      "linked");
}

TEST_P(FileStoreTest, PipesDevicesAndSocketsAreRefusedWithoutHanging) {
  ASSERT_EQ(::mkfifo((path_ + "/pipe").c_str(), 0600), 0);
  expect_refused("pipe", "a pipe");
  EXPECT_EQ(caught([&] { store_->exists("pipe"); }).code(), ErrorCode::io);
  fs::create_symlink("/dev/zero", path_ + "/device");
  expect_refused("device", "a character device");
  int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string socket_path = path_ + "/socket";
  ASSERT_LT(socket_path.size(), sizeof address.sun_path);
  std::copy(socket_path.begin(), socket_path.end(), address.sun_path);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  expect_refused("socket", "socket");
  ::close(listener);
  EXPECT_TRUE(store_->list("").empty());
}

TEST_P(FileStoreTest, ListsAtRestAreOfWhatNobodyChangesAndAreWhole) {
  using Keys = std::optional<std::vector<std::string>>;
  const auto settle = [] { std::this_thread::sleep_for(std::chrono::milliseconds(60)); };
  put("a/b/c", "x");
  put("a/d", "x");
  EXPECT_EQ(store_->list_at_rest("a/"), Keys()) << "just written";
  settle();
  EXPECT_EQ(store_->list_at_rest("a/"), (Keys({"a/b/c", "a/d"})));
  EXPECT_EQ(store_->list_at_rest("none/"), (Keys(std::in_place)));
  put("a/b/c", "y");
  EXPECT_EQ(store_->list_at_rest("a/"), Keys()) << "written over in a folder below";
  settle();
  ASSERT_EQ(::mkfifo((path_ + "/a/pipe").c_str(), 0600), 0);
  settle();
  EXPECT_EQ(store_->list_at_rest("a/"), Keys()) << "something that list() leaves out";
}

TEST_P(FileStoreTest, FolderInThePlaceOfAnObjectIsNone) {
  fs::create_directory(path_ + "/c");
  Buffer buffer;
  EXPECT_FALSE(store_->get("c", buffer));
  EXPECT_FALSE(get_one("c", buffer));
  EXPECT_EQ(store_->open("c"), nullptr);
  EXPECT_FALSE(store_->exists("c"));
  EXPECT_EQ(caught([&] { put("c", "x"); }).os_error(), EISDIR);
  EXPECT_EQ(names_in(path_), (std::vector<std::string>{"c"})) << "a temporary file was left";
  put("file", "x");
  Error error = caught([&] { put("file/below", "x"); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_EQ(error.os_error(), ENOTDIR);
}

TEST_P(FileStoreTest, TemporariesOfDeadWritersAreInvisible) {
  put("t/c/0", "x");
  const std::string stale = ".headrace-tmp-1-0-0123456789abcdef";
  std::ofstream(path_ + "/t/c/" + stale) << "half";
  std::ofstream(path_ + "/" + stale) << "half";
  Buffer buffer;
  EXPECT_EQ(store_->list(""), (std::vector<std::string>{"t/c/0"}));
  EXPECT_EQ(store_->list_dir("t/c/"), (std::vector<DirEntry>{{"0", false}}));
  EXPECT_FALSE(store_->get("t/c/" + stale, buffer));
  EXPECT_FALSE(get_one("t/c/" + stale, buffer));
  EXPECT_EQ(store_->open(stale), nullptr);
  EXPECT_FALSE(store_->exists(stale));
  EXPECT_EQ(caught([&] { put(stale, "x"); }).code(), ErrorCode::invalid_argument);
  store_->erase_prefix("t/");
  EXPECT_FALSE(fs::exists(path_ + "/t"));
  store_->erase_prefix("");
  EXPECT_TRUE(fs::is_empty(path_));
}

TEST_P(FileStoreTest, ErasePrefixStaysInTheStore) {
  fs::create_directories(folder_ / "precious/sub");
  std::ofstream(folder_ / "precious/data") << "keep";
  std::ofstream(folder_ / "precious/sub/data") << "keep";
  put("t/x", "x");
  fs::create_directory_symlink(folder_ / "precious", path_ + "/t/out");
  fs::create_directory_symlink(folder_ / "precious", path_ + "/out");
  fs::create_directory_symlink(folder_ / "precious", path_ + "/out2");
  EXPECT_EQ(caught([&] { store_->erase_prefix("out/sub/"); }).os_error(), ELOOP);
  store_->erase_prefix("t/");    // holds a link
  store_->erase_prefix("out/");  // is a link
  EXPECT_FALSE(fs::exists(path_ + "/t"));
  EXPECT_FALSE(fs::is_symlink(path_ + "/out"));
  store_->erase_prefix("");
  EXPECT_TRUE(fs::is_empty(path_));
  EXPECT_TRUE(fs::exists(folder_ / "precious/data"));
  EXPECT_TRUE(fs::exists(folder_ / "precious/sub/data"));
}

TEST_P(FileStoreTest, RangesBeyondFourGigabytes) {
  const std::uint64_t size = (std::uint64_t{5} << 30) + 17;
  {
    std::ofstream file(path_ + "/big");
    file.seekp(static_cast<std::streamoff>(size - 5));
    file << "tail!";
  }
  auto reader = store_->open("big");
  ASSERT_EQ(reader->size(), size);
  Buffer part(5000);
  reader->read(size - 5000, part.bytes());
  EXPECT_EQ(text_of(part).substr(4995), "tail!");
  EXPECT_TRUE(
      std::all_of(part.data(), part.data() + 4995, [](std::byte b) { return b == std::byte{}; }));
}

TEST_P(FileStoreTest, ObjectsGreaterThanMemoryAreRefused) {
  std::ofstream(path_ + "/huge") << "x";
  ASSERT_EQ(::truncate((path_ + "/huge").c_str(), std::int64_t{1} << 43), 0);
  Buffer buffer;
  EXPECT_EQ(caught([&] { store_->get("huge", buffer); }).code(), ErrorCode::out_of_memory);
  EXPECT_EQ(caught([&] { get_one("huge", buffer); }).code(), ErrorCode::out_of_memory);
}

TEST_P(FileStoreTest, NamesThatAreTooLongAreErrors) {
  Buffer buffer;
  const std::string key(300, 'x');
  EXPECT_EQ(caught([&] { store_->get(key, buffer); }).os_error(), ENAMETOOLONG);
  EXPECT_EQ(caught([&] { get_one(key, buffer); }).os_error(), ENAMETOOLONG);
  EXPECT_EQ(caught([&] { put(key, "x"); }).os_error(), ENAMETOOLONG);
}

TEST_P(FileStoreTest, PermissionsAreReported) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else in a child";
  put("secret", "x");
  put("d/x", "x");
  fs::permissions(path_ + "/secret", fs::perms::none);
  fs::permissions(path_ + "/d", fs::perms::none);
  fs::permissions(folder_.path(), fs::perms::all);
  EXPECT_EQ(in_child([&] {
              if (::setuid(65534) != 0) return 98;
              Buffer buffer;
              int wrong = 0;
              for (const std::string key : {"secret", "d/x"}) {
                wrong += caught([&] { store_->get(key, buffer); }).os_error() != EACCES;
                wrong += caught([&] { get_one(key, buffer); }).os_error() != EACCES;
                wrong += caught([&] { store_->open(key); }).os_error() != EACCES;
              }
              wrong += caught([&] { store_->list(""); }).os_error() != EACCES;
              wrong += caught([&] { put("new", "x"); }).os_error() != EACCES;
              wrong += caught([&] { store_->erase("secret"); }).os_error() != EACCES;
              return wrong;
            }),
            0);
  fs::permissions(path_ + "/d", fs::perms::all);
}

// The kernel cuts a write short at RLIMIT_FSIZE and refuses the rest, as a full disk does.
TEST_P(FileStoreTest, FailedWriteLeavesTheOldObjectAndNothingElse) {
  put("t/k", "old");
  EXPECT_EQ(in_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              rlimit limit{10000, 10000};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 98;
              Error error = caught([&] { put("t/k", std::string(20000, 'n')); });
              if (error.code() != ErrorCode::io || error.os_error() != EFBIG) return 1;
              if (caught([&] { put("t/new", std::string(20000, 'n')); }).os_error() != EFBIG)
                return 2;
              return 0;
            }),
            0);
  EXPECT_EQ(text_at(*store_, "t/k"), "old");
  EXPECT_EQ(names_in(path_), (std::vector<std::string>{"k", "t"}));
}

TEST_P(FileStoreTest, KilledWriterLeavesWholeObjects) {
  auto version = [](unsigned i) {
    return std::string(100000 + i % 7, static_cast<char>('a' + i % 26));
  };
  put("k", version(0));
  for (int round = 0; round < 15; ++round) {
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (unsigned i = 0;; ++i) {
        put("k", version(i));
        put("new/" + std::to_string(i % 50), version(i));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const std::string& key : store_->list("")) {
      const std::string text = text_at(*store_, key);
      ASSERT_GE(text.size(), 100000u) << key;
      ASSERT_TRUE(std::all_of(text.begin(), text.end(), [&](char c) { return c == text[0]; }))
          << key;
      ASSERT_EQ((text.size() - 100000) % 7, text.size() - 100000) << key;
    }
  }
  store_->erase_prefix("");
  EXPECT_TRUE(fs::is_empty(path_)) << "files of the killed writers stay";
}

TEST_P(FileStoreTest, StoreComesBackAfterItsFolderWasReplaced) {
  put("k", "old");
  fs::remove_all(path_);
  EXPECT_EQ(text_at(*store_, "k"), "(none)");
  EXPECT_TRUE(store_->list("").empty());
  Store(open_store(path_, StoreMode::append)).driver().set("k", bytes_of("new"));
  EXPECT_EQ(text_at(*store_, "k"), "new");
  fs::remove_all(path_);
  put("deep/k", "again");
  EXPECT_EQ(text_at(*store_, "deep/k"), "again");
}

TEST_P(FileStoreTest, ErasingAndWritingAtOnceEndsWell) {
  std::atomic<bool> is_over = false;
  JoiningThread eraser([&] {
    while (!is_over) store_->erase_prefix("t/");
  });
  for (int i = 0; i < 300; ++i) put("t/c/0/" + std::to_string(i % 5), "x");
  is_over = true;
  eraser.join();
  put("t/c/0/last", "x");
  EXPECT_EQ(text_at(*store_, "t/c/0/last"), "x");
}

TEST_P(FileStoreTest, ThreadsShareNothing) {
  for (int i = 0; i < 40; ++i)
    put(std::to_string(i), std::string(static_cast<std::size_t>(i * 1000), 'x'));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {  // more threads than the pool, each with its own ring
    threads.emplace_back([&] {
      std::vector<Buffer> buffers(40);
      std::vector<GetRequest> requests;
      for (int i = 0; i < 40; ++i)
        requests.push_back({std::to_string(i), &buffers[static_cast<std::size_t>(i)]});
      for (int round = 0; round < 5; ++round) {
        store_->get_many(requests);
        for (std::size_t i = 0; i < 40; ++i) wrong += buffers[i].size() != i * 1000;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(FileStore, DirectReadsOfEveryAlignment) {
  SKIP_IF_PORTABLE("reads past the page cache");
  TempFolder folder;
  Store store = open_store(folder.path(), StoreMode::append, {{"direct", "true"}});
  std::mt19937 random(1);
  for (std::size_t n : {1u, 511u, 512u, 4095u, 4096u, 4097u, 8192u, 1048577u, 3000000u}) {
    std::string text(n, '\0');
    for (char& c : text) c = static_cast<char>(random());
    store.driver().set("k", bytes_of(text));
    ASSERT_TRUE(text_at(store.driver(), "k") == text) << n;
    auto reader = store.driver().open("k");
    Buffer buffer(n + 8192);
    for (int i = 0; i < 50; ++i) {
      std::size_t offset = random() % (n + 1);
      if (i % 2 == 0) offset = offset / 4096 * 4096;
      std::size_t nbytes = i % 3 == 0 ? n - offset : random() % (n - offset + 1);
      std::size_t misfit = reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096;
      std::size_t shift = (i % 4 == 0 ? 4096 - misfit : random() % 4096) % 4096;
      if (i % 5 == 1) shift = (offset + 8192 - misfit) % 4096;  // memory lies as the file does
      MutableBytes dst = buffer.bytes().subspan(shift, nbytes);
      reader->read(offset, dst);
      ASSERT_TRUE(text_of(dst) == text.substr(offset, nbytes))
          << n << " " << offset << " " << nbytes;
    }
  }
}

// Refuses io_uring_setup with EPERM in this process, as containers do.
bool forbid_uring() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(FileStore, UringAskedForIsNeverSilentlyPread) {
  TempFolder folder;
  EXPECT_EQ(in_child([&] {
              if (!forbid_uring()) return 98;
              Error error = caught([&] {
                open_store(folder / "a.zarr", StoreMode::append, {{"io", "uring"}});
              });
              if (error.code() != ErrorCode::unsupported) return 1;
              std::string why_not;
              if (uring_available(why_not) || why_not.empty()) return 2;
              if (std::string(error.what()).find(why_not) == std::string::npos) return 3;
              return fs::exists(folder / "a.zarr") ? 4 : 0;
            }),
            0);
}

}  // namespace
}  // namespace headrace
