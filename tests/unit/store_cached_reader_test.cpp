// What a reader of a cached store keeps of the store behind, and when it lets go of it.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "headrace/cached_store.h"
#include "store/store.h"

namespace headrace::test {
namespace {

constexpr std::size_t kBlock = 64;

// One object of two blocks. The readers are code of the application, as those of a Python store.
class Watched final : public StoreDriver {
 public:
  std::function<void(std::uint64_t offset)> on_read;
  std::function<void()> on_drop;

  std::string url() const override { return "watched"; }
  bool read_only() const override { return true; }
  bool get(std::string_view, Buffer&) override { return false; }
  std::unique_ptr<ObjectReader> open(std::string_view) override {
    return std::make_unique<Reader>(*this);
  }
  bool exists(std::string_view) override { return true; }
  void set(std::string_view, ConstBytes) override {}
  void erase(std::string_view) override {}
  void erase_prefix(std::string_view) override {}
  std::vector<std::string> list(std::string_view) override { return {"k"}; }
  std::vector<DirEntry> list_dir(std::string_view) override { return {}; }

 private:
  class Reader final : public ObjectReader {
   public:
    explicit Reader(const Watched& store) : store_(store) {}
    ~Reader() override {
      if (store_.on_drop) store_.on_drop();
    }
    std::uint64_t size() const override { return 2 * kBlock; }
    std::uint64_t version() const override { return 1; }
    void read(std::uint64_t offset, MutableBytes dst) const override {
      if (store_.on_read) store_.on_read(offset);
      std::ranges::fill(dst, std::byte{1});
    }

   private:
    const Watched& store_;
  };
};

// Whoever lets go of a reader may wait for what another thread has, Python's lock say, and that one
// for the reader's: so it is let go of without a lock.
TEST(CachedReader, LetsGoOfReadersBehindItWithoutALock) {
  auto behind = std::make_shared<Watched>();
  const Store store = cached_store(Store(behind), {.block_nbytes = kBlock});
  static_cast<void>(store.driver().open("k"));  // from now on nothing is opened before it is read
  const auto reader = store.driver().open("k");

  std::atomic<int> reads{0};
  std::atomic<bool> first_is_done{false};
  behind->on_read = [&](std::uint64_t offset) {
    ++reads;
    while (reads < 2) std::this_thread::yield();
    if (offset > 0) first_is_done.wait(false);
  };
  std::future<void> user;
  std::future_status used = std::future_status::deferred;
  behind->on_drop = [&] {
    user = std::async(std::launch::async, [&] { static_cast<void>(reader->version()); });
    used = user.wait_for(std::chrono::seconds(2));
  };
  const auto read = [&](std::uint64_t offset) {
    std::byte bytes[kBlock];
    reader->read(offset, bytes);
  };
  std::thread second([&] { read(kBlock); });
  read(0);
  first_is_done = true;
  first_is_done.notify_all();
  second.join();
  behind->on_drop = nullptr;
  EXPECT_EQ(used, std::future_status::ready);
}

}  // namespace
}  // namespace headrace::test
