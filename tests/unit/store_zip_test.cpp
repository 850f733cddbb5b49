#include <fcntl.h>
#include <gtest/gtest.h>
#include <libdeflate.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <thread>

#include "base/buffer.h"
#include "base/system.h"
#include "conformance/system_faults.h"
#include "conformance/temp_folder.h"
#include "headrace/error.h"
#include "headrace/store.h"
#include "store/store.h"
#include "store/zip_directory.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

std::string deflated(std::string_view text) {
  libdeflate_compressor* c = libdeflate_alloc_compressor(6);
  std::string out(libdeflate_deflate_compress_bound(c, text.size()), '\0');
  out.resize(libdeflate_deflate_compress(c, text.data(), text.size(), out.data(), out.size()));
  libdeflate_free_compressor(c);
  return out;
}

// An entry as it is put into an archive byte by byte, with everything that may be wrong in it.
struct Entry {
  std::string name;
  std::string text;
  int method = 0;
  int flags = 0;
  std::string local_extra = {};
  std::string central_extra = {};
  std::string comment = {};
  std::string local_name = name;
  std::int64_t size_change = 0;
  std::int64_t packed_change = 0;
  std::uint32_t crc_change = 0;
  std::int64_t offset_change = 0;
  std::string packed = method == 8 ? deflated(text) : text;
};

struct Archive {
  std::vector<Entry> entries = {};
  std::string before = {};  // bytes in front of the archive
  std::string comment = {};
  int count_change = 0;
  std::int64_t directory_size_change = 0;
  std::int64_t directory_offset_change = 0;
};

class Writer {
 public:
  Writer& u16(std::uint64_t v) { return put(v, 2); }
  Writer& u32(std::uint64_t v) { return put(v, 4); }
  Writer& u64(std::uint64_t v) { return put(v, 8); }
  Writer& text(std::string_view v) {
    out += v;
    return *this;
  }
  std::string out;

 private:
  Writer& put(std::uint64_t v, int n) {
    for (int i = 0; i < n; ++i) out += static_cast<char>(v >> (8 * i));
    return *this;
  }
};

std::string build(const Archive& archive) {
  Writer w;
  std::vector<std::size_t> offsets;
  for (const Entry& e : archive.entries) {
    offsets.push_back(w.out.size());
    const bool later = e.flags & 8;  // sizes follow the data
    w.u32(0x04034b50)
        .u16(20)
        .u16(static_cast<unsigned>(e.flags))
        .u16(static_cast<unsigned>(e.method));
    w.u32(0);
    std::uint32_t crc = libdeflate_crc32(0, e.text.data(), e.text.size());
    w.u32(later ? 0 : crc).u32(later ? 0 : e.packed.size()).u32(later ? 0 : e.text.size());
    w.u16(e.local_name.size()).u16(e.local_extra.size()).text(e.local_name).text(e.local_extra);
    w.text(e.packed);
    if (later) w.u32(0x08074b50).u32(crc).u32(e.packed.size()).u32(e.text.size());
  }
  const std::size_t directory = w.out.size();
  for (std::size_t i = 0; i < archive.entries.size(); ++i) {
    const Entry& e = archive.entries[i];
    std::uint32_t crc = libdeflate_crc32(0, e.text.data(), e.text.size()) + e.crc_change;
    w.u32(0x02014b50)
        .u16(20)
        .u16(20)
        .u16(static_cast<unsigned>(e.flags))
        .u16(static_cast<unsigned>(e.method));
    w.u32(0).u32(crc);
    w.u32(e.packed.size() + static_cast<std::uint64_t>(e.packed_change));
    w.u32(e.text.size() + static_cast<std::uint64_t>(e.size_change));
    w.u16(e.name.size()).u16(e.central_extra.size()).u16(e.comment.size()).u16(0).u16(0).u32(0);
    w.u32(offsets[i] + static_cast<std::uint64_t>(e.offset_change));
    w.text(e.name).text(e.central_extra).text(e.comment);
  }
  const std::size_t end = w.out.size();
  const auto count =
      static_cast<std::uint64_t>(static_cast<int>(archive.entries.size()) + archive.count_change);
  w.u32(0x06054b50).u16(0).u16(0).u16(count).u16(count);
  w.u32(end - directory + static_cast<std::uint64_t>(archive.directory_size_change));
  w.u32(directory + static_cast<std::uint64_t>(archive.directory_offset_change));
  w.u16(archive.comment.size()).text(archive.comment);
  return archive.before + w.out;
}

