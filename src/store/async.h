#pragma once

// Reads and writes that are under way without a thread each, of a store across a network:
//  1. StoreDriver::async_reads() gives them; null for a store that answers at once.
//  2. Who wants something makes an AsyncRead and submits it with others: ranges of one object and
//     small objects are asked for at once, in whatever way the store does that best.
//  3. done() is called once for each, by a thread of the store's, with what came. How many are on
//     the wire at a time is the store's to limit, how many bytes of them lie in memory is the
//     submitter's.
//  4. Writes are asked for in the same way: StoreDriver::async_writes(), AsyncWrite, submit(). What
//     is written stays in the submitter's memory until done().
// store/async_driver.h makes the blocking methods of store.h of these.

#include <chrono>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "store/condition.h"

namespace headrace {

// Which bytes of an object are wanted.
struct Extent {
  enum class Kind : std::uint8_t { whole, range, suffix };

  Kind kind = Kind::whole;
  std::uint64_t offset = 0;  // of a range
  std::uint64_t nbytes = 0;  // of a range; of a suffix at most so many, the object may have fewer

  static Extent whole() { return {}; }
  static Extent range(std::uint64_t offset, std::uint64_t nbytes) {
    return {Kind::range, offset, nbytes};
  }
  static Extent suffix(std::uint64_t nbytes) { return {Kind::suffix, 0, nbytes}; }
};

// One read. Who makes it keeps it until done() is called; from submit() to then it is the store's.
class AsyncRead {
 public:
  AsyncRead() = default;
  virtual ~AsyncRead() = default;
  AsyncRead(const AsyncRead&) = delete;
  AsyncRead& operator=(const AsyncRead&) = delete;

  // What is wanted. Keys were checked by check_key().
  std::string key{};
  Extent extent{};
  // Not empty: of the object as it was when `version` was that, else the error of throw_changed().
  std::string if_version{};
  // Not 0: of an object that was last changed at this time or before (seconds since 1970), else
  // `io`. Of stores over HTTP, where the server tells the time.
  std::int64_t if_unchanged_since = 0;
  // A larger whole object is `corrupt`, and is not read where the store is told its size before.
  std::uint64_t max_nbytes = UINT64_MAX;
  // Where the bytes of a range go, as many as are wanted; empty: `bytes`, and so for the others.
  MutableBytes into{};
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

  // What came. Nothing of it counts when there is an error: `corrupt` for a range that ends after
  // the object, `io` with ETIMEDOUT past the deadline, `cancelled`, or what the store says.
  std::exception_ptr error{};
  bool found = false;  // false without an error: there is no such object
  Buffer bytes{};
  std::string version{};            // differs whenever the object was replaced; empty: cannot tell
  std::uint64_t object_nbytes = 0;  // of the whole object; 0: not told
  // With the error of a range that ends after the object: so many of its first bytes came all the
  // same, and are where they belong.
  std::uint64_t nbytes_before_end = 0;

  // Of the store that it is submitted to; for AsyncReads::cancel().
  std::uint64_t ticket = 0;

  // Called once. The thread is the store's and must not be held up; nothing of the read is touched
  // by the store afterwards.
  virtual void done() noexcept = 0;
};

class AsyncReads {
 public:
  virtual ~AsyncReads() = default;

  // Returns at once, or when there is room for more to wait. Never throws: what is wrong is in each
  // read. done() may be called before this returns.
  virtual void submit(std::span<AsyncRead* const> reads) noexcept = 0;
  // Ends a read that its maker still keeps, soon, by `cancelled`; nothing happens when it is done.
  // done() is called all the same, here or by another thread.
  virtual void cancel(AsyncRead& read) noexcept = 0;
  // How many requests are on the wire at a time: to submit a few times more keeps all of them busy.
  virtual std::size_t depth() const = 0;
  // Whether it may have parts of the object that it need not ask for, so that the rest is best
  // asked for by ranges. At most a look at a local disk.
  virtual bool keeps_parts(std::string_view /*key*/) { return false; }
};

// One object that is replaced whole or erased. Who makes it keeps it, and what its parts lie in,
// until done() is called; from submit() to then it is the store's.
class AsyncWrite {
 public:
  AsyncWrite() = default;
  virtual ~AsyncWrite() = default;
  AsyncWrite(const AsyncWrite&) = delete;
  AsyncWrite& operator=(const AsyncWrite&) = delete;

  // What is wanted. Keys were checked by check_key().
  std::string key{};
  std::vector<ConstBytes> parts{};  // of the object, which lie apart in memory
  bool erases = false;              // instead; of a missing object nothing happens
  // One that the store knows: StoreDriver::write_conditions().
  WriteCondition condition{};
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

  // What came of it: `conflict` where the condition does not hold, the error of throw_in_doubt()
  // where that can not be known. After any error what was there is whole, or this is.
  std::exception_ptr error{};
  std::string version{};  // of what was written; empty: not told

  // Of the store that it is submitted to; for AsyncWrites::cancel().
  std::uint64_t ticket = 0;

  // As AsyncRead::done().
  virtual void done() noexcept = 0;
};

class AsyncWrites {
 public:
  virtual ~AsyncWrites() = default;

  // As those of AsyncReads. What is cancelled may have been written all the same; nothing of it is
  // left in parts, or the error says so.
  virtual void submit(std::span<AsyncWrite* const> writes) noexcept = 0;
  virtual void cancel(AsyncWrite& write) noexcept = 0;
  virtual std::size_t depth() const = 0;
};

}  // namespace headrace
