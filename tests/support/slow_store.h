#pragma once

// A store across a network, as tests want it: answers come after a latency, in any order, and what
// may go wrong does when it is told to.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "store/async_driver.h"

namespace headrace::test {

struct SlowManners {
  std::chrono::microseconds latency{0};
  std::size_t depth = 64;  // requests on the wire at a time; others wait for a place
  bool answers_in_submit = false;
  // Not 0: the order of the answers that are due, and of faults, is of this seed.
  std::uint64_t seed = 0;
  double error_rate = 0;    // of reads that end by `io`
  double replace_rate = 0;  // of reads before whose answer the object gets another version
  bool tells_versions = true;
  bool tells_object_nbytes = true;
  bool hears_cancel = true;
  bool writes_later = false;      // has asynchronous writes
  bool knows_conditions = false;  // of them
};

struct SlowCounts {
  std::size_t requests = 0;  // reads that were submitted, and look-ups
  std::size_t submits = 0;
  std::size_t most_on_wire = 0;
  std::size_t most_given = 0;     // submitted and not answered
  std::uint64_t nbytes = 0;       // answered
  std::uint64_t most_nbytes = 0;  // asked for by range at one time, or the sizes of objects
  std::size_t cancelled = 0;
  std::size_t writes = 0;
  std::size_t most_writes = 0;          // submitted and not answered
  std::uint64_t most_write_nbytes = 0;  // of those
  // Round trips one after another: a read that was submitted after answers is in the round behind
  // the last of theirs.
  std::size_t rounds = 0;
  std::vector<std::string> asked;  // "key whole", "key 16+32", "key -20", in the order of asking
};

class SlowStore : public AsyncDriver, public AsyncWrites {
 public:
  explicit SlowStore(const SlowManners& manners = {});
  ~SlowStore() override;

  void set_manners(const SlowManners& manners);
  SlowCounts counts() const;
  void forget_counts();
  // Called before an answer is made, by the store's thread; may change the objects.
  void before_answer(std::function<void(const AsyncRead&)> hook);
  void before_write(std::function<void(const AsyncWrite&)> hook);
  // Null: no more.
  void fail_key(std::string key, std::exception_ptr error);

  // Objects, at once.
  void put(std::string_view key, ConstBytes bytes);
  void replace_by_same(std::string_view key);  // another version of the same bytes
  std::vector<std::string> keys() const;

  void submit(std::span<AsyncRead* const> reads) noexcept override;
  void cancel(AsyncRead& read) noexcept override;
  void submit(std::span<AsyncWrite* const> writes) noexcept override;
  void cancel(AsyncWrite& write) noexcept override;
  std::size_t depth() const override;
  AsyncWrites* async_writes() override;
  WriteConditions write_conditions() const override;

  std::string url() const override { return "slow://test"; }
  bool read_only() const override { return false; }
  void set(std::string_view key, ConstBytes bytes) override { put(key, bytes); }
  void erase(std::string_view key) override;
  void erase_prefix(std::string_view prefix) override;
  std::vector<std::string> list(std::string_view prefix) override;
  std::vector<DirEntry> list_dir(std::string_view prefix) override;

 protected:
  std::optional<ObjectState> look_up(std::string_view key) override;

 private:
  class State;
  const std::unique_ptr<State> state_;
};

}  // namespace headrace::test
