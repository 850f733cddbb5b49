#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "conformance/temp_folder.h"
#include "headrace/error.h"
#include "headrace/store.h"
#include "store/store.h"
#include "store/url.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

template <typename F>
void expect_error(ErrorCode code, std::string_view part, F&& call) {
  try {
    call();
    ADD_FAILURE() << "no error; wanted one about " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
  }
}

void put(const Store& store, std::string_view key, std::string_view text) {
  store.driver().set(key, bytes_of(text));
}

std::string get(const Store& store, std::string_view key) {
  Buffer buffer;
  return store.driver().get(key, buffer) ? std::string(text_of(buffer)) : "(none)";
}

TEST(OpenStore, MissingFolderIsNotFound) {
  TempFolder folder;
  for (StoreMode mode : {StoreMode::read, StoreMode::read_write}) {
    expect_error(ErrorCode::not_found, folder / "none.zarr", [&] {
      open_store(folder / "none.zarr", mode);
    });
    expect_error(
        ErrorCode::not_found, folder / "none.zip", [&] { open_store(folder / "none.zip", mode); });
    expect_error(ErrorCode::not_found, "none", [&] { open_store("memory://none", mode); });
  }
  EXPECT_FALSE(fs::exists(folder / "none.zarr"));
  expect_error(ErrorCode::not_found, "file/x", [&] {
    std::ofstream(folder / "file") << "x";
    open_store(folder / "file/x");
  });
}

TEST(OpenStore, ModesKeepOrEmptyWhatIsThere) {
  TempFolder folder;
  for (std::string place : {folder / "deep/er/a.zarr", std::string("memory://modes")}) {
    Store first = open_store(place, StoreMode::create);
    put(first, "zarr.json", "1");
    expect_error(
        ErrorCode::invalid_argument, "not empty", [&] { open_store(place, StoreMode::create); });
    EXPECT_TRUE(open_store(place).read_only());
    EXPECT_FALSE(open_store(place, StoreMode::read_write).read_only());
    EXPECT_EQ(get(open_store(place, StoreMode::read_write), "zarr.json"), "1");
    EXPECT_EQ(get(open_store(place, StoreMode::append), "zarr.json"), "1");
    EXPECT_EQ(get(open_store(place, StoreMode::overwrite), "zarr.json"), "(none)");
    EXPECT_EQ(get(open_store(place, StoreMode::create), "zarr.json"),
              "(none)");  // there, but empty
  }
  open_store(folder / "fresh.zarr", StoreMode::append);
  EXPECT_TRUE(fs::is_directory(folder / "fresh.zarr"));
}

TEST(OpenStore, ZipModes) {
  TempFolder folder;
  const std::string path = folder / "a.zip";
  {
    Store store = open_store(path, StoreMode::append);
    put(store, "k", "1");
    store.close();
  }
  EXPECT_EQ(get(open_store(path), "k"), "1");
  expect_error(
      ErrorCode::unsupported, "existing zip", [&] { open_store(path, StoreMode::append); });
  expect_error(
      ErrorCode::unsupported, "existing zip", [&] { open_store(path, StoreMode::read_write); });
  expect_error(ErrorCode::invalid_argument, "exists", [&] { open_store(path, StoreMode::create); });
  {
    Store store = open_store(path, StoreMode::overwrite);
    EXPECT_EQ(get(open_store(path), "k"), "1")
        << "the old archive stays until the new one is closed";
    put(store, "k", "2");
    store.close();
    store.close();
    expect_error(ErrorCode::invalid_argument, "closed", [&] { put(store, "k", "3"); });
    EXPECT_EQ(get(store, "k"), "2");
  }
  EXPECT_EQ(get(open_store("zip://" + path), "k"), "2");
  EXPECT_EQ(get(open_store("file://" + path), "k"), "2");
  fs::create_directory(folder / "folder.zip");
  EXPECT_EQ(open_store(folder / "folder.zip").url(), "file://" + (folder / "folder.zip"));
  expect_error(ErrorCode::invalid_argument, "is a folder", [&] {
    open_store("zip://" + (folder / "folder.zip"));
  });
  std::ofstream(folder / "renamed") << std::ifstream(path).rdbuf();
  EXPECT_EQ(get(open_store("zip://" + (folder / "renamed")), "k"), "2");
  expect_error(
      ErrorCode::invalid_argument, "neither a folder", [&] { open_store(folder / "renamed"); });
}

TEST(OpenStore, AnArchiveIsAFile) {
  const TempFolder folder;
  const std::string before = fs::current_path();
  fs::current_path(folder.path());
  for (const char* place :
       {"zip://http://host/a.zip", "zip://a.zarr::http://h/a.zip", "zip://a::b"})
    for (const StoreMode mode : {StoreMode::read, StoreMode::overwrite})
      expect_error(
          ErrorCode::invalid_argument, "archive is a file", [&] { open_store(place, mode); });
  EXPECT_TRUE(fs::is_empty(folder.path()));
  Store store = open_store("zip://a%3A%3Ab.zip", StoreMode::overwrite);
  put(store, "k", "1");
  store.close();
  EXPECT_TRUE(fs::exists("a::b.zip"));
  fs::current_path(before);
}

