#pragma once

// What every store must do, as one test suite.
//  1. Derive a StoreFixture that makes an empty store and opens it again for reading.
//  2. INSTANTIATE_TEST_SUITE_P(Name, StoreConformance, testing::Values(StoreCase{...}), case_name).
// Include it in one .cpp of a test program: it defines the tests.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "headrace/error.h"
#include "store/store.h"
#include "support/fork.h"

namespace headrace::test {

class StoreFixture {
 public:
  virtual ~StoreFixture() = default;
  // The store, writable and empty at first; the same one at each call.
  virtual std::shared_ptr<StoreDriver> writable() = 0;
  // What was written, opened for reading only. Nothing is written afterwards.
  virtual std::shared_ptr<StoreDriver> reopened() = 0;
};

struct StoreCase {
  std::string name;
  std::function<std::unique_ptr<StoreFixture>()> make;
};

inline void PrintTo(const StoreCase& c, std::ostream* out) { *out << c.name; }
inline std::string case_name(const testing::TestParamInfo<StoreCase>& info) {
  return info.param.name;
}

inline std::string pattern(std::size_t nbytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(nbytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// The object as text, "(none)" when there is none.
inline std::string get_text(StoreDriver& store, std::string_view key) {
  Buffer buffer;
  return store.get(key, buffer) ? std::string(text_of(buffer)) : "(none)";
}

template <typename F>
ErrorCode error_of(F&& call, std::string* message = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error was thrown";
  return ErrorCode::cancelled;
}

class StoreConformance : public testing::TestWithParam<StoreCase> {
 protected:
  void SetUp() override {
    fixture_ = GetParam().make();
    store_ = fixture_->writable();
  }
  void put(std::string_view key, std::string_view text) { store_->set(key, bytes_of(text)); }

  std::unique_ptr<StoreFixture> fixture_;
  std::shared_ptr<StoreDriver> store_;
};

TEST_P(StoreConformance, MissingKeyIsNoError) {
  put("a/b", "x");
  for (const char* key : {"nothing", "no/such/key", "a", "a/b/c"}) {
    Buffer buffer;
    EXPECT_FALSE(store_->get(key, buffer)) << key;
    // A store may refuse to open a folder.
    if (key != std::string_view("a")) {
      EXPECT_EQ(store_->open(key), nullptr) << key;
    }
    EXPECT_FALSE(store_->exists(key)) << key;
  }
  EXPECT_TRUE(store_->exists("a/b"));
}

TEST_P(StoreConformance, BytesComeBack) {
  const std::size_t sizes[] = {
      0, 1, 63, 64, 65, 511, 4095, 4096, 4097, 65536, (1 << 20) + 3, 5 << 20};
  for (std::size_t n : sizes) put("size/" + std::to_string(n), pattern(n, 1));
  for (const auto& store : {store_, fixture_->reopened()}) {
    Buffer reused;
    for (std::size_t n : sizes) {
      const std::string key = "size/" + std::to_string(n);
      ASSERT_TRUE(store->get(key, reused)) << key;
      EXPECT_TRUE(text_of(reused) == pattern(n, 1)) << key;
      auto reader = store->open(key);
      ASSERT_NE(reader, nullptr) << key;
      EXPECT_EQ(reader->size(), n);
    }
    ASSERT_TRUE(store->get("size/1", reused));  // a smaller object after a larger one
    EXPECT_EQ(reused.size(), 1u);
  }
}

TEST_P(StoreConformance, SetReplacesWhole) {
  put("k", pattern(10000, 1));
  put("k", "short");
  EXPECT_EQ(get_text(*store_, "k"), "short");
  put("k", "");
  EXPECT_EQ(get_text(*store_, "k"), "");
  put("k", pattern(20000, 2));
  EXPECT_EQ(get_text(*store_, "k"), pattern(20000, 2));
  EXPECT_EQ(get_text(*fixture_->reopened(), "k"), pattern(20000, 2));
}

TEST_P(StoreConformance, PartsMakeOneObject) {
  const std::string text = pattern(100000, 7);
  const auto bytes = std::as_bytes(std::span(text));
  const ConstBytes parts[] = {bytes.first(1), {}, bytes.subspan(1, 70000), bytes.subspan(70001)};
  store_->set_parts("k", parts);
  EXPECT_TRUE(get_text(*store_, "k") == text);
  store_->set_parts("k", std::span(parts).first(1));
  store_->set_parts("empty", {});
  EXPECT_EQ(get_text(*store_, "empty"), "");
  const auto reopened = fixture_->reopened();
  EXPECT_EQ(get_text(*reopened, "k"), text.substr(0, 1));
  EXPECT_EQ(error_of([&] { reopened->set_parts("k", parts); }), ErrorCode::permission_denied);
}

TEST_P(StoreConformance, RangesComeBack) {
  const std::string text = pattern(300000, 3);
  put("dir/object", text);
  for (const auto& store : {store_, fixture_->reopened()}) {
    auto reader = store->open("dir/object");
    ASSERT_NE(reader, nullptr);
    std::mt19937 random(4);
    for (int i = 0; i < 300; ++i) {
      std::size_t offset = random() % (text.size() + 1);
      std::size_t nbytes = random() % (text.size() - offset + 1);
      if (i % 3 == 0) offset = offset / 4096 * 4096;  // as direct I/O likes it
      Buffer part(nbytes);
      reader->read(offset, part.bytes());
      ASSERT_TRUE(text_of(part) == std::string_view(text).substr(offset, nbytes))
          << offset << " + " << nbytes;
    }
    ConstBytes mapped = reader->mapped();
    EXPECT_TRUE(mapped.empty() || text_of(mapped) == text);
  }
}

TEST_P(StoreConformance, RangePastTheEndIsCorrupt) {
  put("o", "0123456789");
  for (const auto& store : {store_, fixture_->reopened()}) {
    auto reader = store->open("o");
    ASSERT_NE(reader, nullptr);
    std::byte bytes[16];
    reader->read(10, MutableBytes(bytes, 0));
    const std::pair<std::uint64_t, std::size_t> wrong[] = {
        {0, 11}, {10, 1}, {11, 0}, {9, 2}, {UINT64_MAX, 1}, {UINT64_MAX - 3, 8}, {1ull << 63, 4}};
    for (auto [offset, nbytes] : wrong) {
      MutableBytes dst(bytes, nbytes);
      std::string message;
      EXPECT_EQ(error_of([&] { reader->read(offset, dst); }, &message), ErrorCode::corrupt)
          << offset;
      EXPECT_NE(message.find("o"), std::string::npos);
      EXPECT_EQ(error_of([&] { reader->read_scattered(offset, {&dst, 1}); }), ErrorCode::corrupt);
    }
  }
}

TEST_P(StoreConformance, ScatteredReadFillsEveryPart) {
  const std::string text = pattern(200000, 5);
  put("o", text);
  for (const auto& store : {store_, fixture_->reopened()}) {
    auto reader = store->open("o");
    ASSERT_NE(reader, nullptr);
    Buffer out(text.size());
    std::mt19937 random(6);
    std::vector<MutableBytes> parts;  // more than IOV_MAX, empty ones among them
    for (std::size_t at = 123; at < 150000;) {
      std::size_t n = random() % 50;
      parts.push_back(out.bytes().subspan(at, n));
      at += n;
    }
    ASSERT_GT(parts.size(), 2048u);
    reader->read_scattered(123, parts);
    std::size_t end =
        static_cast<std::size_t>(parts.back().data() - out.data()) + parts.back().size();
    EXPECT_TRUE(text_of(out.bytes().subspan(123, end - 123)) ==
                std::string_view(text).substr(123, end - 123));
    reader->read_scattered(0, {});
  }
}

TEST_P(StoreConformance, GetManyMixesFoundAndMissing) {
  constexpr std::size_t kCount = 300;
  auto text_for = [](std::size_t i) { return pattern(i * 37 % 9000, static_cast<unsigned>(i)); };
  for (std::size_t i = 0; i < kCount; i += 2) put("c/" + std::to_string(i), text_for(i));
  for (const auto& store : {store_, fixture_->reopened()}) {
    std::vector<Buffer> buffers(kCount);
    std::vector<GetRequest> requests;
    for (std::size_t i = 0; i < kCount; ++i) {
      requests.push_back({"c/" + std::to_string(i), &buffers[i], i % 2 == 1});
    }
    store->get_many(requests);
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(requests[i].found, i % 2 == 0) << i;
      ASSERT_TRUE(!requests[i].found || text_of(buffers[i]) == text_for(i)) << i;
    }
    store->get_many({});
    requests.resize(1);
    requests[0].key = "c/../x";
    store->get_many(requests);
    EXPECT_EQ(error_of([&] { std::rethrow_exception(requests[0].error); }),
              ErrorCode::invalid_argument);
  }
}

TEST_P(StoreConformance, EraseTakesOneKey) {
  put("a", "1");
  put("a-b", "2");
  put("d/a", "3");
  store_->erase("a");
  store_->erase("a");
  store_->erase("never/was");
  store_->erase("d");  // a prefix, no object
  EXPECT_FALSE(store_->exists("a"));
  EXPECT_EQ(get_text(*store_, "a"), "(none)");
  EXPECT_EQ(store_->list(""), (std::vector<std::string>{"a-b", "d/a"}));
  EXPECT_EQ(fixture_->reopened()->list(""), (std::vector<std::string>{"a-b", "d/a"}));
}

TEST_P(StoreConformance, ErasePrefixTakesWhatLiesBelow) {
  for (const char* key : {"t/zarr.json", "t/c/0/0", "t/c/0/1", "tt/c", "t-x", "other/t/c"})
    put(key, "x");
  store_->erase_prefix("t/c/");
  EXPECT_EQ(store_->list("t/"), (std::vector<std::string>{"t/zarr.json"}));
  store_->erase_prefix("missing/");
  store_->erase_prefix("t-x/");  // an object of that name is not below it
  store_->erase_prefix("t/");
  EXPECT_EQ(store_->list(""), (std::vector<std::string>{"other/t/c", "t-x", "tt/c"}));
  put("t/c/0/0", "again");
  EXPECT_EQ(get_text(*store_, "t/c/0/0"), "again");
  store_->erase_prefix("");
  EXPECT_TRUE(store_->list("").empty());
  EXPECT_TRUE(store_->list_dir("").empty());
  put("a/b", "x");
  EXPECT_EQ(fixture_->reopened()->list(""), (std::vector<std::string>{"a/b"}));
}

TEST_P(StoreConformance, ListsAreSorted) {
  for (const char* key :
       {"b/c/10", "b/c/9", "zarr.json", "b-c", "b/zarr.json", "a/x", "b.c/y", "B"}) {
    put(key, "x");
  }
  for (const auto& store : {store_, fixture_->reopened()}) {
    EXPECT_EQ(store->list(""),
              (std::vector<std::string>{
                  "B", "a/x", "b-c", "b.c/y", "b/c/10", "b/c/9", "b/zarr.json", "zarr.json"}));
    EXPECT_EQ(store->list("b/"), (std::vector<std::string>{"b/c/10", "b/c/9", "b/zarr.json"}));
    EXPECT_EQ(store->list("b/c/"), (std::vector<std::string>{"b/c/10", "b/c/9"}));
    EXPECT_TRUE(store->list("b/c/9/").empty());
    EXPECT_TRUE(store->list("nothing/").empty());
    EXPECT_EQ(store->list_dir(""),
              (std::vector<DirEntry>{{"B", false},
                                     {"a", true},
                                     {"b", true},
                                     {"b-c", false},
                                     {"b.c", true},
                                     {"zarr.json", false}}));
    EXPECT_EQ(store->list_dir("b/"), (std::vector<DirEntry>{{"c", true}, {"zarr.json", false}}));
    EXPECT_TRUE(store->list_dir("nothing/").empty());
    EXPECT_TRUE(store->list_dir("zarr.json/").empty());
  }
}

TEST_P(StoreConformance, UnusualKeysAreKept) {
  std::vector<std::string> keys = {"...",
                                   ".zgroup",
                                   "a b/c d",
                                   "percent%2Fescaped",
                                   "q?x=1#y&z",
                                   "line\nbreak",
                                   "\xc3\xa9t\xc3\xa9/\xe6\xb8\xa9\xe5\xba\xa6",
                                   "\xf0\x9f\x8c\x8d",
                                   "\xff\xfe-not-utf8",
                                   std::string(200, 'n') + "/" + std::string(255, 'm')};
  std::string deep = "d";
  for (int i = 0; i < 100; ++i) deep += "/" + std::to_string(i);
  keys.push_back(deep);
  std::sort(keys.begin(), keys.end());
  for (const std::string& key : keys) put(key, key);
  for (const auto& store : {store_, fixture_->reopened()}) {
    EXPECT_EQ(store->list(""), keys);
    for (const std::string& key : keys) EXPECT_EQ(get_text(*store, key), key);
  }
}

TEST_P(StoreConformance, KeysThatLeaveTheStoreAreRefused) {
  put("inside", "x");
  using namespace std::string_view_literals;
  for (std::string_view key : {""sv,
                               "/"sv,
                               "/etc/passwd"sv,
                               "."sv,
                               ".."sv,
                               "../x"sv,
                               "a/../../x"sv,
                               "a/./b"sv,
                               "a//b"sv,
                               "a/"sv,
                               "a\\b"sv,
                               "nul\0"sv,
                               "a/\0/b"sv}) {
    Buffer buffer;
    EXPECT_EQ(error_of([&] { store_->get(key, buffer); }), ErrorCode::invalid_argument) << key;
    EXPECT_EQ(error_of([&] { store_->open(key); }), ErrorCode::invalid_argument) << key;
    EXPECT_EQ(error_of([&] { store_->exists(key); }), ErrorCode::invalid_argument) << key;
    EXPECT_EQ(error_of([&] { put(key, "x"); }), ErrorCode::invalid_argument) << key;
    EXPECT_EQ(error_of([&] { store_->erase(key); }), ErrorCode::invalid_argument) << key;
  }
  for (std::string_view prefix : {"../"sv, "/etc/"sv, "a/../"sv, "a//"sv, "//"sv}) {
    EXPECT_EQ(error_of([&] { store_->list(prefix); }), ErrorCode::invalid_argument) << prefix;
    EXPECT_EQ(error_of([&] { store_->list_dir(prefix); }), ErrorCode::invalid_argument) << prefix;
    EXPECT_EQ(error_of([&] { store_->erase_prefix(prefix); }), ErrorCode::invalid_argument)
        << prefix;
  }
  EXPECT_EQ(get_text(*store_, "inside"), "x");
}

TEST_P(StoreConformance, ReadOnlyRefusesWrites) {
  put("a/b", "x");
  EXPECT_FALSE(store_->read_only());
  auto store = fixture_->reopened();
  EXPECT_TRUE(store->read_only());
  EXPECT_EQ(error_of([&] { store->set("a/b", {}); }), ErrorCode::permission_denied);
  EXPECT_EQ(error_of([&] { store->erase("a/b"); }), ErrorCode::permission_denied);
  EXPECT_EQ(error_of([&] { store->erase_prefix("a/"); }), ErrorCode::permission_denied);
  EXPECT_EQ(get_text(*store, "a/b"), "x");
}

// A reader keeps what it opened, or says that it is there no more.
TEST_P(StoreConformance, ReaderSeesOneVersion) {
  const std::string before = pattern(100000, 1);
  const std::string after = pattern(100000, 2);
  put("k", before);
  auto reader = store_->open("k");
  ASSERT_NE(reader, nullptr);
  Buffer half(50000);
  reader->read(0, half.bytes());
  EXPECT_TRUE(text_of(half) == before.substr(0, 50000));
  put("k", after);
  Buffer other(50000);
  try {
    reader->read(50000, other.bytes());
    EXPECT_TRUE(text_of(other) == before.substr(50000));
  } catch (const Error& error) {
    EXPECT_TRUE(is_changed(error) && !store_->local()) << error.what();
  }
  EXPECT_EQ(get_text(*store_, "k"), after);
}

TEST_P(StoreConformance, ReadersDuringWritesSeeWholeObjects) {
  const std::size_t sizes[] = {70000, 130001};
  const std::string versions[] = {pattern(sizes[0], 1), pattern(sizes[1], 2)};
  put("k", versions[0]);
  std::atomic<bool> stop{false};
  std::atomic<int> torn{0};
  std::atomic<int> reads{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&, t] {
      Buffer buffer;
      while (!stop) {
        bool found = false;
        if (t == 0) {
          GetRequest request{"k", &buffer, false};
          store_->get_many({&request, 1});
          found = request.found;
        } else {
          found = store_->get("k", buffer);
        }
        bool whole = found && (text_of(buffer) == versions[0] || text_of(buffer) == versions[1]);
        if (!whole) ++torn;
        ++reads;
      }
    });
  }
  for (int i = 1; i <= 200 || reads < 50; ++i) put("k", versions[i % 2]);
  stop = true;
  for (std::thread& thread : readers) thread.join();
  EXPECT_EQ(torn, 0);
}