class ZipTest : public testing::Test {
 protected:
  Store open(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return open_store(path_);
  }
  Store open(const Archive& archive) { return open(build(archive)); }

  static std::string get(const Store& store, std::string_view key) {
    Buffer buffer;
    return store.driver().get(key, buffer) ? std::string(text_of(buffer)) : "(none)";
  }

  template <typename F>
  void expect(ErrorCode code, std::string_view part, F&& call) {
    try {
      call();
      ADD_FAILURE() << "no error; wanted one about " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
      EXPECT_NE(std::string_view(error.what()).find(path_), std::string_view::npos) << error.what();
    }
  }
  void expect_bad_entry(const Archive& archive, std::string_view part) {
    Store store = open(archive);
    const std::string key = archive.entries[0].name;
    expect(ErrorCode::corrupt, part, [&] { get(store, key); });
  }

  TempFolder folder_;
  std::string path_ = folder_ / "a.zip";
};

TEST_F(ZipTest, ReadsWhatOtherWritersMake) {
  const std::string text(100000, 'z');
  Store store = open(Archive{{{.name = "stored", .text = "plain"},
                              {.name = "deflated", .text = text, .method = 8},
                              {.name = "streamed", .text = text, .method = 8, .flags = 8},
                              {.name = "streamed-stored", .text = "plain", .flags = 8},
                              {.name = "folder/", .text = ""},
                              {.name = "folder/empty", .text = ""},
                              {.name = "empty-deflated", .text = "", .method = 8},
                              {.name = "extra",
                               .text = "with fields",
                               .local_extra = std::string("\x55\x54\x01\x00x", 5),
                               .central_extra = std::string("\x0a\x00\x03\x00xyz", 7),
                               .comment = "a comment"}},
                             {},
                             "a comment of the archive"});
  for (int again = 0; again < 2; ++again) {  // the second time with known data offsets
    EXPECT_EQ(get(store, "stored"), "plain");
    EXPECT_EQ(get(store, "deflated"), text);
    EXPECT_EQ(get(store, "streamed"), text);
    EXPECT_EQ(get(store, "streamed-stored"), "plain");
    EXPECT_EQ(get(store, "folder/empty"), "");
    EXPECT_EQ(get(store, "empty-deflated"), "");
    EXPECT_EQ(get(store, "extra"), "with fields");
  }
  EXPECT_EQ(store.driver().list("folder/"), (std::vector<std::string>{"folder/empty"}));
  auto reader = store.driver().open("deflated");
  EXPECT_EQ(reader->mapped().size(), text.size());
  auto range = store.driver().open("extra");
  Buffer part(6);
  range->read(5, part.bytes());
  EXPECT_EQ(text_of(part), "fields");
}

TEST_F(ZipTest, BytesBeforeTheArchiveAreSkipped) {
  Store store =
      open(Archive{{{.name = "a", .text = "1"}, {.name = "b", .text = "22"}}, "#!/bin/sh\n"});
  EXPECT_EQ(get(store, "a"), "1");
  EXPECT_EQ(get(store, "b"), "22");
}

TEST_F(ZipTest, LastEntryOfANameCounts) {
  Store store = open(Archive{
      {{.name = "k", .text = "old"}, {.name = "x", .text = "x"}, {.name = "k", .text = "new"}}});
  EXPECT_EQ(get(store, "k"), "new");
  EXPECT_EQ(store.driver().list(""), (std::vector<std::string>{"k", "x"}));
}

TEST_F(ZipTest, NamesThatAreNoKeysAreLeftOut) {
  Store store = open(Archive{{{.name = "../up", .text = "1"},
                              {.name = "/abs", .text = "1"},
                              {.name = "a\\b", .text = "1"},
                              {.name = std::string("n\0l", 3), .text = "1"},
                              {.name = "", .text = "1"},
                              {.name = "good", .text = "1"}}});
  EXPECT_EQ(store.driver().list(""), (std::vector<std::string>{"good"}));
}

