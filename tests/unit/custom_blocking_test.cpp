// Stores of applications that have blocking methods only, read by threads that wait for them.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "conformance/config_guard.h"
#include "conformance/error_code.h"
#include "headrace/array.h"
#include "headrace/cached_store.h"
#include "headrace/store.h"
#include "store/async.h"
#include "store/store.h"
#include "support/fork.h"
#include "support/noted_read.h"

namespace headrace::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class Blocking final : public CustomStore {
 public:
  std::map<std::string, std::string> objects;
  std::size_t batch = 1;
  bool answers_at_once = false;
  std::function<void()> on_call;  // on the way to an answer
  std::atomic<int> calls{0}, now{0}, most{0};
  std::atomic<std::size_t> most_keys{0}, most_ranges{0};

  std::string url() const override { return "blocking://test"; }
  bool read_only() const override { return true; }
  bool local() const override { return answers_at_once; }
  std::size_t batch_size() const override { return batch; }

  std::vector<std::optional<StoredBytes>> get(std::span<const std::string> keys) override {
    const Call call(*this);
    most_keys = std::max<std::size_t>(most_keys, keys.size());
    std::vector<std::optional<StoredBytes>> found;
    for (const std::string& key : keys) {
      const auto at = objects.find(key);
      found.push_back(at == objects.end() ? std::nullopt : std::optional(all_of(at->second)));
    }
    return found;
  }
  std::optional<std::uint64_t> size(const std::string& key) override {
    const Call call(*this);
    const auto at = objects.find(key);
    return at == objects.end() ? std::nullopt : std::optional<std::uint64_t>(at->second.size());
  }
  std::optional<StoredBytes> get_range(const std::string& key, const ByteRange& range) override {
    const Call call(*this);
    return range_of(key, range);
  }
  std::optional<std::vector<StoredBytes>> get_ranges(const std::string& key,
                                                     std::span<const ByteRange> ranges) override {
    const Call call(*this);
    most_ranges = std::max<std::size_t>(most_ranges, ranges.size());
    std::vector<StoredBytes> found;
    for (const ByteRange& range : ranges) {
      auto one = range_of(key, range);
      if (!one) return std::nullopt;
      found.push_back(*one);
    }
    return found;
  }
  void set(const std::string&, ConstBytes) override {}
  void erase(const std::string&) override {}
  void erase_prefix(const std::string&) override {}
  std::vector<std::string> list(const std::string& prefix) override {
    std::vector<std::string> keys;
    for (const auto& [key, text] : objects) {
      if (key.starts_with(prefix)) keys.push_back(key);
    }
    return keys;
  }
  std::vector<std::string> list_dir(const std::string& prefix) override {
    std::set<std::string> names;
    for (const std::string& key : list(prefix)) {
      const std::string rest = key.substr(prefix.size());
      names.insert(rest.substr(0, rest.find('/')));
    }
    return {names.begin(), names.end()};
  }

 private:
  struct Call {
    explicit Call(Blocking& its_store) : store(its_store) {
      ++store.calls;
      const int at_once = ++store.now;
      for (int known = store.most; known < at_once;) {
        if (store.most.compare_exchange_weak(known, at_once)) break;
      }
      if (store.on_call) store.on_call();
    }
    ~Call() { --store.now; }
    Blocking& store;
  };

  static StoredBytes all_of(const std::string& text) {
    auto copy = std::make_shared<std::string>(text);
    return {std::as_bytes(std::span(*copy)), copy};
  }
  std::optional<StoredBytes> range_of(const std::string& key, const ByteRange& range) const {
    const auto at = objects.find(key);
    if (at == objects.end()) return std::nullopt;
    return all_of(at->second.substr(range.offset, range.nbytes));
  }
};

using Read = NotedRead;

