#pragma once

// An arena as one process has it: its mapping, its place in the process table, and how often it
// holds each block. A forked child has its own from the start: the fork makes a place for it first,
// which holds what the parent holds.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

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
  Descriptor send(Packed message);
  Message receive(const Descriptor& descriptor);

  Block make_channel(std::size_t capacity);
  Block open_channel(ChannelHandle handle);
  static std::uint32_t block_index(const Block& block);
  // False: it is full.
  bool push(std::uint32_t ring, Packed& message);
  // Nothing: it is empty.
  std::optional<Message> pop(std::uint32_t ring);
  // Whether all other processes that hold the block are dead.
  bool is_alone_with(std::uint32_t block);

  ArenaStats stats();
  std::size_t reclaim(std::uint64_t orphan_grace_ns);

 private:
  friend class ArenaRegistry;
  struct Hold;
  class Access;

  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

  std::uint32_t join();
  std::uint32_t allocate_raw(std::size_t nbytes, Waiting& waiting);
  std::uint32_t find(std::span<const std::byte> bytes);
  std::vector<PartRecord> place(Parts parts, std::size_t& nbytes);
  std::shared_ptr<void> keep(const Access& access, std::uint32_t block);
  Message open_message(const Access& access, std::uint32_t message);
  void let_go(std::uint32_t block) noexcept;
  void map(std::span<const std::byte> bytes);
  void announce_room();

  const std::shared_ptr<Segment> segment_;
  const Ledger ledger_;
  std::mutex mutex_;                             // taken before the arena's lock, never after
  std::uint32_t place_ = kNone;                  // in the process table
  std::uint32_t child_place_ = kNone;            // while a fork is on its way
  std::vector<std::uint32_t> counts_;            // the Holds of each block
  std::map<std::uint64_t, std::uint32_t> held_;  // blocks that have any, by offset
  std::vector<bool> mapped_;  // stretches of which this process has mapped the pages
};

}  // namespace headrace::shm
