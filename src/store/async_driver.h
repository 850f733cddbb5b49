#pragma once

// The blocking methods of store.h, of a store whose reads, or reads and writes, are asynchronous.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "store/async.h"
#include "store/store.h"

namespace headrace {

// Derived drivers have submit(), cancel() and depth() of AsyncReads, and the rest of store.h.
class AsyncDriver : public StoreDriver,
                    public AsyncReads,
                    public std::enable_shared_from_this<AsyncDriver> {
 public:
  bool local() const final { return false; }
  AsyncReads* async_reads() final { return this; }

  bool get(std::string_view key, Buffer& into) final { return get_within(key, into, UINT64_MAX); }
  bool get_within(std::string_view key, Buffer& into, std::uint64_t max_nbytes) final;
  void get_many(std::span<GetRequest> requests) final;
  std::size_t batch_size() const final { return depth(); }

  bool get_versioned(std::string_view key,
                     Buffer& into,
                     std::uint64_t max_nbytes,
                     std::string& version) final;

  // By one request for the object's size and version; what is read then is of that version.
  std::unique_ptr<ObjectReader> open(std::string_view key) final;
  bool exists(std::string_view key) final;

 protected:
  struct ObjectState {
    std::uint64_t nbytes = 0;
    std::string version{};  // as AsyncRead has it
  };
  // Waits for the answer; nothing: there is no such object.
  virtual std::optional<ObjectState> look_up(std::string_view key) = 0;
};

// What ObjectReader::version() is of an object of that version; 0 where the store cannot tell.
std::uint64_t version_number(const std::string& version);

class WaitLatch;

// A read whose maker waits for it.
class WaitedRead final : public AsyncRead {
 public:
  void done() noexcept override;

 private:
  friend void read_and_wait(AsyncReads&, std::span<WaitedRead>);
  WaitLatch* latch_ = nullptr;
};

// Submits the reads and returns when all are done, their errors in each. Who waits may end them
// (headrace/interrupt.h); all are done all the same before that is thrown.
void read_and_wait(AsyncReads& store, std::span<WaitedRead> wanted);
// The same of one, whose error it throws.
void read_and_wait(AsyncReads& store, WaitedRead& wanted);
// The same of whole objects, with the outcome of each in its request.
void get_and_wait(AsyncReads& store, std::span<GetRequest> requests);

// The same of a write.
class WaitedWrite final : public AsyncWrite {
 public:
  void done() noexcept override;

 private:
  friend void write_and_wait(AsyncWrites&, WaitedWrite&);
  WaitLatch* latch_ = nullptr;
};

void write_and_wait(AsyncWrites& store, WaitedWrite& wanted);  // throws its error

}  // namespace headrace
