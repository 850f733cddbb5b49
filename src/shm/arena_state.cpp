#include "shm/arena_state.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "base/checked.h"
#include "shm/arena_registry.h"
#include "shm/process.h"

namespace headrace::shm {

namespace {

// How long a message waits for its receiver after its sender's death, when room is short.
constexpr std::uint64_t kOrphanGraceNs = 60'000'000'000;
constexpr std::size_t kStretch = std::size_t{2} << 20;  // of memory that is mapped at once

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

constexpr char kNoPlace[] =
    "[shm] this forked process found no place in the arena: 256 processes can use one";
static_assert(kMaxProcesses == 256);
constexpr char kTooLate[] =
    "[shm] this forked process came to the arena a minute late, its place was taken back";
constexpr char kOtherNamespace[] =
    "[shm] the arena is of another PID namespace (another container): its processes and those here "
    "cannot tell whether the others are alive. Start both in one, as with docker run --pid";

[[noreturn]] void throw_locked() {
  throw Error(ErrorCode::io,
              "[shm] another process has the arena's lock and does not go on: is it stopped?",
              ETIMEDOUT);
}

std::uint32_t default_capacity(std::size_t nbytes) {
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(nbytes >> 16, 1024, 16384));
}

}  // namespace

// What a Block's owner is.
struct ArenaState::Hold {
  Hold(std::shared_ptr<ArenaState> state, std::uint32_t index)
      : arena(std::move(state)), block(index) {}
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() { arena->let_go(block); }

  std::shared_ptr<ArenaState> arena;
  std::uint32_t block;
};

// Both locks: that of the threads of this process, and that of all processes.
class ArenaState::Access {
 public:
  // Of a call: nothing (false) when its time runs out.
  Access(ArenaState& state, Waiting& waiting) : state_(state) {
    take([&] { return waiting.lock_slice(); });
  }
  // Of a destructor, which nobody waits for for long. Whom one has given up on no other waits for.
  explicit Access(ArenaState& state) : state_(state) {
    constexpr std::chrono::milliseconds kPatience{100};
    const auto end = Waiting::Clock::now() + kPatience;
    take([&]() -> std::optional<std::chrono::nanoseconds> {
      const std::uint32_t holding = state_.ledger_.lock_holding();
      const std::chrono::nanoseconds left = end - Waiting::Clock::now();
      if (holding != 0 && holding == state_.stuck_) return std::nullopt;
      if (left > std::chrono::nanoseconds(0)) return left;
      state_.stuck_ = holding;
      return std::nullopt;
    });
  }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
  ~Access() {
    processes_.reset();
    if (threads_.owns_lock()) threads_.unlock();
    if (freed_ > 0) state_.announce_room();
  }

  explicit operator bool() const { return processes_.has_value(); }
  const Ledger::Lock& lock() const { return *processes_; }

 private:
  // Sleeps without the mutex, for as long as `next_slice` says.
  template <typename NextSlice>
  void take(NextSlice&& next_slice) {
    Ledger::LockWait wait(state_.ledger_);
    while (true) {
      threads_ = std::unique_lock(state_.mutex_);
      processes_.emplace(state_.ledger_, checked_place(), wait);
      if (*processes_) break;
      processes_.reset();
      threads_.unlock();
      const std::optional<std::chrono::nanoseconds> slice = next_slice();
      if (!slice) return;
      wait.sleep(*slice);
    }
    if (state_.ledger_.is_untidy()) freed_ = state_.ledger_.rebuild();
  }

  std::uint32_t checked_place() const {
    if (state_.place_ != kNone) return state_.place_;
    throw Error(ErrorCode::unsupported, state_.why_no_place_);
  }

  ArenaState& state_;
  std::unique_lock<std::mutex> threads_;
  std::optional<Ledger::Lock> processes_;
  std::size_t freed_ = 0;
};

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
  std::fill(state->mapped_.begin(), state->mapped_.end(), true);  // as they were made
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
      place_(join()),
      counts_(ledger_.capacity()),
      offsets_(ledger_.capacity()),
      mapped_(segment_->memory().size() / kStretch + 1) {}

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
    if (ledger_.header().pid_namespace != pid_namespace()) {
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
      const Access access(*this, waiting);
      if (!access) return kNone;
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
  Block made{ledger_.bytes(block).first(nbytes), {}};
  {
    const std::lock_guard lock(mutex_);
    made.owner = keep(block);
  }
  until_it_has_an_owner.block_ = kNone;
  map(made.bytes);
  return made;
}

