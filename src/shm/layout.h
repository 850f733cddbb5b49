#pragma once

// What lies at the beginning of an arena's memory, seen by all of its processes.
//
// One lock guards all of it. Its word names the process that holds it, so that others can take it
// from one that died. Fields are of two kinds:
//  - the truth: what is taken, by whom, what is on its way. Each operation changes it by ONE store
//    that counts (commit()); a process that dies before or after it leaves one of two states, both
//    of them whole.
//  - what follows from it: lists and counts, made anew by whoever takes the lock from a dead
//    process (Ledger::rebuild). A comment marks them "follows".

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "headrace/shm.h"

namespace headrace::shm {

inline constexpr std::uint64_t kArenaMagic = 0x414e455241524448;  // "HDRARENA"
inline constexpr std::uint32_t kLayoutVersion = 3;
inline constexpr std::size_t kBlockAlignment = 64;
inline constexpr std::uint32_t kMaxProcesses = 256;
inline constexpr std::uint32_t kNone = UINT32_MAX;

// Set by tests, which die in it: called on both sides of every store whose order matters.
extern void (*crash_hook)();
inline void crash_point() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (crash_hook) [[unlikely]] {
    crash_hook();
  }
}

// A store that a dying process has made or has not; the compiler moves none across it.
template <typename T>
void commit(std::atomic<T>& field, T value) {
  crash_point();
  field.store(value, std::memory_order_release);
  crash_point();
}

// As commit(), of bits that other places share a word with: their processes may change theirs at
// the same time, with the lock or without.
inline void commit_bits(std::atomic<std::uint64_t>& word, std::uint64_t bits, bool set) {
  crash_point();
  if (set) {
    word.fetch_or(bits, std::memory_order_acq_rel);
  } else {
    word.fetch_and(~bits, std::memory_order_acq_rel);
  }
  crash_point();
}

// A place in the process table. One word, so that each step of its life is one compare-and-exchange
// that others have either seen or not:
//   free -> a process's identity -> left (or dead) -> free
//   free -> about to be born -> the child's identity
// Only bury(), which has first cleared all that the place held and sent, makes it free again: no
// process can be taken for one that had the place before.
struct ProcessRecord {
  std::atomic<std::uint64_t> identity;
};
namespace place_word {
inline constexpr std::uint64_t kFree = 0;
// A fork is about to make the process; the rest is when, in CLOCK_MONOTONIC, and tells it from all
// other births in this place.
inline constexpr std::uint64_t kUnborn = std::uint64_t{1} << 63;
inline constexpr std::uint64_t kLeft = UINT64_MAX;  // its process needs it no more
}  // namespace place_word

enum class BlockState : std::uint32_t { free = 0, taken, channel };

// The processes that hold a block, a bit each.
using Holders = std::array<std::atomic<std::uint64_t>, kMaxProcesses / 64>;

// BlockRecord::ticket
inline constexpr std::uint32_t kNoTicket = 0;
inline constexpr std::uint32_t kOrphanTicket = UINT32_MAX;  // its sender is dead

struct alignas(64) BlockRecord {
  std::atomic<BlockState> state;
  std::atomic<std::uint32_t> generation;  // another one each time the record is taken
  std::atomic<std::uint64_t> offset;      // from the start of the memory
  std::atomic<std::uint64_t> nbytes;      // a multiple of kBlockAlignment
  Holders holders;
  // Of a message under way as a Descriptor: 1 + the place of its sender in the process table.
  std::atomic<std::uint32_t> ticket;
  std::atomic<std::uint64_t> orphaned_ns;  // when its sender was found dead, in CLOCK_MONOTONIC

  // Follows: blocks in the order of their offsets; free records by `next` alone.
  std::uint32_t previous;
  std::uint32_t next;
  std::uint32_t in_ring;  // follows: 1 when a channel has it
  std::uint32_t links;    // follows: parts of messages under way that lie in it
};

struct Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t capacity;     // block records
  std::uint64_t nbytes;       // of the memory, this header included
  std::uint64_t data_offset;  // where blocks begin
  std::array<std::byte, 16> id;
  std::uint32_t huge_pages;
  std::uint32_t backing;
  std::uint64_t pid_namespace;  // of all its processes, see pid_namespace()

  alignas(64) std::atomic<std::uint32_t> lock;  // lock_word
  // 1: whoever has the lock next rebuilds. A block was let go of without the lock, or what follows
  // was found to contradict itself.
  std::atomic<std::uint32_t> untidy;
  alignas(64) std::atomic<std::uint32_t> room_event;  // grows when blocks are freed
  std::atomic<std::uint32_t> room_waiters;            // at least as many as wait for it

  alignas(64) std::uint32_t first;  // follows: the block with the lowest offset
  std::uint32_t first_free;         // follows: a free record
  std::uint32_t blocks;             // follows
  std::uint64_t used_nbytes;        // follows
  // Follows: there is no gap before the end of this block (kNone: nothing is known to be full).
  std::uint32_t full_until;

  std::array<ProcessRecord, kMaxProcesses> processes;
};

// Header::lock. The count of times that it was taken is there so that the word of a holder that was
// found dead differs from all that come after it, also that of a process in the same place.
namespace lock_word {
inline constexpr std::uint32_t kHolder = 0x1ff;  // 1 + the holder's place; 0: it is free
inline constexpr std::uint32_t kWaiters = 0x200;
inline constexpr std::uint32_t kCount = 0x400;
static_assert(kMaxProcesses < kHolder);

// What the word is after `process` has taken it.
constexpr std::uint32_t taken(std::uint32_t word, std::uint32_t process, std::uint32_t waiters) {
  return (word & ~(kCount - 1)) + kCount + waiters + process + 1;
}
}  // namespace lock_word

// The bytes of a headrace::shm::Descriptor, and a place of a channel.
struct Ticket {
  std::array<std::byte, 16> arena;
  std::uint32_t block;
  std::uint32_t generation;
  std::array<std::byte, 40> reserved;
};
static_assert(sizeof(Ticket) == sizeof(Descriptor));

// At the beginning of a block of state `channel`. Places head to tail - 1, modulo capacity, hold
// messages.
struct Ring {
  std::uint64_t capacity;
  std::atomic<std::uint32_t> shared;  // 1 once a second process had it open
  // Handles that were made and not opened yet, and when the last was made, by the steady clock.
  // Only told from: a process that starts slowly is not gone.
  std::atomic<std::uint32_t> unopened;
  std::atomic<std::uint64_t> handed_over_ms;
  alignas(64) std::atomic<std::uint64_t> head;
  alignas(64) std::atomic<std::uint64_t> tail;
  alignas(64) std::atomic<std::uint32_t> filled_event;
  std::atomic<std::uint32_t> filled_waiters;
  alignas(64) std::atomic<std::uint32_t> emptied_event;
  std::atomic<std::uint32_t> emptied_waiters;
  alignas(64) std::array<Ticket, 1> places;  // `capacity` of them
};

// At the beginning of a message's block; a PartRecord each follows.
struct MessageRecord {
  std::uint64_t parts;
};

struct PartRecord {
  std::uint64_t offset;  // from the start of the memory
  std::uint64_t nbytes;
  std::uint32_t block;
  std::uint32_t generation;
};

}  // namespace headrace::shm
