// Copies between stores that are more than they seem: links, repositories, references.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/error_code.h"
#include "conformance/temp_folder.h"
#include "headrace/error.h"
#include "headrace/store.h"
#include "store/file.h"
#include "store/overlap.h"
#include "store/reference/catalogue.h"
#include "store/store.h"

namespace headrace::test {
namespace {

using std::filesystem::exists;

class Copies : public testing::Test {
 protected:
  Store folder(const char* name) { return open_store(folder_ / name, StoreMode::append); }
  static void set(const Store& store, const char* key, std::string_view text) {
    store.set(key, bytes_of(text));
  }
  static std::string get(const Store& store, const char* key) {
    Buffer bytes;
    return store.driver().get(key, bytes) ? std::string(text_of(bytes)) : "(none)";
  }
  static CopyProgress sync(const Store& from, const Store& to) {
    CopyOptions options;
    options.over = CopyOver::other_size;
    options.remove_others = true;
    return copy_objects(from, "", to, "", options);
  }

  TempFolder folder_;
};

TEST_F(Copies, RemoveALinkAndNotWhatLiesBehindIt) {
  const Store from = folder("from"), to = folder("to"), precious = folder("precious");
  set(precious, "a", "mine");
  set(precious, "b", "mine");
  set(from, "kept/a", "other");
  set(to, "old/x", "text");
  for (const char* name : {"to/link", "to/kept"})
    std::filesystem::create_directory_symlink(folder_ / "precious", folder_ / name);
  // "kept/a" is written where the link leads to, "kept/b" is not of this copy.
  const CopyProgress done = sync(from, to);
  EXPECT_EQ(done.removed, 2u);
  EXPECT_FALSE(exists(folder_ / "to/old/x"));
  EXPECT_FALSE(std::filesystem::is_symlink(folder_ / "to/link"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "to/kept"));
  EXPECT_EQ(get(precious, "b"), "mine");
  EXPECT_EQ(get(to, "kept/a"), "other");
}

// Chunks without a compressor always have the same size.
TEST_F(Copies, TakeAnewWhatWasWrittenSinceInTheSameSize) {
  using namespace std::chrono_literals;
  const Store from = folder("from"), to = folder("to");
  const auto copied = [&](const Store& source, CopyOver over) {
    CopyOptions options;
    options.over = over;
    return copy_objects(source, "", to, "", options).copied;
  };
  set(from, "x/c/0", "before");
  set(from, "x/c/1", "before");
  std::this_thread::sleep_for(50ms);  // steps of a file system's clock: up to 10 ms
  EXPECT_EQ(copied(from, CopyOver::older), 2u);
  EXPECT_EQ(copied(from, CopyOver::older), 0u);
  set(from, "x/c/0", "behind");
  EXPECT_EQ(copied(from, CopyOver::other_size), 0u);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(copied(from, CopyOver::older), 1u);
  EXPECT_EQ(get(to, "x/c/0"), "behind");
  EXPECT_EQ(copied(from, CopyOver::older), 0u);
  // As programs restore files, with the time that they had.
  set(from, "x/c/0", "former");
  std::filesystem::last_write_time(folder_ / "from/x/c/0",
                                   std::filesystem::file_time_type::clock::now() - 24h);
  EXPECT_EQ(copied(from, CopyOver::older), 1u);
  EXPECT_EQ(get(to, "x/c/0"), "former");
  // And a copy whose time tells nothing of when it was made.
  std::filesystem::last_write_time(folder_ / "to/x/c/0",
                                   std::filesystem::file_time_type::clock::now() + 24h);
  set(from, "x/c/0", "at last");
  set(from, "x/c/0", "latest");
  EXPECT_EQ(copied(from, CopyOver::older), 1u);
  EXPECT_EQ(get(to, "x/c/0"), "latest");
}

// A file is written after the time that a coarse clock gives it.
TEST(WrittenOf, ReachesToTheNextTickOfTheFileSystemsClock) {
  const auto between = [](timespec modified, timespec changed) {
    const WrittenAt at = written_of(modified, changed).value();
    return std::pair(at.earliest.time_since_epoch().count(), at.latest.time_since_epoch().count());
  };
  using Times = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(between({5, 1}, {4, 0}), Times(4'000'000'000, 5'010'000'001));
  EXPECT_EQ(between({4, 0}, {5, 1}), Times(4'000'000'000, 5'010'000'001));
  EXPECT_EQ(between({5, 0}, {4, 3}), Times(4'000'000'003, 7'000'000'000));
  EXPECT_EQ(between({-5, 0}, {-5, 0}), Times(-5'000'000'000, -3'000'000'000));
  EXPECT_FALSE(written_of({INT64_MAX, 0}, {0, 0}));
  EXPECT_FALSE(written_of({INT64_MAX / 1'000'000'000, 0}, {0, 0}));
}

TEST_F(Copies, CompareBytesWhereAStoreTellsNoTimes) {
  const Store from = memory_store(), to = folder("to");
  CopyOptions options;
  options.over = CopyOver::older;
  set(from, "x/c/0", "before");
  set(from, "x/c/1", "before");
  EXPECT_EQ(copy_objects(from, "", to, "", options).copied, 2u);
  set(from, "x/c/1", "behind");
  EXPECT_EQ(copy_objects(from, "", to, "", options).copied, 1u);
  EXPECT_EQ(get(to, "x/c/1"), "behind");
}

TEST_F(Copies, FromAnArchiveGoByItsTime) {
  using namespace std::chrono_literals;
  const auto write = [&](std::string_view text) {
    Store archive = open_store(folder_ / "a.zip", StoreMode::overwrite);
    archive.set("x/c/0", bytes_of(text));
    archive.close();
  };
  const Store to = folder("to");
  const auto copied = [&] {
    CopyOptions options;
    options.over = CopyOver::older;
    return copy_objects(open_store(folder_ / "a.zip"), "", to, "", options).copied;
  };
  write("before");
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(copied(), 1u);
  EXPECT_EQ(copied(), 0u);
  write("behind");
  EXPECT_EQ(copied(), 1u);
  EXPECT_EQ(get(to, "x/c/0"), "behind");
}

TEST_F(Copies, OfNothingAreNotFoundAndMakeNothing) {
  const Store from = folder("from"), to = folder("to");
  EXPECT_EQ(code_of([&] { sync(from, to); }), ErrorCode::not_found);
  set(to, "a", "text");
  EXPECT_EQ(code_of([&] { sync(from, to); }), ErrorCode::not_found);
  EXPECT_EQ(get(to, "a"), "text");
  set(from, "x/a", "text");
  const auto open_new = [&] { return folder("new"); };
  EXPECT_EQ(code_of([&] { copy_objects(from, "y", open_new, ""); }), ErrorCode::not_found);
  EXPECT_FALSE(exists(folder_ / "new"));
  EXPECT_EQ(copy_objects(from, "x", open_new, "").copied, 1u);
  EXPECT_EQ(get(folder("new"), "a"), "text");
}

constexpr const char* kArray = R"({"zarr_format": 3, "node_type": "array"})";
constexpr const char* kGroup = R"({"zarr_format": 3, "node_type": "group"})";

// They would be read as its elements.
TEST_F(Copies, AreRefusedOntoChunksThatTheSourceLacks) {
  for (const std::string format : {"3", "2"}) {
    const bool is_v3 = format == "3";
    const Store from = folder(("from" + format).c_str()), to = folder(("to" + format).c_str());
    const char* document = is_v3 ? "g/x/zarr.json" : "g/x/.zarray";
    for (const Store& store : {from, to}) {
      set(store, "zarr.json", kGroup);
      set(store, "g/zarr.json", kGroup);
      set(store, document, kArray);
      set(store, "g/x/c/0", "chunk");
    }
    set(from, "g/x/c/1", "new");
    set(to, "g/beside/zarr.json", kArray);
    set(to, "g/beside/c/0", "chunk");
    set(to, "g/notes.txt", "text");
    copy_objects(from, "", to, "");
    from.erase("g/x/c/1");
    set(to, "g/x/c/2", "old");
    for (const CopyOver over :
         {CopyOver::everything, CopyOver::other_size, CopyOver::other_bytes}) {
      CopyOptions options;
      options.over = over;
      set(from, "g/notes.txt", "not copied");
      for (const char* prefix : {"", "g", "g/x"}) {
        std::string message;
        EXPECT_EQ(code_of([&] { copy_objects(from, prefix, to, prefix, options); }, &message),
                  ErrorCode::invalid_argument);
        EXPECT_NE(message.find("2 objects that the source lacks (first: g/x/c/1)"),
                  std::string::npos)
            << message;
      }
      EXPECT_EQ(get(to, "g/notes.txt"), "text");
    }
    // To where nothing of that array lies; and one that has no more than the source.
    copy_objects(from, "g/x", to, "g/other");
    sync(from, to);
    EXPECT_EQ(get(to, "g/x/c/1"), "(none)");
    EXPECT_EQ(copy_objects(from, "", to, "").copied, from.list("").size());
  }
}

// They would be read in place of those that were copied.
TEST_F(Copies, AreRefusedOntoDocumentsThatTheSourceLacks) {
  const Store from = folder("from");
  set(from, ".zgroup", R"({"zarr_format": 2})");
  set(from, "x/.zarray", kArray);
  set(from, "x/0", "chunk");
  for (const char* document :
       {".zmetadata", ".zattrs", "zarr.json", ".zarray", "x/zarr.json", "x/.zattrs"}) {
    const Store to = folder("to");
    copy_objects(from, "", to, "");
    set(to, "beside/zarr.json", kGroup);
    set(to, "x/0", "older");
    set(to, document, kGroup);
    for (const CopyOver over : {CopyOver::everything, CopyOver::older}) {
      CopyOptions options;
      options.over = over;
      std::string message;
      EXPECT_EQ(code_of([&] { copy_objects(from, "", to, "", options); }, &message),
                ErrorCode::invalid_argument);
      EXPECT_NE(message.find(std::string("1 object that the source lacks (first: ") + document),
                std::string::npos)
          << message;
    }
    EXPECT_EQ(get(to, "x/0"), "older");
    sync(from, to);
    EXPECT_EQ(to.list(""), from.list(""));
  }
}

// They are no array's as long as no document says so.
TEST_F(Copies, GoOntoOthersInGroups) {
  const Store from = folder("from"), to = folder("to");
  for (const char* text : {kGroup, "{", R"({"node_type": {"node_type": "array"}})"}) {
    set(from, "zarr.json", text);
    set(to, "c/0", "mine");
    copy_objects(from, "", to, "");
    EXPECT_EQ(get(to, "c/0"), "mine");
  }
}

// Counts what is asked of it.
class CountingStore final : public CustomStore {
 public:
  std::string url() const override { return "counting://"; }
  bool read_only() const override { return false; }
  std::size_t batch_size() const override { return 1; }
  std::vector<std::optional<StoredBytes>> get(std::span<const std::string> keys) override {
    return std::vector<std::optional<StoredBytes>>(keys.size());
  }
  std::optional<std::uint64_t> size(const std::string&) override { return std::nullopt; }
  std::optional<StoredBytes> get_range(const std::string&, const ByteRange&) override {
    return std::nullopt;
  }
  void set(const std::string&, std::span<const std::byte>) override { ++writes; }
  void erase(const std::string&) override {}
  void erase_prefix(const std::string&) override {}
  std::vector<std::string> list(const std::string&) override {
    ++lists;
    if (!can_list) throw Error(ErrorCode::unsupported, "no lists here");
    return {};
  }
  std::vector<std::string> list_dir(const std::string& prefix) override { return list(prefix); }

  std::atomic<int> lists = 0, writes = 0;
  bool can_list = true;
};

TEST_F(Copies, ToWhereNothingIsCostOneList) {
  const Store from = folder("from");
  for (const char* name : {"a", "b", "c"}) {
    set(from, (std::string(name) + "/zarr.json").c_str(), kArray);
    set(from, (std::string(name) + "/c/0").c_str(), "chunk");
  }
  const auto counting = std::make_shared<CountingStore>();
  copy_objects(from, "", make_store(counting), "");
  EXPECT_EQ(counting->lists, 1);
  EXPECT_EQ(counting->writes, 6);
  counting->can_list = false;
  copy_objects(from, "", make_store(counting), "");
  EXPECT_EQ(counting->writes, 12);
}

// Says of each object that it is one byte when it is first asked, as it was when it was listed.
class GrowingStore final : public CustomStore {
 public:
  static constexpr std::size_t kNbytes = 100;
  explicit GrowingStore(std::uint64_t later_nbytes) : later_nbytes_(later_nbytes) {}
  std::string url() const override { return "growing://"; }
  bool read_only() const override { return true; }
  std::size_t batch_size() const override { return 1; }
  std::vector<std::optional<StoredBytes>> get(std::span<const std::string> keys) override {
    std::vector<std::optional<StoredBytes>> found(keys.size());
    for (auto& each : found) each = StoredBytes{std::as_bytes(std::span(text_)), nullptr};
    return found;
  }
  std::optional<std::uint64_t> size(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    return asked_.insert(key).second ? 1 : later_nbytes_;
  }
  std::optional<StoredBytes> get_range(const std::string&, const ByteRange&) override {
    return std::nullopt;
  }
  void set(const std::string&, std::span<const std::byte>) override {}
  void erase(const std::string&) override {}
  void erase_prefix(const std::string&) override {}
  std::vector<std::string> list(const std::string&) override {
    std::vector<std::string> keys;
    for (int i = 0; i < 20; ++i) keys.push_back("x/c/" + std::to_string(i));
    keys.emplace_back("x/zarr.json");
    return keys;
  }
  std::vector<std::string> list_dir(const std::string& prefix) override { return list(prefix); }

 private:
  const std::uint64_t later_nbytes_;
  const std::string text_ = std::string(kNbytes, ' ');
  std::mutex mutex_;
  std::set<std::string> asked_;
};

// Counts the bytes that are handed to it at a time.
class SlowTarget final : public StoreDriver {
 public:
  std::string url() const override { return "slow://"; }
  bool read_only() const override { return false; }
  bool get(std::string_view key, Buffer& into) override { return to_.driver().get(key, into); }
  std::unique_ptr<ObjectReader> open(std::string_view) override { return nullptr; }
  bool exists(std::string_view key) override { return to_.exists(key); }
  void set(std::string_view key, ConstBytes bytes) override {
    const std::uint64_t now = nbytes_ += bytes.size();
    for (std::uint64_t most = most_nbytes; now > most;) {
      if (most_nbytes.compare_exchange_weak(most, now)) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    to_.set(key, bytes);
    nbytes_ -= bytes.size();
  }
  void erase(std::string_view) override {}
  void erase_prefix(std::string_view) override {}
  std::vector<std::string> list(std::string_view prefix) override { return to_.list(prefix); }
  std::vector<DirEntry> list_dir(std::string_view) override { return {}; }

  std::atomic<std::uint64_t> most_nbytes = 0;

 private:
  const Store to_ = memory_store();
  std::atomic<std::uint64_t> nbytes_ = 0;
};

TEST_F(Copies, TellWhatTheyLeaveOut) {
  const Store from = folder("from"), to = folder("to");
  set(from, "a", "text");
  std::ofstream(folder_ / "from/b\\c") << "text";
  std::filesystem::create_directory(folder_ / "from/sub");
  std::ofstream(folder_ / "from/sub/\\") << "text";
  const CopyProgress done = copy_objects(from, "", to, "");
  EXPECT_EQ(done.copied, 1u);
  EXPECT_EQ(done.left_out.objects, 2u);
  EXPECT_TRUE(done.left_out.first == "b\\c" || done.left_out.first == "sub/\\");
  LeftOut left_out;
  from.list_dir("sub", left_out);
  EXPECT_EQ(left_out.first, "sub/\\");
  std::string message;
  EXPECT_EQ(code_of([&] { copy_objects(from, "sub", to, ""); }, &message), ErrorCode::not_found);
  EXPECT_NE(message.find("whose key is a path"), std::string::npos) << message;
}

// Lists an object that it does not have when it is read, so many times; for ever: none is -1.
class ForgetfulStore final : public CustomStore {
 public:
  ForgetfulStore(std::string key, int times) : key_(std::move(key)), times_(times) {}
  std::string url() const override { return "forgetful://"; }
  bool read_only() const override { return true; }
  std::size_t batch_size() const override { return 1; }
  std::vector<std::optional<StoredBytes>> get(std::span<const std::string> keys) override {
    std::vector<std::optional<StoredBytes>> found;
    for (const std::string& key : keys) {
      found.emplace_back();
      if (key == key_ && times_ != 0) {
        --times_;
      } else {
        found.back() = StoredBytes{std::as_bytes(std::span(text_)), nullptr};
      }
    }
    return found;
  }
  std::optional<std::uint64_t> size(const std::string& key) override {
    if (key == key_ && !knows_size) return std::nullopt;
    return text_.size();
  }
  std::optional<StoredBytes> get_range(const std::string&, const ByteRange&) override {
    return std::nullopt;
  }
  void set(const std::string&, std::span<const std::byte>) override {}
  void erase(const std::string&) override {}
  void erase_prefix(const std::string&) override {}
  std::vector<std::string> list(const std::string&) override {
    std::vector<std::string> keys{"x/c/0", "x/c/1", "x/zarr.json"};
    if (lists_ == 0) std::erase(keys, key_);
    if (lists_ > 0) --lists_;
    return keys;
  }
  std::vector<std::string> list_dir(const std::string& prefix) override { return list(prefix); }
  // After so many lists it is in none.
  void forget_after(int lists) { lists_ = lists; }

  bool knows_size = true;

 private:
  const std::string key_, text_ = "[1]";
  std::atomic<int> times_, lists_ = -1;
};

TEST_F(Copies, MissNothingThatIsListed) {
  for (const char* key : {"x/c/1", "x/zarr.json"}) {
    for (const bool knows_size : {true, false}) {
      const auto forgetful = std::make_shared<ForgetfulStore>(key, -1);
      forgetful->knows_size = knows_size;
      const Store to = memory_store();
      std::string message;
      EXPECT_EQ(code_of([&] { copy_objects(make_store(forgetful), "", to, ""); }, &message),
                ErrorCode::io);
      EXPECT_NE(message.find(std::string("1 object is listed and not found when read (first: ") +
                             key + ')'),
                std::string::npos)
          << message;
      EXPECT_EQ(get(to, "x/zarr.json"), "(none)");
    }
  }
  // One that is written anew meanwhile, by removing it first.
  const Store to = memory_store();
  const CopyProgress done =
      copy_objects(make_store(std::make_shared<ForgetfulStore>("x/c/1", 1)), "", to, "");
  EXPECT_EQ(done.copied, 3u);
  EXPECT_EQ(done.done, 3u);
  EXPECT_EQ(done.done_nbytes, done.nbytes);
  EXPECT_EQ(done.gone.objects, 0u);
  EXPECT_EQ(get(to, "x/c/1"), "[1]");
}

TEST_F(Copies, TellWhatIsGone) {
  const auto forgetful = std::make_shared<ForgetfulStore>("x/c/1", -1);
  forgetful->forget_after(2);
  const CopyProgress done = copy_objects(make_store(forgetful), "", memory_store(), "");
  EXPECT_EQ(done.copied, 2u);
  EXPECT_EQ(done.copied_nbytes, 6u);
  EXPECT_EQ(done.gone.objects, 1u);
  EXPECT_EQ(done.gone.first, "x/c/1");
}

// Whatever a list says: what an object has is taken from the memory that there is.
TEST_F(Copies, HoldWhatObjectsHaveAndNotWhatIsListed) {
  CopyOptions options;
  options.verify = true;
  for (const std::uint64_t memory : {50, 100, 350, 3000}) {
    options.memory_nbytes = memory;
    const auto target = std::make_shared<SlowTarget>();
    const Store from = make_store(std::make_shared<GrowingStore>(GrowingStore::kNbytes));
    EXPECT_EQ(copy_objects(from, "", Store(target), "", options).copied, 21u);
    EXPECT_EQ(Store(target).list("").size(), 21u);
    EXPECT_LE(target->most_nbytes, std::max<std::uint64_t>(memory, GrowingStore::kNbytes));
  }
  // One that goes on to say so.
  std::string message;
  const Store from = make_store(std::make_shared<GrowingStore>(1));
  EXPECT_EQ(code_of([&] { copy_objects(from, "", memory_store(), "", options); }, &message),
            ErrorCode::corrupt);
  EXPECT_NE(message.find("larger than the store says"), std::string::npos) << message;
}

TEST_F(Copies, CompareDocumentsByTheirBytes) {
  const Store from = folder("from"), to = folder("to");
  for (const char* key : {"x/c/0", "x/zarr.json"}) {
    set(from, key, "[100]");
    set(to, key, "[200]");
  }
  EXPECT_EQ(sync(from, to).copied, 1u);
  EXPECT_EQ(get(to, "x/zarr.json"), "[100]");
  EXPECT_EQ(get(to, "x/c/0"), "[200]");  // of equal size
}

// A copy of an array that grows meanwhile is one that it was: no row of it lacks its chunk.
TEST_F(Copies, HaveAllChunksOfWhatTheirDocumentsSay) {
  const Store from = folder("from"), to = folder("to");
  for (int i = 0; i < 500; ++i) set(from, ("x/c/" + std::to_string(i)).c_str(), "chunk");
  set(from, "x/zarr.json", "[500]");
  CopyOptions options;
  options.at_once = 1;
  bool has_grown = false;
  options.progress = [&](const CopyProgress&) {
    if (std::exchange(has_grown, true)) return;
    set(from, "x/c/500", "chunk");
    set(from, "x/zarr.json", "[501]");
  };
  copy_objects(from, "", to, "", options);
  EXPECT_EQ(get(to, "x/zarr.json"), "[500]");
  EXPECT_EQ(get(to, "x/c/499"), "chunk");
  sync(from, to);
  EXPECT_EQ(get(to, "x/zarr.json"), "[501]");
  EXPECT_EQ(get(to, "x/c/500"), "chunk");
}

// A view of the folder that it is to be copied to.
TEST_F(Copies, AreRefusedToWhatReferencesLieIn) {
  const Store data = folder("data"), other = folder("other");
  set(data, "refs.json", R"({"a/0": ["target.bin", 2, 5]})");
  set(data, "target.bin", "0123456789");
  const Store view = open_store("reference://" + (folder_ / "data/refs.json"), StoreMode::read);
  EXPECT_EQ(code_of([&] { sync(view, data); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { sync(view, folder("")); }), ErrorCode::invalid_argument);
  EXPECT_EQ(get(data, "target.bin"), "0123456789");
  sync(view, other);
  EXPECT_EQ(get(other, "a/0"), "23456");
  sync(view, folder("data/a.zarr"));
  // Of no file.
  const Store text = open_store("reference://", StoreMode::read, {{"fo", R"({"b": "text"})"}});
  sync(text, other);
  EXPECT_EQ(other.list(""), std::vector<std::string>{"b"});
}

// What has a repository's URL, whatever it holds.
class Repository final : public Catalogue {
 public:
  explicit Repository(std::string url) : url_(std::move(url)) {}
  std::string url() const override { return url_; }
  std::string identity() const override { return url_; }
  bool may_be_remote() const override { return false; }
  std::optional<Whereabouts> find(std::string_view) override { return std::nullopt; }
  std::vector<std::string> list(std::string_view) override { return {}; }
  std::vector<DirEntry> list_dir(std::string_view) override { return {}; }

 private:
  const std::string url_;
};

TEST_F(Copies, KnowWhereARepositoryLies) {
  const auto repository = [](const std::string& url) {
    return Store(make_catalogue_store(std::make_shared<Repository>(url), kNearReferences));
  };
  const std::string end = "?snapshot=1CECHNKREP0F1RSTCMT0";
  const Store here = repository("icechunk+file://" + (folder_ / "repo") + end);
  EXPECT_TRUE(places_overlap(here, "", folder("repo"), ""));
  EXPECT_TRUE(places_overlap(folder("repo"), "x", here, "x/y"));
  EXPECT_TRUE(places_overlap(here, "x", folder(""), ""));
  EXPECT_FALSE(places_overlap(here, "", folder("repo2"), ""));
  EXPECT_TRUE(places_overlap(
      repository("icechunk+s3://bucket/a" + end), "", repository("icechunk+s3://bucket/a/b"), ""));
  EXPECT_FALSE(places_overlap(
      repository("icechunk+s3://bucket/a" + end), "", repository("icechunk+s3://bucket/b"), ""));
}

// What open_store() takes for arrays by itself.
TEST_F(Copies, ARepositorysFilesAreObjectsWhenAsked) {
  const Store repo = folder("repo");
  for (const char* key : {"repo", "snapshots/S", "refs/branch.main/ref.json"}) set(repo, key, "{}");
  const Store objects = open_store(folder_ / "repo", StoreMode::read, {{"icechunk", "false"}});
  EXPECT_TRUE(objects.read_only());
  EXPECT_EQ(objects.list(""),
            (std::vector<std::string>{"refs/branch.main/ref.json", "repo", "snapshots/S"}));
  for (const StorageOptions& options : {StorageOptions{}, {{"icechunk", "true"}}}) {
    EXPECT_EQ(code_of([&] { open_store(folder_ / "repo", StoreMode::read, options); }),
              ErrorCode::corrupt);
  }
}

}  // namespace
}  // namespace headrace::test