TEST_F(ZipTest, EmptyArchive) {
  Store store = open(Archive{});
  EXPECT_TRUE(store.driver().list("").empty());
  EXPECT_EQ(get(store, "k"), "(none)");
}

TEST_F(ZipTest, WhatCannotBeReadIsNamed) {
  Store store = open(Archive{{{.name = "encrypted", .text = "x", .flags = 1},
                              {.name = "bzipped", .text = "x", .method = 12},
                              {.name = "zstd", .text = "x", .method = 93}}});
  expect(ErrorCode::unsupported, "entry encrypted is encrypted", [&] { get(store, "encrypted"); });
  expect(ErrorCode::unsupported, "entry bzipped is compressed by method 12", [&] {
    get(store, "bzipped");
  });
  expect(ErrorCode::unsupported, "method 93", [&] { store.driver().open("zstd"); });
}

TEST_F(ZipTest, NoArchive) {
  for (const std::string& bytes :
       {std::string(), std::string("PK"), std::string(100000, 'x'), std::string(22, '\0')}) {
    expect(ErrorCode::corrupt, "no end of central directory", [&] { open(bytes); });
  }
}

TEST_F(ZipTest, EveryTruncationIsCorrupt) {
  const std::string whole =
      build({{{.name = "a", .text = "12345"}, {.name = "b", .text = "xyz", .method = 8}}});
  for (std::size_t n = 0; n < whole.size(); ++n) {
    expect(ErrorCode::corrupt, "zip archive", [&] { open(whole.substr(0, n)); });
  }
}

TEST_F(ZipTest, DirectoriesThatLieAreCorrupt) {
  const std::vector<Entry> entries = {{.name = "a", .text = "12345"}, {.name = "b", .text = "x"}};
  const Archive wrong[] = {
      {entries, "", "", 1},
      {entries, "", "", -1},
      {entries, "", "", 60000},
      {entries, "", "", 0, 1000000},
      {entries, "", "", 0, -1},
      {entries, "", "", 0, 1},
      {entries, "", "", 0, 0, 1},
      {entries, "", "", 0, 0, 1 << 30},
  };
  for (const Archive& archive : wrong) {
    expect(ErrorCode::corrupt, "zip archive", [&] { open(archive); });
  }
  expect(ErrorCode::corrupt, "starts after the entries", [&] {
    open(Archive{{{.name = "a", .text = "1", .offset_change = 1 << 20}}});
  });
}

TEST_F(ZipTest, EntriesThatLieAreCorrupt) {
  expect_bad_entry({{{.name = "a", .text = "12345", .crc_change = 1}}}, "CRC-32");
  expect_bad_entry({{{.name = "a", .text = "12345", .method = 8, .crc_change = 1}}}, "CRC-32");
  expect_bad_entry({{{.name = "a", .text = "12345", .size_change = 1}}}, "stored");
  expect_bad_entry({{{.name = "a", .text = "12345", .method = 8, .size_change = 1}}},
                   "wanted 6 bytes, got 5");
  expect_bad_entry({{{.name = "a", .text = "12345", .method = 8, .size_change = -1}}},
                   "more than 4");
  expect_bad_entry({{{.name = "a", .text = "12345", .method = 8, .packed_change = -1}}},
                   "bad deflate data");
  expect_bad_entry({{{.name = "a", .text = "12345", .local_name = "b"}}}, "another name");
  expect_bad_entry({{{.name = "a", .text = "12345", .offset_change = 1}}}, "no local header");
  expect_bad_entry(
      {{{.name = "a", .text = "12345", .size_change = 1 << 20, .packed_change = 1 << 20}}},
      "do not fit");
  expect_bad_entry({{{.name = "a", .text = "12345", .method = 8, .packed = "\xff\xff\xff"}}},
                   "bad deflate data");
  expect_bad_entry(
      {{{.name = "a", .text = "12345", .method = 8, .packed = deflated("12345") + "left"}}},
      "are left");
}

TEST_F(ZipTest, OverlappingEntriesAreCorrupt) {
  // "a" claims the bytes of "b": https://www.bamsoftware.com/hacks/zipbomb/
  const std::int64_t into_b = 30 + 1 + 5;
  Archive archive{{{.name = "a", .text = "12345", .size_change = into_b, .packed_change = into_b},
                   {.name = "b", .text = "12345"}}};
  Store store = open(archive);
  expect(ErrorCode::corrupt, "entry a", [&] { get(store, "a"); });
  expect(ErrorCode::corrupt, "entry a", [&] { store.driver().open("a"); });
  EXPECT_EQ(get(store, "b"), "12345");
}