// Where calls get stuck until it is let go.
class Gate {
 public:
  ~Gate() { open(); }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

void submit(const Store& store, std::deque<Read>& reads) {
  std::vector<AsyncRead*> all;
  for (Read& read : reads) all.push_back(&read);
  store.driver().async_reads()->submit(all);
}

void wait_until_idle(const Blocking& behind) {
  while (behind.now > 0) std::this_thread::yield();
}

TEST(BlockingStore, IsAskedByThreadsOfItsOwnUnlessItIsLocal) {
  const auto behind = std::make_shared<Blocking>();
  EXPECT_NE(make_store(behind).driver().async_reads(), nullptr);
  EXPECT_FALSE(make_store(behind).driver().local());
  behind->answers_at_once = true;
  EXPECT_EQ(make_store(behind).driver().async_reads(), nullptr);
  EXPECT_TRUE(make_store(behind).driver().local());
}

TEST(BlockingStore, IsOne) {
  EXPECT_EQ(code_of([] { make_store(nullptr); }), ErrorCode::invalid_argument);
}

TEST(BlockingStore, AnswersEachRead) {
  const std::string text = "0123456789";
  for (const std::size_t batch : {1, 4}) {
    const auto behind = std::make_shared<Blocking>();
    behind->objects = {{"a", text}, {"empty", ""}, {"failing", "x"}};
    behind->batch = batch;
    const Store store = make_store(behind);
    std::deque<Read> reads;
    reads.emplace_back("a", Extent::whole());
    reads.emplace_back("none", Extent::whole());
    reads.emplace_back("a", Extent::range(2, 3));
    reads.emplace_back("a", Extent::range(5, 5));
    reads.emplace_back("a", Extent::range(8, 3));
    reads.emplace_back("a", Extent::suffix(4));
    reads.emplace_back("a", Extent::suffix(40));
    reads.emplace_back("empty", Extent::suffix(4));
    reads.emplace_back("none", Extent::suffix(4));
    reads.emplace_back("none", Extent::range(0, 1));
    reads.emplace_back("a", Extent::whole());
    reads.back().max_nbytes = 9;
    std::string into(3, '\0');
    reads.emplace_back("a", Extent::range(1, 3));
    reads.back().into = std::as_writable_bytes(std::span(into));
    submit(store, reads);
    for (Read& read : reads) read.wait();
    for (const std::size_t i : {0, 2, 3, 5, 6, 7, 11}) {
      EXPECT_TRUE(reads[i].found) << i;
      EXPECT_EQ(reads[i].error, nullptr) << i;
    }
    EXPECT_EQ(reads[0].text(), text);
    EXPECT_EQ(reads[0].object_nbytes, 10u);
    EXPECT_EQ(reads[2].text(), "234");
    EXPECT_EQ(reads[3].text(), "56789");
    EXPECT_EQ(reads[5].text(), "6789");
    EXPECT_EQ(reads[5].object_nbytes, 10u);
    EXPECT_EQ(reads[6].text(), text);
    EXPECT_EQ(reads[7].text(), "");
    EXPECT_EQ(into, "123");
    for (const std::size_t i : {1, 8, 9}) {
      EXPECT_FALSE(reads[i].found) << i;
      EXPECT_EQ(reads[i].error, nullptr) << i;
    }
    for (const std::size_t i : {4, 10}) {
      ASSERT_NE(reads[i].error, nullptr) << i;
      EXPECT_EQ(code_of([&] { std::rethrow_exception(reads[i].error); }), ErrorCode::corrupt);
    }
    EXPECT_EQ(behind->most_keys, batch == 1 ? 1u : 3u);
    EXPECT_EQ(behind->most_ranges, batch == 1 ? 0u : 4u);
    for (Read& read : reads) EXPECT_EQ(read.times(), 1);
  }
}

TEST(BlockingStore, WhatItThrowsEndsTheReadsOfThatCall) {
  const auto behind = std::make_shared<Blocking>();
  behind->objects = {{"a", "0123456789"}};
  behind->on_call = [] { throw Error(ErrorCode::permission_denied, "no"); };
  const Store store = make_store(behind);
  std::deque<Read> reads;
  for (const Extent& extent : {Extent::whole(), Extent::range(1, 2), Extent::suffix(2)})
    reads.emplace_back("a", extent);
  submit(store, reads);
  for (Read& read : reads) {
    read.wait();
    ASSERT_NE(read.error, nullptr);
    EXPECT_EQ(code_of([&] { std::rethrow_exception(read.error); }), ErrorCode::permission_denied);
  }
}

// Requests under way are not the threads that compute, and not more than so many.
TEST(BlockingStore, WorksOnManyRequestsWhateverTheThreads) {
  const ConfigGuard guard;
  set_thread_count(2);
  const auto behind = std::make_shared<Blocking>();
  const Store inner = memory_store();
  CreateOptions options;
  options.shape = {128, 16};
  options.dtype = DType::int32;
  options.chunks = {1, 16};
  std::vector<std::int32_t> values(128 * 16);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  create_array(inner, "a", options).write({}, {values.data(), options.shape, {}, DType::int32, {}});
  for (const std::string& key : inner.list("")) {
    const auto object = inner.open(key);
    std::string text(object->size(), '\0');
    object->read(0, std::as_writable_bytes(std::span(text)));
    behind->objects[key] = text;
  }
  const Array array = open_array(make_store(behind), "a");
  behind->on_call = [] { std::this_thread::sleep_for(10ms); };
  const Tensor tensor = array.read();
  const auto* const first = static_cast<const std::int32_t*>(tensor.data());
  EXPECT_EQ(std::vector<std::int32_t>(first, first + values.size()), values);
  EXPECT_GT(behind->most, 8);
  EXPECT_LE(behind->most, 32);
  set_thread_count(0);
}

TEST(BlockingStore, ADeadlineEndsTheWaitForACallThatIsStuck) {
  const auto behind = std::make_shared<Blocking>();
  behind->objects = {{"a", std::string(1000, 'x')}};
  Gate gate;
  behind->on_call = [&] { gate.pass(); };
  const Store store = make_store(behind);
  const auto begin = Clock::now();
  std::string into(500, '.');
  {
    // The memory of the reads is gone before the store answers.
    std::deque<Read> reads;
    reads.emplace_back("a", Extent::whole());
    reads.emplace_back("a", Extent::range(0, 500));
    reads.back().into = std::as_writable_bytes(std::span(into));
    reads.emplace_back("a", Extent::suffix(10));
    int i = 0;
    for (Read& read : reads) read.deadline = begin + (++i) * 30ms;
    submit(store, reads);
    for (Read& read : reads) {
      read.wait();
      EXPECT_EQ(read.times(), 1);
      ASSERT_NE(read.error, nullptr);
      try {
        std::rethrow_exception(read.error);
      } catch (const Error& error) {
        EXPECT_EQ(error.os_error(), ETIMEDOUT) << error.what();
      }
    }
    EXPECT_GE(Clock::now() - begin, 90ms);
    EXPECT_LT(Clock::now() - begin, 10s);
  }
  gate.open();
  wait_until_idle(*behind);
  EXPECT_EQ(into, std::string(500, '.'));
  std::deque<Read> later;
  later.emplace_back("a", Extent::range(3, 4));
  later.back().deadline = Clock::now() + 60s;
  submit(store, later);
  later.front().wait();
  EXPECT_EQ(later.front().text(), "xxxx");
}

TEST(BlockingStore, WhatIsCancelledIsDoneAtOnce) {
  const auto behind = std::make_shared<Blocking>();
  behind->objects = {{"a", std::string(1000, 'x')}};
  Gate gate;
  behind->on_call = [&] { gate.pass(); };
  {
    const Store store = make_store(behind);
    std::deque<Read> reads;
    for (int i = 0; i < 100; ++i) reads.emplace_back("a", Extent::whole());  // more than threads
    submit(store, reads);
    for (Read& read : reads) {
      store.driver().async_reads()->cancel(read);
      store.driver().async_reads()->cancel(read);
      EXPECT_EQ(read.times(), 1);
      EXPECT_EQ(code_of([&] { std::rethrow_exception(read.error); }), ErrorCode::cancelled);
    }
  }
  // The store is gone before what is stuck in it ends.
  EXPECT_LE(behind->calls, 32);
  gate.open();
  wait_until_idle(*behind);
  EXPECT_LE(behind->calls, 32);
}

TEST(BlockingStore, AChildOfForkStartsThreadsOfItsOwn) {
  HEADRACE_SKIP_WHERE_CHILDREN_START_NO_THREADS();
  const auto behind = std::make_shared<Blocking>();
  behind->objects = {{"a", "0123456789"}};
  Gate gate;
  std::atomic<bool> is_stuck{false};
  behind->on_call = [&] {
    if (is_stuck) gate.pass();
  };
  const Store store = make_store(behind);
  const auto read_one = [&] {
    std::deque<Read> reads;
    reads.emplace_back("a", Extent::range(1, 2));
    reads.back().deadline = Clock::now() + 60s;
    submit(store, reads);
    reads.front().wait();
    return reads.front().text();
  };
  EXPECT_EQ(read_one(), "12");
  is_stuck = true;
  std::deque<Read> stuck;
  stuck.emplace_back("a", Extent::range(4, 2));
  submit(store, stuck);
  while (behind->now == 0) std::this_thread::yield();
  is_stuck = false;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(read_one() == "12" ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  gate.open();
  stuck.front().wait();
  EXPECT_EQ(stuck.front().text(), "45");
}

// Asked for when nothing was known of the object, and again when its first range has come.
TEST(BlockingStore, BehindACacheWhatIsUnderWayIsNotAskedForAgain) {
  const auto behind = std::make_shared<Blocking>();
  behind->objects = {{"a", std::string(1000, 'x')}};
  Gate gate;
  std::atomic<int> entered{0};
  behind->on_call = [&] {
    if (entered++ > 0) gate.pass();
  };
  const Store store = cached_store(make_store(behind), {.block_nbytes = 64});
  std::deque<Read> first, again;
  for (std::deque<Read>* reads : {&first, &again}) {
    reads->emplace_back("a", Extent::range(0, 50));
    reads->emplace_back("a", Extent::range(600, 50));
    submit(store, *reads);
    while (cache_stats(store).misses < 1) std::this_thread::yield();
  }
  gate.open();
  for (std::deque<Read>* reads : {&first, &again}) {
    for (Read& read : *reads) {
      read.wait();
      EXPECT_EQ(read.text(), std::string(50, 'x'));
    }
  }
  EXPECT_EQ(behind->calls, 2);
}

TEST(BlockingStore, BehindACacheIsAskedOnce) {
  const auto behind = std::make_shared<Blocking>();
  std::string text;
  for (int i = 0; i < 4000; ++i) text += static_cast<char>(i * 7 % 251);
  behind->objects = {{"a", text}};
  behind->on_call = [] { std::this_thread::sleep_for(5ms); };
  const Store store = cached_store(make_store(behind), {.block_nbytes = 64});
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      std::deque<Read> reads;
      for (std::size_t i = 0; i < 10; ++i) reads.emplace_back("a", Extent::range(300 * i, 50));
      submit(store, reads);
      for (std::size_t i = 0; i < 10; ++i) {
        reads[i].wait();
        EXPECT_EQ(reads[i].text(), text.substr(300 * i, 50));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache_stats(store).fetched_nbytes, 500);
  const int calls = behind->calls;
  EXPECT_EQ(calls, 10);
  std::deque<Read> reads;
  reads.emplace_back("a", Extent::range(300, 50));
  submit(store, reads);
  reads.front().wait();
  EXPECT_EQ(behind->calls, calls);
}

}  // namespace
}  // namespace headrace::test
