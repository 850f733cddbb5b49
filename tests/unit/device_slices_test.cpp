// Small reads of files to a device: it copies one slice while the next is read, and nobody waits
// for another thread's call of the driver.

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "conformance/temp_folder.h"
#include "engine/device/slab.h"
#include "unit/watched_reads.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using test::bytes_of;
using test::Layout;

// A driver that takes its time for copies: it calls what the test gives before each.
class SlowQueue final : public Queue {
 public:
  std::function<void()> before_copy;
  std::atomic<int> copies{0};
  std::atomic<bool> met{false};  // two threads were in it at once

  void* native() const override { return queue_->native(); }
  unsigned processors() const override { return queue_->processors(); }
  unsigned tuned_for() const override { return queue_->tuned_for(); }
  void tune_for(unsigned processors) override { queue_->tune_for(processors); }
  std::size_t shared_nbytes() const override { return queue_->shared_nbytes(); }
  void* allocate(std::size_t nbytes) override { return queue_->allocate(nbytes); }
  void free(void* memory) noexcept override { queue_->free(memory); }
  void upload(void* target, const void* source, std::size_t nbytes) override {
    queue_->upload(target, source, nbytes);
  }
  void upload_made(void* target, std::size_t nbytes, FunctionRef<void(void*)> make) override {
    queue_->upload_made(target, nbytes, make);
  }
  void upload_pinned(void* target, const void* source, std::size_t nbytes) override {
    if (inside_.exchange(true)) met = true;
    ++copies;
    if (before_copy) before_copy();
    queue_->upload_pinned(target, source, nbytes);
    inside_ = false;
  }
  void download(void* target, const void* source, std::size_t nbytes) override {
    queue_->download(target, source, nbytes);
  }
  void copy(void* target, const void* source, std::size_t nbytes) override {
    queue_->copy(target, source, nbytes);
  }
  void fill(void* target, std::uint8_t value, std::size_t nbytes) override {
    queue_->fill(target, value, nbytes);
  }
  void synchronize() override { queue_->synchronize(); }
  std::unique_ptr<Mark> mark() override { return queue_->mark(); }
  void wait_for(Queue& other) override { queue_->wait_for(other); }
  void wait_for(Mark& mark) override { queue_->wait_for(mark); }
  void notify(std::function<void()> done) override { queue_->notify(std::move(done)); }

 private:
  const std::unique_ptr<Queue> queue_ = simt_backend().make_queue(0);
  std::atomic<bool> inside_{false};
};

constexpr std::size_t kPart = 1000;

void put(SlabMemory& memory, const SlabMemory::Piece& piece, std::size_t part) {
  std::memset(piece.host + part * kPart, static_cast<int>(part % 200) + 1, kPart);
  memory.filled_part(piece, part * kPart, kPart);
}

void expect_parts(const std::uint8_t* found, std::size_t parts) {
  for (std::size_t i = 0; i < parts * kPart; ++i)
    ASSERT_EQ(found[i], static_cast<std::uint8_t>(i / kPart % 200 + 1)) << i;
}

TEST(DeviceSlices, NobodyWaitsForAnothersCopy) {
  for (const bool in_place : {false, true}) {
    PinnedBlocks pinned(simt_backend(), 0);
    SlowQueue queue;
    std::vector<std::uint8_t> target(4 * kPart);
    SlabMemory memory(pinned, queue, 4096);
    const SlabMemory::Piece piece =
        in_place ? memory.reserve_in_place(target.data(), 4 * kPart, true, 4096, 777)
                 : memory.reserve_for_parts(4 * kPart);
    std::promise<void> others_done;
    auto done = others_done.get_future();
    std::promise<void> begun;
    bool first = true, waited = false;
    queue.before_copy = [&] {
      if (!std::exchange(first, false)) return;
      begun.set_value();
      waited = done.wait_for(10s) != std::future_status::ready;
    };
    std::thread giver([&] { put(memory, piece, 0); });
    begun.get_future().wait();
    for (const std::size_t part : {3, 1, 2}) put(memory, piece, part);
    others_done.set_value();
    giver.join();
    EXPECT_FALSE(waited) << "filled_part() waited for the copy of another thread";
    EXPECT_EQ(queue.copies, 2) << "what came meanwhile lies together, and is one copy";
    memory.filled(piece);
    memory.finish();
    queue.synchronize();
    expect_parts(in_place ? target.data() : piece.device, 4);
  }
}

TEST(DeviceSlices, ThreadsFillPartsSideBySide) {
  constexpr std::size_t kParts = 400, kThreads = 4;
  PinnedBlocks pinned(simt_backend(), 0);
  SlowQueue queue;
  SlabMemory memory(pinned, queue, 4096);
  const SlabMemory::Piece piece = memory.reserve_for_parts(kParts * kPart);
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (std::size_t part; (part = next.fetch_add(1)) < kParts;) put(memory, piece, part);
    });
  }
  for (std::thread& thread : threads) thread.join();
  memory.filled(piece);
  memory.finish();
  queue.synchronize();
  EXPECT_FALSE(queue.met) << "two threads were in the driver at once";
  expect_parts(piece.device, kParts);
}

class DeviceSlicesRead : public test::WatchedReads {
 protected:
  const test::TempFolder folder_{std::filesystem::temp_directory_path()};
};

TEST_F(DeviceSlicesRead, ReadsWhatTheHostReads) {
  const CodecSpec little = codec::bytes();
  for (const auto& codecs : {std::vector{little},
                             std::vector{little, codec::crc32c()},
                             std::vector{little, codec::lz4()}}) {
    for (const Shape& shards : {Shape{}, Shape{2, 800'001}}) {
      const Layout layout{"", {2, 800'001}, {1, 800'001}, shards, codecs};
      const Array a = test::filled(open_store(folder_ / "s", StoreMode::overwrite), layout);
      const auto expected = bytes_of(a.read({slice(0, 1)}));
      for (const int threads : {1, 4}) {
        Config next = config();
        next.threads = threads;
        next.device_slab_nbytes = std::size_t{16} << 20;
        set_config(next);
        const Array there = open_array(open_store(folder_ / "s"), "a").to(Device::simt());
        reads = 0;
        largest_read = 0;
        EXPECT_EQ(bytes_of(there.read({slice(0, 1)})), expected)
            << codecs.back().name << ' ' << threads;
        if (codecs.back().name == codec::lz4().name) continue;  // fewer bytes
        EXPECT_GE(reads, 12) << "in slices, by " << threads;
        EXPECT_LE(largest_read, std::size_t{256} << 10);
      }
    }
  }
}

}  // namespace
}  // namespace headrace
