#include "shm/arena_state.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
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
  explicit Access(ArenaState& state)
      : threads_(state.mutex_), processes_(state.ledger_, checked_place(state)) {}

  const Ledger::Lock& lock() const { return processes_; }

 private:
  static std::uint32_t checked_place(const ArenaState& state) {
    if (state.place_ != kNone) return state.place_;
    throw Error(ErrorCode::unsupported,
                "[shm] this forked process found no place in the arena: " +
                    std::to_string(kMaxProcesses) + " processes can use one");
  }

  std::lock_guard<std::mutex> threads_;
  Ledger::Lock processes_;
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
      counts_(ledger_.header().capacity),
      mapped_(segment_->memory().size() / kStretch + 1) {}

std::uint32_t ArenaState::join() {
  const std::uint32_t place = ledger_.join();
  if (place != kNone) return place;
  throw Error(ErrorCode::unsupported,
              "[shm] " + std::to_string(kMaxProcesses) + " processes use the arena, its most");
}

ArenaState::~ArenaState() {
  // Nothing is held: every Hold keeps this alive.
  if (place_ != kNone) commit(ledger_.header().processes[place_].identity, ProcessIdentity{0});
}

// Keeps this process's threads out until the fork is over, so that the child inherits what its
// place holds.
void ArenaState::before_fork() {
  mutex_.lock();
  child_place_ = place_ == kNone ? kNone : ledger_.join(monotonic_ns());
  if (child_place_ == kNone) return;
  const Ledger::Lock lock(ledger_, place_);
  for (const auto& [offset, block] : held_) ledger_.hold(lock, block, child_place_);
}

void ArenaState::after_fork_in_parent() { mutex_.unlock(); }

void ArenaState::after_fork_in_child() {
  place_ = child_place_ != kNone && ledger_.arrive(child_place_) ? child_place_ : kNone;
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
      const Access access(*this);
      const std::uint32_t block = ledger_.allocate(access.lock(), nbytes, place_);
      if (block != kNone) return block;
    }
    if (reclaim(kOrphanGraceNs) > 0) continue;
    if (!waiting.sleep(header.room_event, header.room_waiters, seen)) return kNone;
  }
}

std::optional<Block> ArenaState::allocate(std::size_t nbytes, Waiting& waiting) {
  const std::uint32_t block = allocate_raw(nbytes, waiting);
  if (block == kNone) return std::nullopt;
  Block made{ledger_.bytes(block).first(nbytes), keep(Access(*this), block)};
  map(made.bytes);
  return made;
}

// The block is held in the ledger already.
std::shared_ptr<void> ArenaState::keep(const Access&, std::uint32_t block) {
  if (counts_[block]++ == 0) held_.emplace(ledger_.block(block).offset, block);
  return std::make_shared<Hold>(shared_from_this(), block);
}

void ArenaState::let_go(std::uint32_t block) noexcept {
  bool freed = false;
  {
    if (place_ == kNone) return;
    const Access access(*this);
    if (--counts_[block] > 0) return;
    held_.erase(ledger_.block(block).offset);
    freed = ledger_.release(access.lock(), block, place_);
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
  {
    const Access access(*arena_);
    arena_->ledger_.release(access.lock(), block_, arena_->place_);
  }
  arena_->announce_room();
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

Descriptor ArenaState::send(Packed message) {
  const Access access(*this);
  const Ticket ticket = ledger_.send(access.lock(), message.block_, place_);
  message.block_ = kNone;
  return std::bit_cast<Descriptor>(ticket);
}

Message ArenaState::receive(const Descriptor& descriptor) {
  Message message;
  {
    const Access access(*this);
    const auto ticket = std::bit_cast<Ticket>(descriptor);
    message = open_message(access, ledger_.receive(access.lock(), ticket, place_));
  }
  for (const Block& part : message) map(part.bytes);
  return message;
}

// All blocks that it names are this process's by now.
Message ArenaState::open_message(const Access& access, std::uint32_t message) {
  const std::span<const PartRecord> parts = ledger_.parts(message);
  std::map<std::uint32_t, std::shared_ptr<void>> owners;
  Message blocks;
  blocks.reserve(parts.size());
  for (const PartRecord& part : parts) {
    std::shared_ptr<void>& owner = owners[part.block];
    if (!owner) owner = keep(access, part.block);
    blocks.push_back({segment_->memory().subspan(part.offset, part.nbytes), owner});
  }
  if (counts_[message] == 0) ledger_.release(access.lock(), message, place_);
  return blocks;
}

// ---------------------------------------------------------------- channels

std::uint32_t ArenaState::block_index(const Block& block) {
  return static_cast<const Hold*>(block.owner.get())->block;
}

Block ArenaState::make_channel(std::size_t capacity) {
  if (capacity == 0) throw Error(ErrorCode::invalid_argument, "[shm] a channel of capacity 0");
  Waiting waiting({std::chrono::nanoseconds(0), {}});
  std::optional<Block> block = allocate(Ledger::ring_nbytes(capacity), waiting);
  if (!block) throw Error(ErrorCode::out_of_memory, "[shm] the arena has no room for a channel");
  const Access access(*this);
  ledger_.make_ring(access.lock(), block_index(*block), capacity);
  return std::move(*block);
}

Block ArenaState::open_channel(ChannelHandle handle) {
  const Access access(*this);
  const std::uint32_t ring = ledger_.find_ring(access.lock(), handle);
  if (ring == kNone) {
    throw Error(ErrorCode::not_found, "[shm] no process has the channel open any more");
  }
  ledger_.hold(access.lock(), ring, place_);
  return {ledger_.bytes(ring), keep(access, ring)};
}

bool ArenaState::push(std::uint32_t ring, Packed& message) {
  const Access access(*this);
  if (!ledger_.push(access.lock(), ring, message.block_, place_)) return false;
  message.block_ = kNone;
  return true;
}

std::optional<Message> ArenaState::pop(std::uint32_t ring) {
  std::optional<Message> message;
  {
    const Access access(*this);
    const std::uint32_t block = ledger_.pop(access.lock(), ring, place_);
    if (block == kNone) return std::nullopt;
    message = open_message(access, block);
  }
  for (const Block& part : *message) map(part.bytes);
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

std::size_t ArenaState::reclaim(std::uint64_t orphan_grace_ns) {
  const std::vector<std::uint32_t> dead = ledger_.find_dead();
  std::size_t freed = 0;
  {
    const Access access(*this);
    if (!dead.empty()) freed += ledger_.bury(access.lock(), dead);
    freed += ledger_.free_orphans(access.lock(), orphan_grace_ns);
  }
  if (freed > 0) announce_room();
  return freed;
}

ArenaStats ArenaState::stats() {
  reclaim(UINT64_MAX);
  const Access access(*this);
  const Header& header = ledger_.header();
  ArenaStats stats;
  stats.nbytes = ledger_.data().size();
  stats.used_nbytes = header.used_nbytes;
  stats.blocks = header.blocks;
  for (std::uint32_t i = header.first; i != kNone; i = ledger_.block(i).next) {
    const BlockRecord& record = ledger_.block(i);
    stats.in_transit += record.ticket != kNoTicket || record.in_ring != 0 ? 1 : 0;
    stats.orphans += record.ticket == kOrphanTicket ? 1 : 0;
  }
  for (const ProcessRecord& process : header.processes) {
    stats.processes += process.identity.load(std::memory_order_relaxed) != 0 ? 1 : 0;
  }
  stats.huge_pages = header.huge_pages != 0;
  stats.backing = static_cast<Backing>(header.backing);
  return stats;
}

}  // namespace headrace::shm
