#pragma once

// What the processes of an arena agree on: who they are, which blocks are taken, which messages are
// under way (layout.h). One object a process; all state is in the shared memory.
//
// Methods that take a Lock are called with it held. Processes of an arena do not attack each other,
// but a stray write of one may hit what the others read here. So every index, offset and size is
// read once, checked against what this process knows of the memory, and then used: what is wrong is
// `corrupt`, or rebuild() drops it; it never leads out of the memory.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shm/layout.h"
#include "shm/process.h"

namespace headrace::shm {

// How long a forked child may take to arrive in the place that its parent made. Tests shorten it.
extern std::uint64_t birth_patience_ns;

class Ledger {
 public:
  // Memory for `capacity` blocks of `data_nbytes` in all.
  static std::size_t memory_nbytes(std::size_t data_nbytes, std::uint32_t capacity);
  // Of zeroed memory that nobody else sees yet.
  static void format(std::span<std::byte> memory,
                     std::uint32_t capacity,
                     bool huge,
                     Backing backing);
  // `invalid_argument` when that is no arena.
  explicit Ledger(std::span<std::byte> memory);

  Header& header() const { return *header_; }
  std::span<std::byte> memory() const { return memory_; }
  std::span<std::byte> data() const { return memory_.subspan(data_offset_); }
  std::uint32_t capacity() const { return capacity_; }
  BlockRecord& block(std::uint32_t index) const {
    if (index >= capacity_) [[unlikely]] {
      throw_corrupt("there is no block of that number");
    }
    return blocks_[index];
  }
  std::span<std::byte> bytes(std::uint32_t index) const;
  // Its first so many: a stray write may have made it shorter since it was allocated.
  std::span<std::byte> bytes(std::uint32_t index, std::size_t nbytes) const;

  // --- The lock
  //
  // It has no fair order and nobody waits inside of it, but its holder may be stopped (SIGSTOP, a
  // debugger) and still be alive. So who waits does so a sleep at a time, and may give up.

  // One thread's wait, from one try to the next.
  class LockWait {
   public:
    explicit LockWait(const Ledger& ledger) : ledger_(ledger) {}
    // Passes on what it was woken for.
    ~LockWait();
    LockWait(const LockWait&) = delete;
    LockWait& operator=(const LockWait&) = delete;

    // Until the lock may be free, at most for so long or for some 20 ms.
    void sleep(std::chrono::nanoseconds at_most);

   private:
    friend class Ledger;
    const Ledger& ledger_;
    bool has_slept_ = false;
    bool was_woken_ = false;
    std::uint32_t suspect_ = 0;  // the word that did not change during the last sleep
  };

  // The lock, for as long as this lives, if one has got it.
  class Lock {
   public:
    // One try. `process`: the caller's place in the process table.
    Lock(const Ledger& ledger, std::uint32_t process, LockWait& wait);
    // Tries for so long.
    Lock(const Ledger& ledger, std::uint32_t process, std::chrono::nanoseconds patience);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    explicit operator bool() const { return is_taken_; }

   private:
    bool take(std::uint32_t process, LockWait& wait) const;
    const Ledger& ledger_;
    bool is_taken_;
  };

  // The same as long as the same holder keeps the lock; 0: it is free.
  std::uint32_t lock_holding() const;

  // --- Processes

  // A place for the calling process. kNone: all taken.
  std::uint32_t join() const;
  // A place for the child that the caller is about to fork, as of `born_ns`.
  std::uint32_t join_unborn(std::uint64_t born_ns) const;
  // The child takes the place that its parent made; false when it came too late.
  bool arrive(std::uint32_t process, std::uint64_t born_ns) const;
  // The child gives it up.
  void renounce(std::uint32_t process, std::uint64_t born_ns) const;
  // What the process holds and has sent by then is somebody else's to clear: see bury().
  void leave(std::uint32_t process) const;
  bool is_dead(std::uint32_t process) const;
  // The places of processes that are dead or have left. Asks the kernel: not with the lock held.
  std::vector<std::uint32_t> find_dead() const;
  // Lets go of all that they held. Bytes freed.
  std::size_t bury(const Lock& lock, std::span<const std::uint32_t> dead) const;

  // --- Blocks

