#pragma once

// What the processes of an arena agree on: who they are, which blocks are taken, which messages are
// under way (layout.h). One object a process; all state is in the shared memory.
//
// Methods that take a Lock are called with it held. Processes trust what is in the memory: they
// share it with their own kind. What came another way, a Ticket, is checked.

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
  std::span<std::byte> data() const { return memory_.subspan(header_->data_offset); }
  BlockRecord& block(std::uint32_t index) const { return blocks_[index]; }
  std::span<std::byte> bytes(std::uint32_t index) const;

  // The lock, for as long as this lives. `process`: the caller's place in the process table.
  class Lock {
   public:
    Lock(const Ledger& ledger, std::uint32_t process);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    bool wait_and_take(std::uint32_t process) const;
    const Ledger& ledger_;
  };

  // --- Processes

  // A place for the calling process, or for the child that it is about to fork. kNone: all taken.
  std::uint32_t join(std::uint64_t born_ns = 0) const;
  // The child takes the place that its parent made; false when it came too late.
  bool arrive(std::uint32_t process) const;
  bool is_dead(std::uint32_t process) const;
  // The places of dead processes. Asks the kernel: not with the lock held.
  std::vector<std::uint32_t> find_dead() const;
  // Lets go of all that they held. Bytes freed.
  std::size_t bury(const Lock& lock, std::span<const std::uint32_t> dead) const;

  // --- Blocks

  // kNone: no room.
  std::uint32_t allocate(const Lock& lock, std::size_t nbytes, std::uint32_t process) const;
  void hold(const Lock& lock, std::uint32_t index, std::uint32_t process) const;
  // True: nobody needs the block any more, it is free.
  bool release(const Lock& lock, std::uint32_t index, std::uint32_t process) const;
  bool is_held(const BlockRecord& record) const;

  // --- Messages. The block of one begins with a MessageRecord.

  // Makes a block a message under way that `process`, which held it, holds no more.
  Ticket send(const Lock& lock, std::uint32_t message, std::uint32_t process) const;
  // The block of a message that has arrived: it and all blocks that it names are held by `process`
  // from now on. `not_found` when it is none, `invalid_argument` when it is of another arena.
  std::uint32_t receive(const Lock& lock, const Ticket& ticket, std::uint32_t process) const;
  std::span<const PartRecord> parts(std::uint32_t message) const;
  // Frees messages whose sender died before `now - grace`. Bytes freed.
  std::size_t free_orphans(const Lock& lock, std::uint64_t grace_ns) const;

  // --- Channels. The block of one begins with a Ring.

  static std::size_t ring_nbytes(std::size_t capacity);
  void make_ring(const Lock& lock, std::uint32_t index, std::size_t capacity) const;
  Ring& ring(std::uint32_t index) const;
  // kNone: it is none, or no longer.
  std::uint32_t find_ring(const Lock& lock, ChannelHandle handle) const;
  // False: it is full. Else as send().
  bool push(const Lock& lock,
            std::uint32_t ring,
            std::uint32_t message,
            std::uint32_t process) const;
  // kNone: it is empty. Else as receive().
  std::uint32_t pop(const Lock& lock, std::uint32_t ring, std::uint32_t process) const;

  // Makes all that follows from the truth anew, and frees what nobody holds. Bytes freed.
  std::size_t rebuild() const;

 private:
  std::uint32_t claim(ProcessIdentity self) const;
  std::uint32_t inherit(ProcessIdentity self) const;
  void clear_place(std::uint32_t process) const;
  Ticket make_ticket(std::uint32_t message) const;
  std::uint32_t find_message(const Ticket& ticket) const;
  void count_links(std::uint32_t message, bool add) const;
  void take_over(std::uint32_t message, std::uint32_t process) const;
  bool is_alive(const BlockRecord& record) const;
  void free_block(std::uint32_t index) const;
  void link_after(std::uint32_t previous, std::uint32_t index) const;
  void count_messages_under_way() const;
  void rebuild_lists() const;

  std::span<std::byte> memory_;
  Header* header_;
  BlockRecord* blocks_;
  std::uint32_t* order_;  // scratch of rebuild(), as many as blocks
};

}  // namespace headrace::shm
