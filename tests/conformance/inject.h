#pragma once

// Stores that misbehave on purpose, and that count, around any other store.

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/store.h"

namespace headrace::test {

// What happens to the calls that reach a FaultyStore. Set it at any time, from any thread; a fault
// at a call number happens once, a limit lasts.
class Faults {
 public:
  // The nth read from now (1: the next one) raises `io`. Whole gets and ranges count alike, each
  // request of get_many as one.
  void fail_read(long nth, int os_error);
  void fail_write(long nth, int os_error);  // and erasures
  // Writes raise `io` with ENOSPC once this many bytes were written from now on. The object whose
  // write does not fit keeps its old bytes.
  void limit_space(std::uint64_t nbytes);
  // The object seems to end after `nbytes`.
  void shorten(const std::string& key, std::uint64_t nbytes);
  // The byte at `offset` is read with all its bits turned.
  void flip_byte(const std::string& key, std::uint64_t offset);
  void delay_reads_ms(int ms);
  void clear();

  // For the store.
  void before_read(std::string_view key);
  void before_write(std::string_view key, std::uint64_t nbytes);
  std::uint64_t visible_size(std::string_view key, std::uint64_t size) const;
  void damage(std::string_view key, std::uint64_t offset, MutableBytes bytes) const;

 private:
  mutable std::mutex mutex_;
  long reads_left_ = 0;  // 0: no fault is set
  int read_error_ = 0;
  long writes_left_ = 0;
  int write_error_ = 0;
  bool space_limited_ = false;
  std::uint64_t space_left_ = 0;
  int delay_ms_ = 0;
  std::map<std::string, std::uint64_t, std::less<>> sizes_;
  std::multimap<std::string, std::uint64_t, std::less<>> flips_;
};

std::shared_ptr<StoreDriver> make_faulty_store(std::shared_ptr<StoreDriver> store,
                                               std::shared_ptr<Faults> faults);

// Says that it is asked for `batch` objects at once, as a store across a network would.
std::shared_ptr<StoreDriver> make_batching_store(std::shared_ptr<StoreDriver> store,
                                                 std::size_t batch);

// Called before an object is read ("get"), looked for ("exists") or replaced ("set").
using StoreHook = std::function<void(std::string_view what, std::string_view key)>;

// Has no locks, as a store across a network. The hook may be null, and may change.
std::shared_ptr<StoreDriver> make_unlocked_store(std::shared_ptr<StoreDriver> store,
                                                 std::shared_ptr<StoreHook> hook);

struct StoreCounts {
  std::atomic<long> gets{0};     // whole objects asked for, by get or get_many
  std::atomic<long> batches{0};  // calls of get_many
  std::atomic<long> opens{0};
  std::atomic<long> range_reads{0};
  std::atomic<long> bytes_read{0};  // of gets and ranges; bytes taken from mapped() are not seen
  std::atomic<long> exists{0};
  std::atomic<long> sets{0};   // whole or in parts
  std::atomic<long> parts{0};  // of objects set in parts
  std::atomic<long> bytes_written{0};
  std::atomic<long> erases{0};
  std::atomic<long> lists{0};
  std::atomic<long> most_at_once{0};  // reads under way at the same time

  void reset();
};

std::shared_ptr<StoreDriver> make_counting_store(std::shared_ptr<StoreDriver> store,
                                                 std::shared_ptr<StoreCounts> counts);

// What a store is asked for, word for word, in the order of asking. Reads of one range are the same
// request, whichever call makes them.
struct StoreRecord {
  std::vector<std::string> take();  // what was noted since the last time
  void add(std::string request);

 private:
  std::mutex mutex_;
  std::vector<std::string> requests_;
};

// How the recording store says it is.
struct StoreManners {
  bool local = true;
  std::size_t batch_size = 1;
  std::optional<Coalescing> coalescing{};
};

// Objects are read, not mapped.
std::shared_ptr<StoreDriver> make_recording_store(std::shared_ptr<StoreDriver> store,
                                                  StoreManners manners,
                                                  std::shared_ptr<StoreRecord> record);

}  // namespace headrace::test
