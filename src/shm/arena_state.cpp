#include "shm/arena_state.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "base/checked.h"
#include "shm/arena_access.h"
#include "shm/arena_registry.h"
#include "shm/process.h"

namespace headrace::shm {

namespace {

// How long a message waits for its receiver after its sender's death, when room is short.
constexpr std::uint64_t kOrphanGraceNs = 60'000'000'000;
constexpr std::size_t kStretch = std::size_t{2} << 20;  // of memory that is mapped at once

constexpr char kNoPlace[] =
    "[shm] this forked process found no place in the arena: 256 processes can use one";
static_assert(kMaxProcesses == 256);
constexpr char kTooLate[] =
    "[shm] this forked process came to the arena a minute late, its place was taken back";
constexpr char kOtherNamespace[] =
    "[shm] the arena is of another PID namespace (another container): its processes and those here "
    "cannot tell whether the others are alive. Start both in one, as with docker run --pid";

std::uint32_t default_capacity(std::size_t nbytes) {
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(nbytes >> 16, 1024, 16384));
}

}  // namespace

void throw_arena_locked() {
  throw Error(ErrorCode::io,
              "[shm] another process has the arena's lock and does not go on: is it stopped?",
              ETIMEDOUT);
}

// ---------------------------------------------------------------- coming and going

std::shared_ptr<ArenaState> ArenaState::create(std::size_t nbytes, const ArenaOptions& options) {
  if (nbytes == 0) throw Error(ErrorCode::invalid_argument, "[shm] an arena of no bytes");
  const std::uint32_t capacity =
      options.max_blocks == 0
          ? default_capacity(nbytes)
          : checked_cast<std::uint32_t>(std::min<std::size_t>(options.max_blocks, kNone - 1),
                                        "[shm] max_blocks");
  auto segment =
      std::make_shared<Segment>(Segment::create(Ledger::memory_nbytes(nbytes, capacity), options));
  Ledger::format(segment->memory(), capacity, segment->huge_pages(), segment->backing());
  auto state = std::make_shared<ArenaState>(std::move(segment));
  state->note_all_mapped();  // as they were made
  ArenaRegistry::get().add(state);
  return state;
}

std::shared_ptr<ArenaState> ArenaState::attach(int fd) {
  auto segment = std::make_shared<Segment>(Segment::attach(fd, true));
  const Ledger ledger(segment->memory());
  if (auto known = ArenaRegistry::get().find(ledger.header().id)) return known;
  auto state = std::make_shared<ArenaState>(std::move(segment));
  ArenaRegistry::get().add(state);
  return state;
}

ArenaState::ArenaState(std::shared_ptr<Segment> segment)
    : segment_(std::move(segment)),
      ledger_(segment_->memory()),
      counts_(ledger_.capacity()),
      offsets_(ledger_.capacity()),
      mapped_(segment_->memory().size() / kStretch + 1) {
  place_ = join();  // last: a constructor that fails leaves no place behind
}

std::uint32_t ArenaState::join() {
  if (ledger_.header().pid_namespace != pid_namespace()) {
    throw Error(ErrorCode::unsupported, kOtherNamespace);
  }
  const std::uint32_t place = ledger_.join();
  if (place != kNone) return place;
  throw Error(ErrorCode::unsupported,
              "[shm] " + std::to_string(kMaxProcesses) + " processes use the arena, its most");
}

ArenaState::~ArenaState() {
  // Nothing is held: every Hold keeps this alive. Descriptors that nobody has received yet may be
  // under way, so the place is not free before somebody has made orphans of them.
  if (place_ != kNone) ledger_.leave(place_);
}

// Keeps this process's threads out until the fork is over, so that the child inherits what its
// place holds. Without the arena's lock, whose holder may be stopped: the parent holds it all
// meanwhile.
void ArenaState::before_fork() {
  mutex_.lock();
  child_born_ns_ = monotonic_ns();
  child_place_ = place_ == kNone ? kNone : ledger_.join_unborn(child_born_ns_);
  if (child_place_ == kNone) return;
  for (const auto& [offset, block] : held_) {
    try {
      ledger_.hold(block, child_place_);
    } catch (const Error&) {  // corrupt: whoever uses it is told
    }
  }
}

void ArenaState::after_fork_in_parent() { mutex_.unlock(); }

void ArenaState::after_fork_in_child() {
  const std::uint32_t place = std::exchange(place_, kNone);
  if (place != kNone) why_no_place_ = kNoPlace;
  if (child_place_ != kNone) {
    bool is_here = false;
    try {
      is_here = ledger_.header().pid_namespace == pid_namespace();
    } catch (const Error&) {  // nobody can tell
    }
    if (!is_here) {
      why_no_place_ = kOtherNamespace;
      ledger_.renounce(child_place_, child_born_ns_);
    } else if (ledger_.arrive(child_place_, child_born_ns_)) {
      place_ = child_place_;
    } else {
      why_no_place_ = kTooLate;
    }
  }
  std::fill(mapped_.begin(), mapped_.end(), false);
  mutex_.unlock();
}

// ---------------------------------------------------------------- blocks