TEST(NamesArchive, AsOpenStoreTakesIt) {
  const TempFolder folder;
  fs::create_directory(folder / "folder.zip");
  const std::string there = folder.path();
  for (const std::string& place : {there + "/a.zip",
                                   there + "/a.zip/",
                                   "file://" + there + "/a%2ezip",
                                   "FILE://localhost" + there + "/a.zip",
                                   "zip://" + there + "/a",
                                   std::string("ZIP://a")})
    EXPECT_TRUE(names_archive(place)) << place;
  for (const std::string& place : {there + "/a.zarr",
                                   there + "/folder.zip",
                                   there + "/a.zip/b",
                                   "file://" + there + "/folder%2ezip",
                                   std::string("memory://a.zip"),
                                   std::string("s3://bucket/a.zip")})
    EXPECT_FALSE(names_archive(place)) << place;
}

TEST(OpenStore, UrlsComeBack) {
  TempFolder folder;
  const std::string odd = folder / "50% #1? \xc3\xa9 \x01.zarr";
  Store store = open_store(odd, StoreMode::create);
  put(store, "k", "odd");
  EXPECT_EQ(get(open_store(store.url()), "k"), "odd");
  EXPECT_EQ(open_store(store.url()).url(), store.url());
  EXPECT_NE(store.url().find("50%25%20%231%3F%20\xc3\xa9%20%01"), std::string::npos);
  EXPECT_EQ(get(open_store("file://localhost" + store.url().substr(7)), "k"), "odd");
  EXPECT_EQ(get(open_store("FILE://" + store.url().substr(7)), "k"), "odd");
  put(open_store("memory://a%20b/c", StoreMode::append), "k", "m");
  EXPECT_EQ(open_store("memory://a b/c").url(), "memory://a%20b/c");
}

TEST(OpenStore, RelativePathIsFixedAtOpening) {
  TempFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  Store store = open_store(".//x/./a.zarr/", StoreMode::create);
  fs::current_path(before);
  put(store, "k", "here");
  EXPECT_TRUE(fs::exists(folder / "x/a.zarr/k"));
  EXPECT_TRUE(store.url().ends_with("/x/a.zarr")) << store.url();
  EXPECT_EQ(get(open_store(folder / "x/../x/a.zarr"), "k"), "here");
}

TEST(OpenStore, UnknownSchemesAreNamed) {
  for (std::string scheme : {"ftp", "hdfs", "dropbox"}) {
    expect_error(
        ErrorCode::unsupported, scheme + "://", [&] { open_store(scheme + "://host/a.zarr"); });
  }
  expect_error(ErrorCode::invalid_argument, "absolute", [] { open_store("file://host/a.zarr"); });
  expect_error(
      ErrorCode::invalid_argument, "name", [] { open_store("memory://", StoreMode::append); });
  expect_error(ErrorCode::invalid_argument, "empty", [] { open_store(""); });
  expect_error(ErrorCode::invalid_argument, "NUL", [] { open_store(std::string_view("a\0b", 3)); });
  for (const char* bad : {"file:///a%", "file:///a%4", "file:///a%zz", "file:///a%00"}) {
    expect_error(ErrorCode::invalid_argument, "hex", [&] { open_store(bad); });
  }
}

TEST(OpenStore, OptionsAreChecked) {
  TempFolder folder;
  const std::string path = folder / "a.zarr";
  const auto open_with = [&](std::string_view where, StorageOptions options) {
    open_store(where, StoreMode::append, options);
  };
  expect_error(ErrorCode::invalid_argument, "endpoint", [&] {
    open_with(path, {{"endpoint", "x"}});
  });
  expect_error(ErrorCode::invalid_argument, "direct", [&] {
    open_with(path, {{"direct", "yes"}});
  });
  expect_error(ErrorCode::invalid_argument, "aio", [&] { open_with(path, {{"io", "aio"}}); });
  expect_error(ErrorCode::invalid_argument, "fsync", [&] {
    open_with("memory://o", {{"fsync", "true"}});
  });
  expect_error(ErrorCode::invalid_argument, "direct", [&] {
    open_with(folder / "a.zip", {{"direct", "true"}});
  });
  EXPECT_TRUE(fs::is_empty(folder.path())) << "a refused call made something";
  open_with(path, {{"io", "pread"}, {"direct", "false"}, {"fsync", "true"}});
}

TEST(OpenStore, OverwriteOfTheRootIsRefused) {
  expect_error(ErrorCode::invalid_argument, "root", [] { open_store("/", StoreMode::overwrite); });
}

TEST(MemoryStore, IsPrivateWithoutAName) {
  Store a = memory_store();
  Store b = memory_store();
  put(a, "k", "a");
  EXPECT_EQ(get(b, "k"), "(none)");
  EXPECT_EQ(a.url(), "memory://");
}

TEST(MemoryStore, ReaderHoldsTheBytesItMapped) {
  Store store = memory_store();
  put(store, "k", "old bytes");
  auto reader = store.driver().open("k");
  ConstBytes mapped = reader->mapped();
  put(store, "k", "new");
  store.driver().erase("k");
  EXPECT_EQ(text_of(mapped), "old bytes");
}

}  // namespace
}  // namespace headrace