  // kNone: no room.
  std::uint32_t allocate(const Lock& lock, std::size_t nbytes, std::uint32_t process) const;
  // Of a block that somebody holds meanwhile: no lock is needed.
  void hold(std::uint32_t index, std::uint32_t process) const;
  // True: nobody needs the block any more, it is free.
  bool release(const Lock& lock, std::uint32_t index, std::uint32_t process) const;
  // Without the lock: whoever has it next frees the block if nobody needs it.
  void release_later(std::uint32_t index, std::uint32_t process) const;
  bool is_untidy() const { return header_->untidy.load(std::memory_order_relaxed) != 0; }
  bool is_held(const BlockRecord& record) const;
  bool is_held_by(std::uint32_t index, std::uint32_t process) const;

  // --- Messages. The block of one begins with a MessageRecord.

  struct Received {
    std::uint32_t block;
    std::vector<PartRecord> parts;  // each within the block that it names
  };
  // Makes a block a message under way that `process`, which held it, holds no more.
  Ticket send(const Lock& lock, std::uint32_t message, std::uint32_t process) const;
  // A message that has arrived: its block and all that it names are held by `process` from now on.
  // `not_found` when it is none, `invalid_argument` when it is of another arena.
  Received receive(const Lock& lock, const Ticket& ticket, std::uint32_t process) const;
  std::vector<PartRecord> parts(std::uint32_t message) const;
  // Frees messages whose sender died before `now - grace`. Bytes freed.
  std::size_t free_orphans(const Lock& lock, std::uint64_t grace_ns) const;

  // --- Channels. The block of one begins with a Ring.

  static std::size_t ring_nbytes(std::size_t capacity);
  void make_ring(const Lock& lock, std::uint32_t index, std::size_t capacity) const;
  Ring& ring(std::uint32_t index) const { return *open_ring(index).ring; }
  // kNone: it is none, or no longer.
  std::uint32_t find_ring(const Lock& lock, ChannelHandle handle) const;
  // False: it is full. Else as send().
  bool push(const Lock& lock,
            std::uint32_t ring,
            std::uint32_t message,
            std::uint32_t process) const;
  // Nothing: it is empty. Else as receive(); a message that is `corrupt` is gone with that.
  std::optional<Received> pop(const Lock& lock, std::uint32_t ring, std::uint32_t process) const;

  // Makes all that follows from the truth anew, and frees what nobody holds; what of the truth
  // cannot be true is dropped. Bytes freed.
  std::size_t rebuild() const;

 private:
  struct Extent {
    std::uint64_t offset;
    std::uint64_t nbytes;
    std::uint64_t end() const { return offset + nbytes; }
  };
  // The ring's capacity as it was when it was checked.
  struct OpenRing {
    Ring* ring;
    std::uint64_t capacity;
    Ticket& place(std::uint64_t n) const { return ring->places.data()[n % capacity]; }
  };
  enum class Bad { is_error, is_left_out };

  [[noreturn]] void throw_corrupt(const char* what) const;
  std::optional<Extent> find_extent(const BlockRecord& record) const;
  Extent extent(std::uint32_t index) const;
  std::optional<OpenRing> find_open_ring(std::uint32_t index) const;
  OpenRing open_ring(std::uint32_t index) const;
  std::vector<PartRecord> read_parts(std::uint32_t message, Bad bad) const;
  bool is_part(const PartRecord& part) const;
  bool is_message(std::uint32_t index, std::uint32_t generation) const;

  std::uint32_t claim(std::uint64_t self) const;
  std::uint32_t inherit() const;
  void clear_place(std::uint32_t process) const;
  Ticket make_ticket(std::uint32_t message) const;
  void count_links(std::uint32_t message, std::span<const PartRecord> parts, bool add) const;
  void take_over(const Received& message, std::uint32_t process) const;
  bool is_alive(const BlockRecord& record) const;
  void free_block(std::uint32_t index) const;
  void link_after(std::uint32_t previous, std::uint32_t index) const;
  void count_messages_under_way() const;
  void rebuild_lists() const;

  std::span<std::byte> memory_;
  Header* header_;
  BlockRecord* blocks_;
  // As they were when this process came: nobody changes them for good.
  std::uint32_t capacity_;
  std::uint64_t data_offset_;
};

}  // namespace headrace::shm
