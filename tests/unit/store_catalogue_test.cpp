// Stores whose objects lie in other, asynchronous ones: what is asked of these, and what comes
// back.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "conformance/error_code.h"
#include "headrace/error.h"
#include "store/async_driver.h"
#include "store/key_list.h"
#include "store/reference/catalogue.h"
#include "store/store.h"

namespace headrace::test {
namespace {

// Objects across a network: each submit() is answered by a thread of its own.
class FarStore : public AsyncDriver {
 public:
  explicit FarStore(std::map<std::string, std::string> objects) : objects_(std::move(objects)) {}
  ~FarStore() override {
    for (std::thread& thread : threads_) thread.join();
  }

  std::string url() const override { return "far://"; }
  bool read_only() const override { return true; }
  void set(std::string_view, ConstBytes) override { throw_read_only(url()); }
  void erase(std::string_view) override { throw_read_only(url()); }
  void erase_prefix(std::string_view) override { throw_read_only(url()); }
  std::vector<std::string> list(std::string_view) override { return {}; }
  std::vector<DirEntry> list_dir(std::string_view) override { return {}; }
  std::size_t depth() const override { return 4; }

  void submit(std::span<AsyncRead* const> reads) noexcept override {
    const MutexLock lock(mutex_);
    for (AsyncRead* read : reads) {
      const char* kind = read->extent.kind == Extent::Kind::whole    ? "whole"
                         : read->extent.kind == Extent::Kind::suffix ? "suffix"
                                                                     : "range";
      asked_.push_back(read->key + " " + kind + " " + std::to_string(read->extent.offset) + " " +
                       std::to_string(read->extent.nbytes) +
                       (read->if_version.empty() ? "" : " if " + read->if_version));
      threads_.emplace_back([this, read] { answer(*read); });
    }
  }
  void cancel(AsyncRead&) noexcept override {}

  std::vector<std::string> asked() {
    const MutexLock lock(mutex_);
    return std::exchange(asked_, {});
  }

 protected:
  std::optional<ObjectState> look_up(std::string_view) override { return std::nullopt; }

 private:
  void answer(AsyncRead& read) const noexcept {
    try {
      const auto at = objects_.find(read.key);
      read.found = at != objects_.end();
      if (read.found) {
        const ConstBytes all = bytes_of(at->second);
        read.version = "v1";
        read.object_nbytes = all.size();
        if (!read.if_version.empty() && read.if_version != "v1") throw_changed(read.key);
        ByteRange range{0, all.size()};
        if (read.extent.kind == Extent::Kind::range) {
          range = {read.extent.offset, read.extent.nbytes};
        } else if (read.extent.kind == Extent::Kind::suffix) {
          range.nbytes = std::min<std::uint64_t>(all.size(), read.extent.nbytes);
          range.offset = all.size() - range.nbytes;
        }
        if (read.into.empty() && range.offset < all.size() &&
            range.offset + range.nbytes > all.size()) {
          // As a web server does: what there is before the end.
          read.bytes.resize(range.nbytes);
          read.nbytes_before_end = all.size() - range.offset;
          std::memcpy(read.bytes.data(), all.data() + range.offset, read.nbytes_before_end);
        }
        check_object_range(read.key, all.size(), range.offset, range.nbytes);
        const ConstBytes part = all.subspan(range.offset, range.nbytes);
        if (read.into.empty()) {
          read.bytes.assign(part);
        } else {
          std::memcpy(read.into.data(), part.data(), part.size());
        }
      }
    } catch (...) {
      read.error = std::current_exception();
    }
    read.done();
  }

  const std::map<std::string, std::string> objects_;
  Mutex mutex_;
  std::vector<std::string> asked_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);
};

// Answers nothing until it is told to leave it.
class StuckStore final : public FarStore {
 public:
  StuckStore() : FarStore({}) {}
  void submit(std::span<AsyncRead* const>) noexcept override {}
  void cancel(AsyncRead& read) noexcept override {
    ++cancelled;
    read.error = std::make_exception_ptr(Error(ErrorCode::cancelled, "as it was told"));
    read.done();
  }
  int cancelled = 0;
};

struct CountedRead final : AsyncRead {
  int ended = 0;
  void done() noexcept override { ++ended; }
};

class MapCatalogue : public Catalogue {
 public:
  std::map<std::string, Whereabouts, std::less<>> objects;