// With the mutex. The block is held in the ledger already.
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
    const std::lock_guard lock(mutex_);
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
  const auto is_last = [&] {
    if (!is_counted) return true;
    if (--counts_[block] > 0) return false;
    held_.erase(offsets_[block]);
    return true;
  };
  bool freed = false;
  {
    const Access access(*this);
    if (access && !is_last()) return;
    if (access) {
      freed = ledger_.release(access.lock(), block, place_);
    } else {
      const std::lock_guard lock(mutex_);
      if (is_last()) ledger_.release_later(block, place_);
    }
  }
  if (freed) announce_room();
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
      const std::lock_guard lock(mutex_);
      if (mapped_[i]) continue;
      mapped_[i] = true;
    }
    const std::size_t first = i * kStretch;
    map_pages(memory.subspan(first, std::min(kStretch, memory.size() - first)));
  }
}

// ---------------------------------------------------------------- messages

ArenaState::Packed::Packed(Packed&& other) noexcept
    : arena_(other.arena_), block_(std::exchange(other.block_, kNone)) {}

ArenaState::Packed& ArenaState::Packed::operator=(Packed&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(block_, other.block_);
  return *this;
}

ArenaState::Packed::~Packed() {
  if (block_ == kNone) return;
  try {
    arena_->give_up(block_, false);
  } catch (const std::exception&) {  // as in let_go()
  }
}

// The block of this process in which the bytes lie; kNone when they lie elsewhere.
std::uint32_t ArenaState::find(std::span<const std::byte> bytes) {
  const std::span<std::byte> memory = segment_->memory();
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
  const auto base = reinterpret_cast<std::uintptr_t>(memory.data());
  if (bytes.empty() || first < base || first - base >= memory.size()) return kNone;
  const std::uint64_t offset = first - base;
  const std::lock_guard lock(mutex_);
  auto after = held_.upper_bound(offset);
  if (after != held_.begin()) {
    const std::uint32_t block = (--after)->second;
    const BlockRecord& record = ledger_.block(block);
    if (offset + bytes.size() <= record.offset + record.nbytes) return block;
  }
  throw Error(ErrorCode::invalid_argument,
              "[shm] part of a message lies in the arena, but not in one block that is held");
}

// Where the parts lie or will lie; those with no block yet in the message's own, at offsets from
// its beginning. `nbytes`: of that block.
std::vector<PartRecord> ArenaState::place(Parts parts, std::size_t& nbytes) {
  std::vector<PartRecord> records;
  records.reserve(parts.size());
  nbytes = sizeof(MessageRecord) + parts.size() * sizeof(PartRecord);
  const auto base = reinterpret_cast<std::uintptr_t>(segment_->memory().data());
  for (const std::span<const std::byte> part : parts) {
    const std::uint32_t block = find(part);
    if (block != kNone) {
      const std::uint64_t offset = reinterpret_cast<std::uintptr_t>(part.data()) - base;
      records.push_back({offset, part.size(), block, ledger_.block(block).generation});
    } else {
      nbytes = round_up(nbytes, kBlockAlignment);
      records.push_back({nbytes, part.size(), kNone, 0});
      nbytes = checked_add(nbytes, part.size(), "[shm] size of a message");
    }
  }
  return records;
}

std::optional<ArenaState::Packed> ArenaState::pack(Parts parts, Waiting& waiting) {
  std::size_t nbytes = 0;
  std::vector<PartRecord> records = place(parts, nbytes);
  const std::uint32_t block = allocate_raw(nbytes, waiting);
  if (block == kNone) return std::nullopt;
  std::optional<Packed> packed(std::in_place, *this, block);
  const std::span<std::byte> memory = ledger_.bytes(block);
  map(memory.first(nbytes));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    PartRecord& record = records[i];
    if (record.block != kNone) continue;
    if (!parts[i].empty()) {
      std::memcpy(memory.data() + record.offset, parts[i].data(), parts[i].size());
    }
    record.offset += ledger_.block(block).offset;
    record.block = block;
    record.generation = ledger_.block(block).generation;
  }
  const MessageRecord head{parts.size()};
  std::memcpy(memory.data(), &head, sizeof head);
  if (!records.empty()) {
    std::memcpy(memory.data() + sizeof head, records.data(), std::span(records).size_bytes());
  }
  return packed;
}

std::optional<Descriptor> ArenaState::send(Packed message, Waiting& waiting) {
  const Access access(*this, waiting);
  if (!access) return std::nullopt;
  const Ticket ticket = ledger_.send(access.lock(), message.block_, place_);
  message.block_ = kNone;
  return std::bit_cast<Descriptor>(ticket);
}