TEST_F(ZipTest, BombsAreRefusedBeforeMemoryIsTaken) {
  expect_bad_entry(
      {{{.name = "a", .text = std::string(1000, 'x'), .method = 8, .size_change = 4000000000}}},
      "cannot give");
  // As dense as deflate gets, and honest.
  Store store =
      open(Archive{{{.name = "dense", .text = std::string(50 << 20, '\0'), .method = 8}}});
  Buffer buffer;
  EXPECT_TRUE(store.driver().get("dense", buffer));
  EXPECT_EQ(buffer.size(), std::size_t{50} << 20);
}

TEST_F(ZipTest, FlippedBytesNeverGiveOtherBytes) {
  const std::string a = "stored text";
  const std::string b(500, 'b');
  const std::string whole =
      build({{{.name = "a", .text = a}, {.name = "b", .text = b, .method = 8}}, "", "note"});
  std::mt19937 random(1);
  for (int i = 0; i < 1500; ++i) {
    std::string bytes = whole;
    bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    try {
      Store store = open(bytes);
      for (const std::string& key : store.driver().list("")) {
        try {
          const std::string text = get(store, key);
          EXPECT_TRUE(text == a || text == b) << key;
        } catch (const Error& error) {
          EXPECT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported)
              << error.what();
        }
      }
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported)
          << error.what();
    }
  }
}

TEST_F(ZipTest, ManyEntriesAreZip64) {
  constexpr int kCount = 70000;
  {
    Store store = open_store(path_, StoreMode::create);
    for (int i = 0; i < kCount; ++i)
      store.driver().set("c/" + std::to_string(i), bytes_of(std::to_string(i)));
    store.close();
  }
  Store store = open_store(path_);
  EXPECT_EQ(store.driver().list("").size(), std::size_t{kCount});
  EXPECT_EQ(get(store, "c/69999"), "69999");
  std::string bytes((std::istreambuf_iterator<char>(std::ifstream(path_).rdbuf())), {});
  Store moved = open("put before the archive" + bytes);
  EXPECT_EQ(get(moved, "c/69999"), "69999");
}

// The records of large entries and far offsets, without writing gigabytes.
TEST_F(ZipTest, LargeSizesGoThroughZip64Fields) {
  const std::uint64_t far = (std::uint64_t{6} << 30) + 7;
  const std::uint64_t large = (std::uint64_t{5} << 30) + 3;
  ZipRecord record{far, far + zip_local_header_size("big", large), large, 0};
  ZipRecord last{record.data + large, 0, 4, libdeflate_crc32(0, "tail", 4)};
  last.data = last.header + zip_local_header_size("last", 4);
  ZipRecord first{0, zip_local_header_size("first", 4), 4, libdeflate_crc32(0, "head", 4)};
  int fd = ::open(path_.c_str(), O_CREAT | O_RDWR, 0600);
  auto put = [&](std::uint64_t offset, ConstBytes bytes) {
    ASSERT_EQ(::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
  };
  put(0, zip_local_header("first", first));
  put(first.data, bytes_of("head"));
  put(far, zip_local_header("big", record));
  put(record.data + large - 3, bytes_of("end"));
  put(last.header, zip_local_header("last", last));
  put(last.data, bytes_of("tail"));
  const std::uint64_t end = last.data + 4;
  put(end, zip_directory({{"first", first}, {"big", record}, {"last", last}}, end));
  ::close(fd);
  Store store = open_store(path_);
  EXPECT_EQ(get(store, "first"), "head");
  EXPECT_EQ(get(store, "last"), "tail");
  auto reader = store.driver().open("big");
  ASSERT_EQ(reader->size(), large);
  Buffer part(5);
  reader->read(large - 5, part.bytes());
  EXPECT_EQ(text_of(part), std::string_view("\0\0end", 5));
}

TEST_F(ZipTest, ThroughLinksTheFileIsReplaced) {
  const std::string real = folder_ / "real.zip", link = folder_ / "link.zip";
  fs::create_symlink("real.zip", folder_ / "second.zip");
  fs::create_symlink(folder_ / "second.zip", link);
  for (const std::string value : {"one", "two"}) {  // first of a link that leads nowhere
    Store store = open_store(link, value == "one" ? StoreMode::create : StoreMode::overwrite);
    store.set("a", bytes_of(value));
    store.close();
    EXPECT_TRUE(fs::is_symlink(link));
    ASSERT_TRUE(fs::is_regular_file(fs::symlink_status(real)));
    EXPECT_EQ(get(open_store(real), "a"), value);
  }
  fs::create_symlink("loop.zip", folder_ / "loop.zip");
  EXPECT_THROW(open_store(folder_ / "loop.zip", StoreMode::overwrite), Error);
}

TEST_F(ZipTest, NothingAppearsBeforeClose) {
  Store store = open_store(path_, StoreMode::create);
  store.driver().set("k", bytes_of("v"));
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_EQ(get(store, "k"), "v");
  store.close();
  EXPECT_EQ(get(open_store(path_), "k"), "v");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);
}

