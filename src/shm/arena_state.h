#pragma once

// An arena as one process has it: its mapping, its place in the process table, and how often it
// holds each block. A forked child has its own from the start: the fork makes a place for it first,
// which holds what the parent holds.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "headrace/shm.h"
#include "shm/ledger.h"
#include "shm/segment.h"
#include "shm/waiting.h"

namespace headrace::shm {

class ArenaState : public std::enable_shared_from_this<ArenaState> {
 public:
  static std::shared_ptr<ArenaState> create(std::size_t nbytes, const ArenaOptions& options);
  // The one that this process has already, if it has the arena.
  static std::shared_ptr<ArenaState> attach(int fd);
  // Joins the arena that lies there.
  explicit ArenaState(std::shared_ptr<Segment> segment);
  ~ArenaState();
  ArenaState(const ArenaState&) = delete;
  ArenaState& operator=(const ArenaState&) = delete;

  const std::shared_ptr<Segment>& segment() const { return segment_; }
  const Ledger& ledger() const { return ledger_; }

  // Nothing: no room until the time ran out.
  std::optional<Block> allocate(std::size_t nbytes, Waiting& waiting);

  // A message that is not under way yet: freed with this, unless it is sent.
  class Packed {
   public:
    Packed(ArenaState& arena, std::uint32_t block) : arena_(&arena), block_(block) {}
    Packed(Packed&& other) noexcept;
    Packed& operator=(Packed&& other) noexcept;
    ~Packed();

   private:
    friend class ArenaState;
    ArenaState* arena_;
    std::uint32_t block_;
  };
  // Copies the parts, but those that lie in the arena. Nothing: no room until the time ran out.
  std::optional<Packed> pack(Parts parts, Waiting& waiting);
  // Nothing: the time ran out.
  std::optional<Descriptor> send(Packed message, Waiting& waiting);
  // This and all below that return no `nothing`: ETIMEDOUT when the time runs out.
  Message receive(const Descriptor& descriptor, Waiting& waiting);

  Block make_channel(std::size_t capacity, Waiting& waiting);
  Block open_channel(ChannelHandle handle, Waiting& waiting);
  static std::uint32_t block_index(const Block& block);
  // False: it is full, or the time ran out.
  bool push(std::uint32_t ring, Packed& message, Waiting& waiting);
  // Nothing: it is empty, or the time ran out.
  std::optional<Message> pop(std::uint32_t ring, Waiting& waiting);
  // Whether all other processes that hold the block are dead.
  bool is_alone_with(std::uint32_t block);

  ArenaStats stats(Waiting& waiting);
  std::size_t reclaim(std::uint64_t orphan_grace_ns, Waiting& waiting);

 private:
  friend class ArenaRegistry;
  struct Hold;
  class Access;

  // Of blocks that messages name, to be given up without a lock of this process.
  using Owners = std::map<std::uint32_t, std::shared_ptr<void>>;

  // The mutex is held from the first of these to one of the others.
  void before_fork() ACQUIRE(mutex_);
  void after_fork_in_parent() RELEASE(mutex_);
  void after_fork_in_child() RELEASE(mutex_);

  std::uint32_t join();
  std::uint32_t place_of_this_process();
  std::uint32_t allocate_raw(std::size_t nbytes, Waiting& waiting);
  std::uint32_t find(std::span<const std::byte> bytes);
  std::vector<PartRecord> place(Parts parts, std::size_t& nbytes);
  std::shared_ptr<void> keep(std::uint32_t block) REQUIRES(mutex_);
  void open_message(const Access& access,
                    const Ledger::Received& received,
                    Owners& owners,
                    Message& message) REQUIRES(mutex_);
  void let_go(std::uint32_t block) noexcept;
  void give_up(std::uint32_t block, bool is_counted);
  bool release(std::uint32_t block, bool is_counted);
  bool is_last(std::uint32_t block, bool is_counted) REQUIRES(mutex_);
  void map(std::span<const std::byte> bytes);
  void note_all_mapped();
  void announce_room();

  const std::shared_ptr<Segment> segment_;
  const Ledger ledger_;
  // Taken before the arena's lock, never after. No thread sleeps with it.
  Mutex mutex_;
  std::uint32_t place_ GUARDED_BY(mutex_) = kNone;         // in the process table
  const char* why_no_place_ GUARDED_BY(mutex_) = nullptr;  // of a forked child
  std::uint32_t child_place_ GUARDED_BY(mutex_) = kNone;   // while a fork is on its way
  std::uint64_t child_born_ns_ GUARDED_BY(mutex_) = 0;     // with it
  std::atomic<std::uint32_t> stuck_ = 0;  // Ledger::lock_holding() of whom a destructor gave up on
  std::vector<std::uint32_t> counts_ GUARDED_BY(mutex_);            // the Holds of each block
  std::vector<std::uint64_t> offsets_ GUARDED_BY(mutex_);           // of blocks that have any
  std::map<std::uint64_t, std::uint32_t> held_ GUARDED_BY(mutex_);  // these blocks, by offset
  // Stretches of which this process has mapped the pages.
  std::vector<bool> mapped_ GUARDED_BY(mutex_);
};

}  // namespace headrace::shm
