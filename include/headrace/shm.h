#pragma once

// Arrays between processes without a copy through a pipe.
//  1. Arena::create() makes a stretch of memory that processes share; it has no name, so nothing is
//     left of it when the last of them is gone, however it went. Children inherit it by fork,
//     others attach() a file descriptor that they were handed.
//  2. allocate() gives out blocks. A block lives until every process that holds it has let go of
//     it, or is dead.
//  3. A message is a list of parts. Parts that lie in blocks of the arena travel by reference,
//     others are copied into it once. Whoever gets the message reads both where they lie.
//  4. Messages travel by a Channel, or as a Descriptor of 64 bytes by any way that the application
//     has: a pipe, a queue.
//
// All of it may be called from any thread. What one process writes into a block before it sends it,
// the receiver sees. A dead process holds up nobody. One that is stopped (SIGSTOP, a debugger) at
// the wrong moment may, until it goes on: calls then end with their time, and owners of blocks let
// go of them without waiting; what they held is free when the arena is used next.
//
// Processes of an arena are of one user, on one machine and in one PID namespace. They trust each
// other; memory that one of them wrote over by mistake is `corrupt` to the others.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace headrace::shm {
class ArenaState;  // src/shm/arena_state.h
}  // namespace headrace::shm

#pragma GCC visibility push(default)
namespace headrace::shm {

enum class HugePages {
  automatic,  // where the system has some to give
  always,     // `out_of_memory` when it has not
  never,
};

enum class Backing {
  automatic,  // memfd, where there is one
  memfd,
  posix,  // shm_open, without a name once it is made; counts towards the size of /dev/shm
};

struct ArenaOptions {
  HugePages huge_pages = HugePages::automatic;
  Backing backing = Backing::automatic;
  bool interleave = false;     // pages in turn from all NUMA nodes, not from the creator's
  std::size_t max_blocks = 0;  // alive at once; 0: one for each 64 KiB, 1,024 to 16,384
};

// How long a call waits. `interrupt` is called some ten times a second meanwhile, without a lock;
// what it throws ends the wait. Calls that say nothing of what they do when the time runs out wait
// for no more than the arena's lock, and fail with `io` and ETIMEDOUT; for the lock a call waits
// for at least half a second.
struct Wait {
  std::optional<std::chrono::nanoseconds> timeout{};  // none: for ever
  std::function<void()> interrupt{};
};

// Bytes that stay where they are as long as `owner` lives. Blocks are aligned to 64 bytes.
struct Block {
  std::span<std::byte> bytes{};
  std::shared_ptr<void> owner{};
};

using Parts = std::span<const std::span<const std::byte>>;
using Message = std::vector<Block>;

// A message on its way by other means than a channel. Received once; a second time, or after its
// memory was taken back, it is an error, never other data.
using Descriptor = std::array<std::byte, 64>;

struct ArenaStats {
  std::size_t nbytes = 0;       // that blocks can have in all
  std::size_t used_nbytes = 0;  // that they have
  std::size_t blocks = 0;
  std::size_t in_transit = 0;  // messages in channels, and descriptors that nobody has received
  std::size_t orphans = 0;     // of those descriptors whose sender is dead
  std::size_t processes = 0;   // that are alive and use the arena
  bool huge_pages = false;
  Backing backing = Backing::memfd;
};

// What open() needs to find a channel, in any process that has the arena.
struct ChannelHandle {
  std::uint32_t block = 0;
  std::uint32_t generation = 0;
};

// A queue of messages with a fixed number of places: many producers, many consumers, first in,
// first out. Copies are one channel. It lives as long as a process has it open; what lies in it
// then is freed with it.
//
// A message whose producer dies in put() is not sent; one whose consumer dies in get() stays, and
// is the next consumer's.
class Channel {
 public:
  // False: it was full, or the arena had no room for the message, until the time ran out.
  // `invalid_argument` for a message that is larger than the arena. `io` with EPIPE: there were
  // other processes, and all of them are gone.
  bool put(Parts parts, const Wait& wait = {}) const;
  // Nothing: it was empty until the time ran out. `io` with EPIPE as in put().
  std::optional<Message> get(const Wait& wait = {}) const;

  std::size_t size() const;
  std::size_t capacity() const;
  ChannelHandle handle() const;  // for another process: that one is waited for, 60 s at most

 private:
  friend class Arena;
  Channel(std::shared_ptr<ArenaState> arena, Block ring);

  std::shared_ptr<ArenaState> arena_;
  Block ring_;
};

// Memory that processes share. Copies are one arena.
class Arena {
 public:
  // Room for blocks of `nbytes` in all, all of its pages there when it returns: `out_of_memory`
  // when the system has less.
  static Arena create(std::size_t nbytes, const ArenaOptions& options = {});
  // The arena behind a descriptor that another process handed over; `fd` stays the caller's.
  // `invalid_argument` when it is no arena of this version and of this user, in memory that cannot
  // be cut short; `unsupported` when it is of another PID namespace.
  static Arena attach(int fd);

  int fd() const;                       // to hand over; open as long as the arena
  std::string id() const;               // 32 hexadecimal digits, the same in all processes
  std::span<std::byte> memory() const;  // where this process sees it

  // Uninitialised memory. Nothing: there was no room until the time ran out. `invalid_argument`
  // when there never can be.
  std::optional<Block> allocate(std::size_t nbytes, const Wait& wait = {}) const;

  // `capacity`: messages, at least 1.
  Channel channel(std::size_t capacity, const Wait& wait = {}) const;
  // `not_found` when no process has it open any more.
  Channel open(ChannelHandle handle, const Wait& wait = {}) const;

  // Nothing: there was no room until the time ran out.
  std::optional<Descriptor> send(Parts parts, const Wait& wait = {}) const;
  // `not_found` for a descriptor that was received before or whose memory was taken back,
  // `invalid_argument` for one of another arena.
  Message receive(const Descriptor& descriptor, const Wait& wait = {}) const;

  ArenaStats stats(const Wait& wait = {}) const;
  // Takes back what dead processes held; the bytes that this freed. Calls that find no room do so
  // by themselves. `orphans`: also the descriptors of dead senders, which somebody might still
  // receive. By themselves calls take these a minute after the sender's death was noticed.
  std::size_t reclaim(bool orphans = false, const Wait& wait = {}) const;

 private:
  explicit Arena(std::shared_ptr<ArenaState> state) : state_(std::move(state)) {}
  std::shared_ptr<ArenaState> state_;
};

// Parts that any process of this user on this machine may attach to by name, read-only, as long as
// the publication lives; who has attached keeps them.
class Publication {
 public:
  const std::string& name() const;
  std::size_t nbytes() const;
  // Nobody can attach any more.
  void close();

 private:
  friend Publication publish(const std::string& name, Parts parts);
  class [[gnu::visibility("hidden")]] Server;
  explicit Publication(std::shared_ptr<Server> server) : server_(std::move(server)) {}
  std::shared_ptr<Server> server_;
};

// Copies the parts. `invalid_argument` when the name is empty, longer than 64 bytes, or taken, be
// it by another user.
Publication publish(const std::string& name, Parts parts);

// Not to be written to: the memory is mapped read-only, and nobody can write to it or cut it short,
// its publisher included. Only what a process of this user serves is opened: who else may serve the
// name is passed over. Waits for the publication to appear; `not_found` when it has not until the
// time ran out (who serves the name by then is given a second to answer), `corrupt` when what is
// served is none.
Message attach(const std::string& name, const Wait& wait = {});

}  // namespace headrace::shm
#pragma GCC visibility pop