std::string dropped;  // by the library, lately

TEST_F(ZipTest, ArchiveThatNobodyClosedIsDiscarded) {
  on_dropped_archive([](const std::string& url) { dropped += url; });
  open_store(path_, StoreMode::create).driver().set("k", bytes_of("v"));
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_EQ(dropped, "zip://" + path_);
  {
    Store store = open_store(path_, StoreMode::create);
    store.driver().set("k", bytes_of("old"));
    store.close();
  }
  dropped.clear();
  try {
    const Store store = open_store(path_, StoreMode::overwrite);
    store.driver().set("k", bytes_of("new"));
    EXPECT_EQ(unpublished_archives(), std::vector<std::string>{"zip://" + path_});
    throw std::runtime_error("the writer fails");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(get(open_store(path_), "k"), "old");
  EXPECT_EQ(dropped, "zip://" + path_);
  EXPECT_TRUE(unpublished_archives().empty());
  on_dropped_archive(nullptr);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);
}

TEST_F(ZipTest, DiscardedArchiveIsClosedForGood) {
  on_dropped_archive([](const std::string& url) { dropped += url; });
  dropped.clear();
  {
    Store store = open_store(path_, StoreMode::create);
    store.driver().set("k", bytes_of("v"));
    const auto reader = store.open("k");
    store.discard();
    store.discard();
    EXPECT_FALSE(store.exists("k"));
    std::byte byte{};
    reader->read(0, {&byte, 1});  // what was open stays
    EXPECT_EQ(byte, std::byte{'v'});
    expect(ErrorCode::invalid_argument, "is closed", [&] { store.set("k", bytes_of("v")); });
    store.close();
  }
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  Store store = open_store(path_, StoreMode::create);
  store.driver().set("k", bytes_of("v"));
  store.close();
  store.discard();
  EXPECT_EQ(get(open_store(path_), "k"), "v");
  EXPECT_EQ(dropped, "");
  on_dropped_archive(nullptr);
}