std::uint32_t ArenaState::allocate_raw(std::size_t nbytes, Waiting& waiting) {
  if (nbytes > ledger_.data().size()) {
    throw Error(ErrorCode::invalid_argument,
                "[shm] " + std::to_string(nbytes) + " bytes do not fit into an arena of " +
                    std::to_string(ledger_.data().size()));
  }
  Header& header = ledger_.header();
  while (true) {
    const std::uint32_t seen = header.room_event.load();
    {
      Access access(*this, waiting);
      if (!access.take()) return kNone;
      const std::uint32_t block = ledger_.allocate(access.lock(), nbytes, place_);
      if (block != kNone) return block;
    }
    if (reclaim(kOrphanGraceNs, waiting) > 0) continue;
    if (!waiting.sleep(header.room_event, header.room_waiters, seen)) return kNone;
  }
}

std::optional<Block> ArenaState::allocate(std::size_t nbytes, Waiting& waiting) {
  const std::uint32_t block = allocate_raw(nbytes, waiting);
  if (block == kNone) return std::nullopt;
  Packed until_it_has_an_owner(*this, block);
  Block made{ledger_.bytes(block, nbytes), {}};
  {
    const MutexLock lock(mutex_);
    made.owner = keep(block);
  }
  until_it_has_an_owner.block_ = kNone;
  map(made.bytes);
  return made;
}

// The block is held in the ledger already.
std::shared_ptr<void> ArenaState::keep(std::uint32_t block) {
  if (counts_[block] == 0) {
    offsets_[block] = ledger_.block(block).offset;
    held_.insert_or_assign(offsets_[block], block);
  }
  auto hold = std::make_shared<Hold>(shared_from_this(), block);
  ++counts_[block];
  return hold;
}

void ArenaState::let_go(std::uint32_t block) noexcept {
  {
    const MutexLock lock(mutex_);
    if (place_ == kNone) return;
    if (counts_[block] > 1) {
      --counts_[block];
      return;
    }
  }
  try {
    give_up(block, true);
  } catch (const std::exception&) {  // the arena is corrupt: who uses it next is told
  }
}

// `is_counted`: by counts_, of which other threads may have made more meanwhile.
void ArenaState::give_up(std::uint32_t block, bool is_counted) {
  if (release(block, is_counted)) announce_room();
}

// Whether memory is free by now.
bool ArenaState::release(std::uint32_t block, bool is_counted) {
  Access access(*this);
  if (access.take())
    return is_last(block, is_counted) && ledger_.release(access.lock(), block, place_);
  const MutexLock lock(mutex_);
  if (is_last(block, is_counted)) ledger_.release_later(block, place_);
  return false;
}

bool ArenaState::is_last(std::uint32_t block, bool is_counted) {
  if (!is_counted) return true;
  if (--counts_[block] > 0) return false;
  held_.erase(offsets_[block]);
  return true;
}

std::uint32_t ArenaState::place_of_this_process() {
  const MutexLock lock(mutex_);
  return place_;
}

void ArenaState::announce_room() {
  Header& header = ledger_.header();
  announce(header.room_event, header.room_waiters, INT32_MAX);
}

// Pages are there, but a new process has none of them in its page table.
void ArenaState::map(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const std::span<std::byte> memory = segment_->memory();
  const auto begin = static_cast<std::size_t>(bytes.data() - memory.data()) / kStretch;
  const auto end = static_cast<std::size_t>(bytes.data() + bytes.size() - memory.data() - 1);
  for (std::size_t i = begin; i <= end / kStretch; ++i) {
    {
      const MutexLock lock(mutex_);
      if (mapped_[i]) continue;
      mapped_[i] = true;
    }
    const std::size_t first = i * kStretch;
    map_pages(memory.subspan(first, std::min(kStretch, memory.size() - first)));
  }
}

void ArenaState::note_all_mapped() {
  const MutexLock lock(mutex_);
  std::fill(mapped_.begin(), mapped_.end(), true);
}

// ---------------------------------------------------------------- the whole

std::size_t ArenaState::reclaim(std::uint64_t orphan_grace_ns, Waiting& waiting) {
  const std::vector<std::uint32_t> dead = ledger_.find_dead();
  std::size_t freed = 0;
  {
    Access access(*this, waiting);
    if (!access.take()) return 0;
    if (!dead.empty()) freed += ledger_.bury(access.lock(), dead);
    freed += ledger_.free_orphans(access.lock(), orphan_grace_ns);
  }
  if (freed > 0) announce_room();
  return freed;
}

ArenaStats ArenaState::stats(Waiting& waiting) {
  reclaim(UINT64_MAX, waiting);
  Access access(*this, waiting);
  if (!access.take()) throw_arena_locked();
  const Header& header = ledger_.header();
  ArenaStats stats;
  stats.nbytes = ledger_.data().size();
  stats.used_nbytes = header.used_nbytes;
  stats.blocks = header.blocks;
  for (std::uint32_t i = 0; i < ledger_.capacity(); ++i) {
    const BlockRecord& record = ledger_.block(i);
    if (record.state == BlockState::free) continue;
    stats.in_transit += record.ticket != kNoTicket || record.in_ring != 0 ? 1 : 0;
    stats.orphans += record.ticket == kOrphanTicket ? 1 : 0;
  }
  for (const ProcessRecord& process : header.processes) {
    const std::uint64_t word = process.identity.load(std::memory_order_relaxed);
    stats.processes += word != place_word::kFree && word != place_word::kLeft ? 1 : 0;
  }
  stats.huge_pages = header.huge_pages != 0;
  stats.backing = static_cast<Backing>(header.backing);
  return stats;
}

}  // namespace headrace::shm
