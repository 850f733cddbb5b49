#pragma once

// What is on its way to a store across a network (store/async.h), of one write:
//  1. A thread takes room() for an object before it lies in memory, encodes it, and hands it over
//     by put(), which does not wait for the store. It goes on with another.
//  2. The lock of the object's key is held until it is stored, and released by whichever thread
//     hears of that.
//  3. finish() returns when all are stored. The first error cancels the others, and is thrown by
//     whoever asks next.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/key_locks.h"
#include "base/mutex.h"
#include "headrace/error.h"
#include "store/async.h"
#include "store/store.h"

namespace headrace {

// Whether another writer was there before, or may have been: what was read is to be read anew.
bool is_forestalled(const Error& error);

// Whether writes to a store go this way.
bool writes_in_flight(StoreDriver& driver);

class WritesInFlight {
 public:
  class Write : public AsyncWrite {
   public:
    // The error with what names the object.
    virtual Error located(const Error& failure) const = 0;

    KeyLocks::Lock lock;
    std::uint64_t held_nbytes = 0;  // of memory, until it is stored
    // When another writer was there before, or the server does not know the condition, the write is
    // not an error but one of take_lost().
    bool may_be_lost = false;

   private:
    friend class WritesInFlight;
    void done() noexcept final { flight_->finished(*this); }

    // Under the lock of the flight.
    WritesInFlight* flight_ = nullptr;
    std::list<std::unique_ptr<Write>>::iterator place_{};
    bool submitted_ = false;
    bool done_ = false;
    bool cancelled_ = false;
  };

  struct Limits {
    std::size_t writes = 1;
    std::uint64_t nbytes = 0;  // of two objects at least, however large they are
  };

  // For one object, until it is handed over.
  class Room {
   public:
    Room(Room&& other) noexcept
        : flight_(std::exchange(other.flight_, nullptr)), nbytes_(other.nbytes_) {}
    Room& operator=(Room&&) = delete;
    ~Room() {
      if (flight_ != nullptr) flight_->leave(nbytes_);
    }

   private:
    friend class WritesInFlight;
    Room(WritesInFlight& flight, std::uint64_t nbytes) : flight_(&flight), nbytes_(nbytes) {}

    WritesInFlight* flight_;
    std::uint64_t nbytes_;
  };

  // `check` is called at short intervals, and may throw. `store` and what `check` refers to must
  // outlive it.
  WritesInFlight(AsyncWrites& store, const Limits& limits, FunctionRef<void()> check);
  // Cancels and waits for what is under way.
  ~WritesInFlight();
  WritesInFlight(const WritesInFlight&) = delete;
  WritesInFlight& operator=(const WritesInFlight&) = delete;

  Room room(std::uint64_t nbytes);
  void put(Room room, std::unique_ptr<Write> write);
  void finish();
  // Behind finish(): those that others forestalled.
  std::vector<std::unique_ptr<Write>> take_lost();

 private:
  using Writes = std::list<std::unique_ptr<Write>>;

  bool has_room(std::uint64_t nbytes) const REQUIRES(mutex_);
  void wait_and_check() REQUIRES(mutex_);
  void settle(Write& write) noexcept REQUIRES(mutex_);
  void cancel_all() noexcept REQUIRES(mutex_);
  void throw_failure() REQUIRES(mutex_);
  void free_stored();
  void leave(std::uint64_t nbytes) noexcept;
  void finished(Write& write) noexcept;

  AsyncWrites& store_;
  const Limits limits_;
  const FunctionRef<void()> check_;

  Mutex mutex_;
  ConditionVariable changed_;
  // Each write is in one of these, and none is freed between an error and the end.
  Writes in_flight_ GUARDED_BY(mutex_);
  Writes stored_ GUARDED_BY(mutex_);
  Writes lost_ GUARDED_BY(mutex_);
  std::size_t rooms_ GUARDED_BY(mutex_) = 0;
  std::uint64_t held_nbytes_ GUARDED_BY(mutex_) = 0;   // of rooms, and in flight
  const Write* failure_ GUARDED_BY(mutex_) = nullptr;  // the first one
  bool failed_ GUARDED_BY(mutex_) = false;
};

}  // namespace headrace