// A child never publishes, nor removes, what its parent writes; it does not even tell.
TEST_F(ZipTest, ChildAfterForkDiscardsNothing) {
  auto store = std::make_unique<Store>(open_store(path_, StoreMode::create));
  store->driver().set("k", bytes_of("parent"));
  const pid_t child = ::fork();
  if (child == 0) {
    on_dropped_archive([](const std::string&) { ::_exit(3); });
    store->discard();
    const bool tells = !unpublished_archives().empty();
    store.reset();
    ::_exit(tells ? 4 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  store->close();
  EXPECT_EQ(get(open_store(path_), "k"), "parent");
}

// An archive whose set() failed is as it was before that set(), and may be closed.
TEST_F(ZipTest, FailedSetLeavesTheRestWhole) {
  Store store = open_store(path_, StoreMode::create);
  store.driver().set("a", bytes_of("1"));
  store.driver().set("b", bytes_of("1"));
  {
    test::SystemFaults faults;
    faults.fail_nth(1, 4);  // ENOSPC of pwrite
    expect(ErrorCode::io, "No space left", [&] { store.set("a", bytes_of(std::string(9, '2'))); });
  }
  store.driver().set("c", bytes_of("3"));
  EXPECT_EQ(get(store, "a"), "1");
  store.close();
  const Store back = open_store(path_);
  EXPECT_EQ(back.list(""), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(get(back, "a") + get(back, "b") + get(back, "c"), "113");
}

TEST_F(ZipTest, KilledWriterLeavesTheOldArchive) {
  {
    Store store = open_store(path_, StoreMode::create);
    store.driver().set("k", bytes_of("old"));
    store.close();
  }
  for (int round = 0; round < 10; ++round) {
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (;;) {
        Store store = open_store(path_, StoreMode::overwrite);
        for (int i = 0; i < 20; ++i)
          store.driver().set("k" + std::to_string(i), bytes_of(std::string(50000, 'n')));
        store.driver().set("k", bytes_of("new"));
        store.close();
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + 2 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    Store store = open_store(path_);
    const bool old = store.driver().list("").size() == 1;
    EXPECT_EQ(get(store, "k"), old ? "old" : "new");
    EXPECT_TRUE(old || get(store, "k19") == std::string(50000, 'n'));
  }
}

TEST_F(ZipTest, ChildAfterForkLeavesTheParentsArchiveAlone) {
  auto store = std::make_unique<Store>(open_store(path_, StoreMode::create));
  store->driver().set("k", bytes_of("parent"));
  pid_t child = ::fork();
  if (child == 0) {
    int rc = 0;
    for (int i = 0; i < 2; ++i) {
      try {
        if (i == 0) store->driver().set("k", bytes_of("child"));
        if (i == 1) store->close();
        rc = 1;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) rc = 2;
      }
    }
    store.reset();
    ::_exit(rc);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(fs::exists(path_));
  store->close();
  EXPECT_EQ(get(open_store(path_), "k"), "parent");
}

// A system call that does not come back before it is told to.
struct HeldWrite {
  static inline std::atomic<bool> is_under_way, is_held;
  static ssize_t pwrite(int fd, const void* from, std::size_t nbytes, off_t offset) {
    is_under_way = true;
    is_under_way.notify_all();
    is_held.wait(true);
    return real_system_calls().pwrite(fd, from, nbytes, offset);
  }

  HeldWrite() {
    is_under_way = false;
    is_held = true;
    calls_.pwrite = pwrite;
    exchange_system_calls(&calls_);
  }
  ~HeldWrite() { exchange_system_calls(nullptr); }

  static void let_go() {
    is_held = false;
    is_held.notify_all();
  }

 private:
  SystemCalls calls_ = real_system_calls();
};

// Who waits in close() is missing in the child: to destroy what it waits for would wait for it.
TEST_F(ZipTest, ChildAfterForkDropsAnArchiveThatIsBeingClosed) {
  auto store = std::make_unique<Store>(open_store(path_, StoreMode::create));
  const HeldWrite held;
  std::thread writer([&] { store->driver().set("k", bytes_of("parent")); });
  HeldWrite::is_under_way.wait(false);
  std::thread closer([&] { store->driver().close(); });
  const auto is_open = [&] {
    try {
      store->driver().erase("other");
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  while (is_open()) std::this_thread::yield();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(5);
    store.reset();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  HeldWrite::let_go();
  writer.join();
  closer.join();
  EXPECT_EQ(status, 0);
  EXPECT_EQ(get(open_store(path_), "k"), "parent");
}

TEST_F(ZipTest, CloseWaitsForWritesUnderWay) {
  for (int round = 0; round < 20; ++round) {
    Store store = open_store(path_, StoreMode::overwrite);
    std::atomic<int> written{0};
    std::vector<std::thread> writers;
    for (int t = 0; t < 3; ++t) {
      writers.emplace_back([&, t] {
        try {
          for (int i = 0;; ++i) {
            store.driver().set(std::to_string(t) + "/" + std::to_string(i),
                               bytes_of(std::string(3000, 'x')));
            ++written;
          }
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
        }
      });
    }
    while (written < 10) std::this_thread::yield();
    store.close();
    for (std::thread& writer : writers) writer.join();
    Store back = open_store(path_);
    EXPECT_EQ(back.driver().list("").size(), static_cast<std::size_t>(written));
    for (const std::string& key : back.driver().list("")) ASSERT_EQ(get(back, key).size(), 3000u);
  }
}

}  // namespace
}  // namespace headrace
