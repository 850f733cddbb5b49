// The folder of a cached store: what it takes for its own, what it leaves alone, and what happens
// when it cannot be written.

#include <gtest/gtest.h>
#include <libdeflate.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>

#include "base/bytes.h"
#include "conformance/error_code.h"
#include "conformance/inject.h"
#include "conformance/temp_folder.h"
#include "headrace/cached_store.h"
#include "store/cache_folder.h"

namespace headrace::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "headrace-cache-1";

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string read(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::map<std::string, std::string> tree_of(const fs::path& folder) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().string().find(kFolder) != std::string::npos) continue;
    tree[entry.path().string()] = entry.is_regular_file() ? read(entry.path()) : "(folder)";
  }
  return tree;
}

std::string text_of(const Store& store, const std::string& key) {
  Buffer buffer;
  if (!store.driver().get(key, buffer)) return "(none)";
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

Store cached(const Store& store, const std::string& directory, std::uint64_t limit = 1 << 20) {
  return cached_store(store,
                      {.memory_nbytes = 0,
                       .directory = directory,
                       .disk_nbytes = limit,
                       .block_nbytes = 64,
                       .name = "store"});
}

Store store_of(int objects, std::size_t nbytes = 500) {
  Store store = memory_store();
  for (int i = 0; i < objects; ++i) {
    const std::string text(nbytes, static_cast<char>('a' + i));
    store.set(std::to_string(i), bytes_of(text));
  }
  return store;
}

void read_all(const Store& store, int objects) {
  for (int i = 0; i < objects; ++i)
    EXPECT_EQ(text_of(store, std::to_string(i)), std::string(500, static_cast<char>('a' + i)));
}

TEST(CacheFolder, LeavesAllOtherFilesAlone) {
  const TempFolder folder;
  const fs::path mine = folder / "mine";
  write(mine / "thesis.bin", std::string(50'000, 'x'));
  write(mine / "3f" / "0123456789abcd", std::string(50'000, 'x'));  // named as ours are
  write(mine / "3f" / ".headrace-tmp-1-2-3", "of another store");
  write(mine / "deep" / "a" / "b", "b");
  const fs::path old = mine / "3f" / ".headrace-tmp-1-2-3";
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(100));
  const auto before = tree_of(mine);
  const Store store = store_of(8);
  for (int round = 0; round < 2; ++round) read_all(cached(store, mine, 2000), 8);
  EXPECT_EQ(tree_of(mine), before);
  EXPECT_TRUE(fs::exists(mine / kFolder / "CACHEDIR.TAG"));
  EXPECT_TRUE(read(mine / kFolder / "CACHEDIR.TAG")
                  .starts_with("Signature: 8a477f597d28d172789f06886806bc55"));
  struct stat st;
  ASSERT_EQ(::stat((mine / kFolder).c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
}

TEST(CacheFolder, SweepsOnlyWhatHasANameOfItsOwn) {
  const TempFolder folder;
  const fs::path outside = folder / "outside";
  write(outside / "0123456789abcd", std::string(9000, 'o'));
  write(outside / "file", std::string(9000, 'o'));
  const Store store = store_of(8);
  read_all(cached(store, folder / "cache", 2000), 8);
  const fs::path ours = fs::path(folder / "cache") / kFolder;
  // Below the marked folder, but none that we would make.
  for (const char* name : {"notes.txt",
                           "00/notes.txt",
                           "00/0123456789abcd0",
                           "00/0123456789ABCD",
                           "000/0123456789abcd",
                           "zz/0123456789abcd",
                           "00/sub/0123456789abcd"}) {
    write(ours / name, std::string(9000, 'n'));
  }
  fs::create_symlink(outside / "file", ours / "00" / "00000000000000");
  fs::remove_all(ours / "01");
  fs::create_directory_symlink(outside, ours / "01");
  read_all(cached(store, folder / "cache", 2000), 8);
  for (const char* name : {"notes.txt",
                           "00/notes.txt",
                           "00/0123456789abcd0",
                           "00/0123456789ABCD",
                           "000/0123456789abcd",
                           "zz/0123456789abcd",
                           "00/sub/0123456789abcd"}) {
    EXPECT_TRUE(fs::exists(ours / name)) << name;
  }
  EXPECT_EQ(read(outside / "file"), std::string(9000, 'o'));
  EXPECT_EQ(read(outside / "0123456789abcd"), std::string(9000, 'o'));
}

TEST(CacheFolder, FollowsNoLinkToACopyOrToAFolderOfThem) {
  const TempFolder folder;
  const Store store = store_of(1);
  read_all(cached(store, folder / "cache"), 1);
  const fs::path ours = fs::path(folder / "cache") / kFolder;
  // All copies are moved away, and links put in their places.
  const fs::path away = folder / "away";
  fs::create_directories(away);
  int links = 0;
  for (const auto& entry : fs::directory_iterator(ours)) {
    if (!entry.is_directory()) continue;
    const fs::path moved = away / entry.path().filename();
    fs::rename(entry.path(), moved);
    if (++links % 2 == 0) {
      fs::create_directory_symlink(moved, entry.path());
    } else {
      fs::create_directory(entry.path());
      for (const auto& file : fs::directory_iterator(moved))
        fs::create_symlink(file.path(), entry.path() / file.path().filename());
    }
  }
  const auto before = tree_of(away);
  store.set("0", bytes_of(std::string(500, 'N')));  // what a link leads to is of the old object
  const Store again = cached(store, folder / "cache");
  EXPECT_EQ(text_of(again, "0"), std::string(500, 'N'));
  EXPECT_EQ(cache_stats(again).disk_hits, 0);
  EXPECT_EQ(tree_of(away), before);
}

TEST(CacheFolder, NamesTheFileThatCannotBeWritten) {
  const TempFolder folder;
  const CacheFolder cache(folder.path());
  const std::string name = "3f/0123456789abcd";
  std::filesystem::create_directories(cache.path() + '/' + name + "/below");
  const ConstBytes parts[] = {bytes_of("x")};
  std::string message;
  EXPECT_EQ(code_of([&] { cache.write(name, parts); }, &message), ErrorCode::io);
  EXPECT_NE(message.find(cache.path() + "/3f/"), std::string::npos) << message;
  EXPECT_EQ(message.find("/proc/"), std::string::npos) << message;
}

TEST(CacheFolder, RefusesWhatIsNotItsOwn) {
  const Store store = store_of(1);
  const auto refused = [&](const std::function<void(const fs::path&)>& prepare, ErrorCode code) {
    const TempFolder folder;
    const fs::path ours = fs::path(folder.path()) / kFolder;
    prepare(ours);
    const auto before = fs::exists(ours / "data") ? read(ours / "data") : "";
    std::string message;
    EXPECT_EQ(code_of([&] { cached(store, folder.path()); }, &message), code);
    EXPECT_NE(message.find(kFolder), std::string::npos) << message;
    EXPECT_EQ(fs::exists(ours / "data") ? read(ours / "data") : "", before);
  };
  const auto make = [&](const fs::path& ours) {
    cached(store, ours.parent_path().string());
    ASSERT_TRUE(fs::exists(ours / "CACHEDIR.TAG"));
  };
  refused([](const fs::path& ours) { write(ours / "data", "somebody's"); },
          ErrorCode::invalid_argument);
  refused(
      [](const fs::path& ours) {
        fs::create_directory(ours);
        fs::permissions(ours, fs::perms::owner_all);
      },
      ErrorCode::invalid_argument);
  refused([](const fs::path& ours) { write(ours, "a file"); }, ErrorCode::invalid_argument);
  refused(
      [&](const fs::path& ours) {
        make(ours);
        write(ours / "CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n# Another's\n");
      },
      ErrorCode::invalid_argument);
  refused(
      [&](const fs::path& ours) {
        make(ours);
        fs::rename(ours, ours.parent_path() / "elsewhere");
        fs::create_directory_symlink(ours.parent_path() / "elsewhere", ours);
      },
      ErrorCode::invalid_argument);
  for (const auto bits : {fs::perms::group_write, fs::perms::others_write}) {
    refused(
        [&](const fs::path& ours) {
          make(ours);
          fs::permissions(ours, bits, fs::perm_options::add);
        },
        ErrorCode::permission_denied);
  }
  if (::geteuid() != 0) return;
  refused(
      [&](const fs::path& ours) {
        make(ours);
        ASSERT_EQ(::chown(ours.c_str(), 65534, 65534), 0);
      },
      ErrorCode::permission_denied);
}

TEST(CacheFolder, LiesOutsideTheStore) {
  const TempFolder folder;
  const fs::path root = folder / "data.zarr";
  write(root / "0", std::string(500, 'a'));
  write(root / "group" / "zarr.json", "{}");
  fs::create_directory_symlink(root, folder / "link");
  const auto before = tree_of(folder.path());
  const Store store = open_store(root.string());
  for (const fs::path& inside : {root,
                                 root / "group",
                                 root / "new" / "folder",
                                 fs::path(folder / "link"),
                                 fs::path(folder / "link") / "x",
                                 root / "group" / ".."}) {
    std::string message;
    EXPECT_EQ(code_of([&] { cached(store, inside); }, &message), ErrorCode::invalid_argument);
    EXPECT_NE(message.find("lies in the store"), std::string::npos) << message;
  }
  EXPECT_EQ(tree_of(folder.path()), before);
  // The folder that holds the store is a good one.
  read_all(cached(store, folder.path(), 1), 1);
  read_all(cached(store, folder.path(), 1), 1);
  EXPECT_EQ(tree_of(folder.path()), before);
}

// A copy whose checksum fits, but whose name does not fit into it.
TEST(CacheFolder, PassesOverFilesThatLieAboutTheirName) {
  const TempFolder folder;
  const Store store = store_of(1);
  for (const std::uint32_t size : {1u, 1000u, 0x7fffffffu, 0xffffffffu}) {
    read_all(cached(store, folder / "cache"), 1);
    std::int64_t files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder / "cache")) {
      if (!entry.is_regular_file() || entry.path().filename() == "CACHEDIR.TAG") continue;
      std::byte name_size[4];
      store_le(name_size, size);
      std::byte crc[4];
      store_le(crc, libdeflate_crc32(0, name_size, sizeof name_size));
      write(entry.path(),
            "hrcache1" + std::string(headrace::text_of(crc)) +
                std::string(headrace::text_of(name_size)));
      ++files;
    }
    ASSERT_GT(files, 8);
    const Store again = cached(store, folder / "cache");
    read_all(again, 1);
    EXPECT_GT(cache_stats(again).damaged_files, 0);
  }
}

// In a child without root's rights, to which modes mean nothing. 0: `body` was true.
int as_user(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(3);
    int status = 2;
    try {
      status = body() ? 0 : 1;
    } catch (const std::exception& error) {
      static_cast<void>(!::write(2, error.what(), std::strlen(error.what())));
    }
    ::_exit(status);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

void for_each_folder(const fs::path& folder, const std::function<void(const fs::path&)>& body) {
  std::vector<fs::path> folders{folder};
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_directory()) folders.push_back(entry.path());
  for (const fs::path& each : folders) body(each);
}

// `whole`: the cache's folder can be written no more, or only those below it.
bool forgets_what_it_cannot_erase(const std::string& directory, bool whole) {
  const auto faults = std::make_shared<Faults>();
  const Store behind(make_faulty_store(memory_store().shared_driver(), faults));
  behind.set("a", bytes_of(std::string(300, 'o')));
  behind.set("b/c", bytes_of(std::string(300, 'o')));
  const Store store = cached(behind, directory);
  if (text_of(store, "a") != std::string(300, 'o')) return false;
  if (text_of(store, "b/c") != std::string(300, 'o')) return false;
  const fs::path ours = fs::path(directory) / kFolder;
  for_each_folder(ours, [&](const fs::path& folder) {
    if (whole || folder != ours) fs::permissions(folder, fs::perms(0500));
  });
  store.set("a", bytes_of(std::string(300, 'n')));  // raises nothing
  bool good = text_of(store, "a") == std::string(300, 'n') && cache_stats(store).failures > 0;
  good = good && text_of(cached(behind, directory), "a") == std::string(300, 'n');
  // What the store raises is what is heard, and all objects are forgotten.
  faults->fail_write(1, EIO);
  std::string message;
  good = good && code_of([&] { store.set("b/c", {}); }, &message) == ErrorCode::io &&
         message.find("(injected)") != std::string::npos;
  behind.set("b/c", bytes_of(std::string(300, 'n')));
  good = good && text_of(store, "b/c") == std::string(300, 'n');
  for_each_folder(ours, [&](const fs::path& folder) { fs::permissions(folder, fs::perms(0700)); });
  return good;
}

TEST(CacheFolder, ServesNothingThatItCouldNotErase) {
  for (const bool whole : {false, true}) {
    const TempFolder folder;
    fs::permissions(folder.path(), fs::perms(0777));
    EXPECT_EQ(as_user([&] { return forgets_what_it_cannot_erase(folder / "cache", whole); }), 0)
        << whole;
  }
}

// A process that dies in the middle of a write leaves no copy of what was there before.
TEST(CacheFolder, ForgetsBeforeItWrites) {
  const TempFolder folder;
  const std::string root = folder / "data.zarr";
  const Store store = open_store(root, StoreMode::append);
  store.set("a", bytes_of(std::string(300, 'o')));
  EXPECT_EQ(text_of(cached(store, folder / "cache"), "a"), std::string(300, 'o'));
  class Dies final : public CustomStore {
   public:
    explicit Dies(Store store) : store_(std::move(store)) {}
    std::string url() const override { return "dies"; }
    bool read_only() const override { return false; }
    std::size_t batch_size() const override { return 1; }
    std::vector<std::optional<StoredBytes>> get(std::span<const std::string>) override {
      return {std::nullopt};
    }
    std::optional<std::uint64_t> size(const std::string&) override { return std::nullopt; }
    std::optional<StoredBytes> get_range(const std::string&, const ByteRange&) override {
      return std::nullopt;
    }
    void set(const std::string& key, std::span<const std::byte> bytes) override {
      store_.set(key, bytes);
      ::_exit(0);
    }
    void erase(const std::string&) override {}
    void erase_prefix(const std::string&) override {}
    std::vector<std::string> list(const std::string&) override { return {}; }
    std::vector<std::string> list_dir(const std::string&) override { return {}; }

   private:
    Store store_;
  };
  const pid_t child = ::fork();
  if (child == 0) {
    const Store dying = cached(make_store(std::make_shared<Dies>(store)), folder / "cache");
    dying.set("a", bytes_of(std::string(300, 'n')));
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(text_of(cached(store, folder / "cache"), "a"), std::string(300, 'n'));
}

TEST(CacheFolder, IsSweptByProcessesThatShareIt) {
  const TempFolder folder;
  const Store store = store_of(20);
  std::vector<pid_t> children;
  for (unsigned child = 0; child < 4; ++child) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    const Store mine = cached(store, folder / "cache", 12'000);
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 20; ++i) {
        if (text_of(mine, std::to_string(i)) != std::string(500, static_cast<char>('a' + i)))
          ::_exit(1);
      }
    }
    ::_exit(cache_stats(mine).failures + cache_stats(mine).damaged_files == 0 ? 0 : 2);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace headrace::test