Message ArenaState::receive(const Descriptor& descriptor, Waiting& waiting) {
  Message message;
  Owners owners;
  {
    const Access access(*this, waiting);
    if (!access) throw_locked();
    const auto ticket = std::bit_cast<Ticket>(descriptor);
    open_message(access, ledger_.receive(access.lock(), ticket, place_), owners, message);
  }
  for (const Block& part : message) map(part.bytes);
  return message;
}

// All blocks that it names are this process's by now.
void ArenaState::open_message(const Access& access,
                              const Ledger::Received& received,
                              Owners& owners,
                              Message& message) {
  const auto release_unless_kept = [&](std::uint32_t block) {
    if (counts_[block] == 0 && ledger_.is_held_by(block, place_)) {
      ledger_.release(access.lock(), block, place_);
    }
  };
  try {
    message.reserve(received.parts.size());
    for (const PartRecord& part : received.parts) {
      std::shared_ptr<void>& owner = owners[part.block];
      if (!owner) owner = keep(part.block);
      message.push_back({segment_->memory().subspan(part.offset, part.nbytes), owner});
    }
  } catch (...) {  // no memory of this process's own
    for (const PartRecord& part : received.parts) release_unless_kept(part.block);
    release_unless_kept(received.block);
    throw;
  }
  release_unless_kept(received.block);
}

// ---------------------------------------------------------------- channels

std::uint32_t ArenaState::block_index(const Block& block) {
  return static_cast<const Hold*>(block.owner.get())->block;
}

Block ArenaState::make_channel(std::size_t capacity, Waiting& waiting) {
  if (capacity == 0) throw Error(ErrorCode::invalid_argument, "[shm] a channel of capacity 0");
  Waiting at_once({std::chrono::nanoseconds(0), {}});
  std::optional<Block> block = allocate(Ledger::ring_nbytes(capacity), at_once);
  if (!block) throw Error(ErrorCode::out_of_memory, "[shm] the arena has no room for a channel");
  const Access access(*this, waiting);
  if (!access) throw_locked();
  ledger_.make_ring(access.lock(), block_index(*block), capacity);
  return std::move(*block);
}

Block ArenaState::open_channel(ChannelHandle handle, Waiting& waiting) {
  Block opened;
  const Access access(*this, waiting);
  if (!access) throw_locked();
  const std::uint32_t ring = ledger_.find_ring(access.lock(), handle);
  if (ring == kNone) {
    throw Error(ErrorCode::not_found, "[shm] no process has the channel open any more");
  }
  static_cast<void>(ledger_.ring(ring));  // is whole
  opened.bytes = ledger_.bytes(ring);
  const bool was_held = ledger_.is_held_by(ring, place_);
  ledger_.hold(ring, place_);
  try {
    opened.owner = keep(ring);
  } catch (...) {
    if (!was_held) ledger_.release(access.lock(), ring, place_);
    throw;
  }
  return opened;
}

bool ArenaState::push(std::uint32_t ring, Packed& message, Waiting& waiting) {
  const Access access(*this, waiting);
  if (!access || !ledger_.push(access.lock(), ring, message.block_, place_)) return false;
  message.block_ = kNone;
  return true;
}

std::optional<Message> ArenaState::pop(std::uint32_t ring, Waiting& waiting) {
  Message message;
  Owners owners;
  {
    const Access access(*this, waiting);
    if (!access) return std::nullopt;
    const auto received = ledger_.pop(access.lock(), ring, place_);
    if (!received) return std::nullopt;
    open_message(access, *received, owners, message);
  }
  for (const Block& part : message) map(part.bytes);
  return message;
}

bool ArenaState::is_alone_with(std::uint32_t block) {
  const BlockRecord& record = ledger_.block(block);
  for (std::uint32_t process = 0; process < kMaxProcesses; ++process) {
    const std::uint64_t word = record.holders[process / 64].load(std::memory_order_relaxed);
    const bool holds = (word >> (process % 64) & 1) != 0;
    if (holds && process != place_ && !ledger_.is_dead(process)) return false;
  }
  return true;
}

// ---------------------------------------------------------------- the whole

std::size_t ArenaState::reclaim(std::uint64_t orphan_grace_ns, Waiting& waiting) {
  const std::vector<std::uint32_t> dead = ledger_.find_dead();
  std::size_t freed = 0;
  {
    const Access access(*this, waiting);
    if (!access) return 0;
    if (!dead.empty()) freed += ledger_.bury(access.lock(), dead);
    freed += ledger_.free_orphans(access.lock(), orphan_grace_ns);
  }
  if (freed > 0) announce_room();
  return freed;
}

ArenaStats ArenaState::stats(Waiting& waiting) {
  reclaim(UINT64_MAX, waiting);
  const Access access(*this, waiting);
  if (!access) throw_locked();
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