  std::string url() const override { return "map://"; }
  std::string identity() const override { return "map"; }
  bool may_be_remote() const override { return true; }
  std::optional<Whereabouts> find(std::string_view key) override {
    const auto at = objects.find(key);
    if (at == objects.end()) return std::nullopt;
    return at->second;
  }
  std::vector<std::string> list(std::string_view prefix) override {
    std::vector<std::string> keys;
    for (const auto& [key, where] : objects) {
      if (lies_below(key, prefix)) keys.push_back(key);
    }
    return keys;
  }
  std::vector<DirEntry> list_dir(std::string_view prefix) override {
    return names_directly_below(list(prefix), prefix);
  }
};

class CatalogueStore : public testing::Test {
 protected:
  CatalogueStore() {
    const auto at = [&](const char* key, std::uint64_t offset, std::uint64_t nbytes) {
      Whereabouts where;
      where.store = far_;
      where.key = key;
      where.offset = offset;
      where.nbytes = nbytes;
      return where;
    };
    catalogue_->objects["a/0"] = at("f", 0, 3);
    catalogue_->objects["a/1"] = at("f", 5, 3);
    catalogue_->objects["a/2"] = at("f", 20, 4);
    catalogue_->objects["a/3"] = at("g", 1, 2);
    catalogue_->objects["a/4"] = at("g", 0, Whereabouts::kWhole);
    catalogue_->objects["a/5"] = at("f", 24, 9);
    catalogue_->objects["a/6"] = at("none", 0, 1);
    catalogue_->objects["a/7"].bytes = bytes_of("here");
    catalogue_->objects["a/7"].offset = 1000;  // of no object
    catalogue_->objects["a/8"] = at("f", 3, 0);
    catalogue_->objects["a/9"] = at("g", 0, 2);
    catalogue_->objects["a/9"].if_version = "v0";
  }