TEST_P(StoreConformance, WritersOfManyKeysAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kKeys = 50;
  auto key_of = [](int t, int i) {
    return "d" + std::to_string(i % 7) + "/" + std::to_string(t * kKeys + i);
  };
  std::vector<std::thread> writers;
  for (int t = 0; t < kThreads; ++t) {
    writers.emplace_back([&, t] {
      for (int i = 0; i < kKeys; ++i)
        put(key_of(t, i), pattern(1000, static_cast<unsigned>(t * kKeys + i)));
    });
  }
  for (std::thread& thread : writers) thread.join();
  for (const auto& store : {store_, fixture_->reopened()}) {
    EXPECT_EQ(store->list("").size(), std::size_t{kThreads * kKeys});
    for (int t = 0; t < kThreads; ++t) {
      for (int i = 0; i < kKeys; ++i) {
        ASSERT_EQ(get_text(*store, key_of(t, i)),
                  pattern(1000, static_cast<unsigned>(t * kKeys + i)));
      }
    }
  }
}

TEST_P(StoreConformance, OfSeveralNewOnesOneIsMade) {
  const std::string text = pattern(1000, 1);
  const ConstBytes bytes = bytes_of(text);
  const auto set_new = [&](ConstBytes of) {
    store_->set_if("d/k", {&of, 1}, WriteCondition::if_missing());
  };
  if (!store_->write_conditions().missing) {
    EXPECT_EQ(error_of([&] { set_new(bytes); }), ErrorCode::unsupported);
    EXPECT_EQ(get_text(*store_, "d/k"), "(none)");
    return;
  }
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      try {
        set_new(bytes);
        ++made;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::conflict) << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(error_of([&] { set_new(bytes_of("another")); }), ErrorCode::conflict);
  EXPECT_EQ(get_text(*store_, "d/k"), text);
  EXPECT_EQ(store_->list(""), std::vector<std::string>{"d/k"});
  store_->erase("d/k");
  set_new(bytes_of("another"));
  EXPECT_EQ(get_text(*store_, "d/k"), "another");
}

TEST_P(StoreConformance, ChildAfterForkReads) {
  if (!store_->local()) HEADRACE_SKIP_WHERE_MALLOC_DOES_NOT_SURVIVE_FORK();
  put("k", "before the fork");
  std::vector<Buffer> buffers(3);
  std::vector<GetRequest> requests;
  for (Buffer& buffer : buffers) requests.push_back({"k", &buffer, false});
  store_->get_many(requests);  // whatever a thread keeps for this is there now
  pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int rc = 1;
    try {
      store_->get_many(requests);
      bool same = get_text(*store_, "k") == "before the fork";
      for (const Buffer& buffer : buffers) same &= text_of(buffer) == "before the fork";
      rc = same ? 0 : 2;
    } catch (...) {
      rc = 3;
    }
    ::_exit(rc);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  store_->get_many(requests);
  put("after", "x");
  EXPECT_EQ(get_text(*fixture_->reopened(), "k"), "before the fork");
}

}  // namespace headrace::test