  std::shared_ptr<FarStore> far_ = std::make_shared<FarStore>(
      std::map<std::string, std::string>{{"f", "abcdefghijklmnopqrstuvwxyz"}, {"g", "0123"}});
  std::shared_ptr<MapCatalogue> catalogue_ = std::make_shared<MapCatalogue>();
  std::shared_ptr<StoreDriver> store_ = make_catalogue_store(catalogue_, {4, 100});
};

TEST_F(CatalogueStore, NeighboursAreOneRequest) {
  ASSERT_FALSE(store_->local());
  ASSERT_NE(store_->async_reads(), nullptr);
  std::vector<Buffer> into(11);
  std::vector<GetRequest> requests;
  for (std::size_t i = 0; i < into.size(); ++i) {
    requests.push_back({"a/" + std::to_string(i), &into[i], false, nullptr});
  }
  store_->get_many(requests);
  auto asked = far_->asked();
  std::sort(asked.begin(), asked.end());
  // The two at the end of "f" as well: the second leads beyond it, and fails alone.
  EXPECT_EQ(asked,
            (std::vector<std::string>{"f range 0 8",
                                      "f range 20 13",
                                      "g range 0 2 if v0",
                                      "g range 1 2",
                                      "g whole 0 0",
                                      "none range 0 1"}));
  const char* wanted[] = {
      "abc", "fgh", "uvwx", "12", "0123", nullptr, nullptr, "here", "", nullptr};
  for (std::size_t i = 0; i < 10; ++i) {
    if (wanted[i] == nullptr) {
      EXPECT_TRUE(requests[i].error != nullptr) << i;
      EXPECT_FALSE(requests[i].found) << i;
    } else {
      ASSERT_TRUE(requests[i].found) << i;
      EXPECT_EQ(text_of(into[i]), wanted[i]) << i;
    }
  }
  EXPECT_FALSE(requests[10].found);
  EXPECT_FALSE(requests[10].error);
  EXPECT_EQ(code_of([&] { std::rethrow_exception(requests[5].error); }), ErrorCode::corrupt);
  EXPECT_EQ(code_of([&] { std::rethrow_exception(requests[6].error); }), ErrorCode::io);
}

TEST_F(CatalogueStore, ARequestOfSeveralEndsWhenNobodyWantsItAnyMore) {
  const auto stuck = std::make_shared<StuckStore>();
  for (const char* key : {"a/0", "a/1"}) catalogue_->objects[key].store = stuck;
  CountedRead one, other;
  one.key = "a/0";
  other.key = "a/1";
  AsyncRead* const reads[] = {&one, &other};
  store_->async_reads()->submit(reads);
  store_->async_reads()->cancel(one);
  store_->async_reads()->cancel(one);  // counts once
  EXPECT_EQ(stuck->cancelled, 0);
  store_->async_reads()->cancel(other);
  EXPECT_EQ(stuck->cancelled, 1);
  for (const CountedRead* read : {&one, &other}) {
    EXPECT_EQ(read->ended, 1);
    EXPECT_EQ(code_of([&] { std::rethrow_exception(read->error); }), ErrorCode::cancelled);
  }
}

// Beside those of a network: files, and what is in memory.
TEST_F(CatalogueStore, ObjectsThatAreReadAtOnceHaveVersions) {
  const Store memory = memory_store();
  memory.set("f", bytes_of("old one"));
  Whereabouts& where = catalogue_->objects["a/0"];
  where.store = memory.shared_driver();
  where.nbytes = 7;
  WaitedRead first;
  first.key = "a/0";
  first.extent = Extent::suffix(3);
  read_and_wait(*store_->async_reads(), first);
  EXPECT_EQ(text_of(first.bytes), "one");
  EXPECT_NE(first.version, "");
  for (const bool is_new : {false, true}) {
    WaitedRead second;
    second.key = "a/0";
    second.extent = Extent::range(0, 3);
    second.if_version = first.version;
    if (is_new) memory.set("f", bytes_of("new one"));
    const auto read = [&] { read_and_wait(*store_->async_reads(), second); };
    if (is_new) {
      EXPECT_EQ(code_of(read), ErrorCode::io);
    } else {
      read();
      EXPECT_EQ(text_of(second.bytes), "old");
    }
  }
}

// A catalogue that is made anew may lead elsewhere in the same object, whose version stays.
TEST_F(CatalogueStore, VersionsAreOfAPlace) {
  const auto version_of = [&](StoreDriver& store) {
    WaitedRead read;
    read.key = "a/0";
    read.extent = Extent::range(0, 2);
    read_and_wait(*store.async_reads(), read);
    return read.version;
  };
  const std::string version = version_of(*store_);
  EXPECT_EQ(store_->open("a/0")->version_text(), version);
  far_->asked();
  const auto read_on = [&](const Whereabouts& where) {
    const auto anew = std::make_shared<MapCatalogue>();
    anew->objects["a/0"] = where;
    const auto store = make_catalogue_store(anew, {4, 100});
    WaitedRead read;
    read.key = "a/0";
    read.extent = Extent::range(2, 1);
    read.if_version = version;
    read_and_wait(*store->async_reads(), {&read, 1});
    try {
      if (read.error) std::rethrow_exception(read.error);
    } catch (const Error& error) {
      EXPECT_TRUE(is_changed(error)) << error.what();
      return std::string("changed");
    }
    return std::string(text_of(read.bytes));
  };
  Whereabouts where = catalogue_->objects["a/0"];
  EXPECT_EQ(read_on(where), "c");
  EXPECT_EQ(far_->asked(), (std::vector<std::string>{"f range 2 1 if v1"}));
  where.offset = 1;
  EXPECT_EQ(read_on(where), "changed");
  where.offset = 0;
  where.nbytes = 4;
  EXPECT_EQ(read_on(where), "changed");
  where.nbytes = 3;
  where.key = "g";
  EXPECT_EQ(read_on(where), "changed");
  Whereabouts here;
  here.bytes = bytes_of("here");
  EXPECT_EQ(read_on(here), "changed");
  EXPECT_TRUE(far_->asked().empty());
}

TEST_F(CatalogueStore, SizesAreThoseOfTheCatalogue) {
  catalogue_->objects.erase("a/4");  // whole: to be looked at
  std::map<std::string, std::uint64_t> sizes;
  for (const ObjectSize& object : store_->list_sizes("a")) sizes[object.key] = object.nbytes;
  EXPECT_EQ(sizes,
            (std::map<std::string, std::uint64_t>{{"a/0", 3},
                                                  {"a/1", 3},
                                                  {"a/2", 4},
                                                  {"a/3", 2},
                                                  {"a/5", 9},
                                                  {"a/6", 1},
                                                  {"a/7", 4},
                                                  {"a/8", 0},
                                                  {"a/9", 2}}));
  EXPECT_TRUE(far_->asked().empty());
}

TEST_F(CatalogueStore, RangesAreShifted) {
  const auto reader = store_->open("a/2");
  ASSERT_NE(reader, nullptr);
  EXPECT_EQ(reader->size(), 4u);
  EXPECT_NE(reader->version(), 0u);
  EXPECT_EQ(far_->asked(), (std::vector<std::string>{"f range 23 1"}));
  std::byte bytes[2];
  reader->read(2, bytes);
  EXPECT_EQ(text_of(bytes), "wx");
  EXPECT_EQ(far_->asked(), (std::vector<std::string>{"f range 22 2 if v1"}));
  EXPECT_EQ(code_of([&] { reader->read(3, bytes); }), ErrorCode::corrupt);
  EXPECT_EQ(code_of([&] { store_->open("a/5"); }), ErrorCode::corrupt);

  WaitedRead suffix;
  suffix.key = "a/2";
  suffix.extent = Extent::suffix(3);
  read_and_wait(*store_->async_reads(), suffix);
  EXPECT_EQ(text_of(suffix.bytes), "vwx");
  EXPECT_EQ(suffix.object_nbytes, 4u);
  WaitedRead whole;
  whole.key = "a/4";
  whole.extent = Extent::suffix(3);
  read_and_wait(*store_->async_reads(), whole);
  EXPECT_EQ(text_of(whole.bytes), "123");
  EXPECT_EQ(whole.object_nbytes, 4u);
  WaitedRead bounded;
  bounded.key = "a/2";
  bounded.max_nbytes = 3;
  EXPECT_EQ(code_of([&] { read_and_wait(*store_->async_reads(), bounded); }), ErrorCode::corrupt);
}

}  // namespace
}  // namespace headrace::test
