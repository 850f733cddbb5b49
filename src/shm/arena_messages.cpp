// Messages of an arena, and the channels that they travel by.

#include <bit>
#include <cstring>
#include <exception>
#include <map>

#include "base/checked.h"
#include "shm/arena_access.h"

namespace headrace::shm {

namespace {
std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

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
  const MutexLock lock(mutex_);
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
  const std::span<std::byte> memory = ledger_.bytes(block, nbytes);
  map(memory);
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
  Access access(*this, waiting);
  if (!access.take()) return std::nullopt;
  const Ticket ticket = ledger_.send(access.lock(), message.block_, place_);
  message.block_ = kNone;
  return std::bit_cast<Descriptor>(ticket);
}

Message ArenaState::receive(const Descriptor& descriptor, Waiting& waiting) {
  Message message;
  Owners owners;
  {
    Access access(*this, waiting);
    if (!access.take()) throw_arena_locked();
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
  const auto release_unless_kept = [&](std::uint32_t block) REQUIRES(mutex_) {
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
  waiting.want_lock_only();
  std::optional<Block> block = allocate(Ledger::ring_nbytes(capacity), waiting);
  if (!block && !waiting.lock_slice()) throw_arena_locked();
  if (!block) throw Error(ErrorCode::out_of_memory, "[shm] the arena has no room for a channel");
  Access access(*this, waiting);
  if (!access.take()) throw_arena_locked();
  ledger_.make_ring(access.lock(), block_index(*block), capacity);
  return std::move(*block);
}

Block ArenaState::open_channel(ChannelHandle handle, Waiting& waiting) {
  Block opened;
  Access access(*this, waiting);
  if (!access.take()) throw_arena_locked();
  const std::uint32_t ring = ledger_.find_ring(access.lock(), handle);
  if (ring == kNone) {
    throw Error(ErrorCode::not_found, "[shm] no process has the channel open any more");
  }
  static_cast<void>(ledger_.ring(ring));  // is whole
  opened.bytes = ledger_.bytes(ring, sizeof(Ring));
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
  Access access(*this, waiting);
  if (!access.take() || !ledger_.push(access.lock(), ring, message.block_, place_)) return false;
  message.block_ = kNone;
  return true;
}

std::optional<Message> ArenaState::pop(std::uint32_t ring, Waiting& waiting) {
  Message message;
  Owners owners;
  {
    Access access(*this, waiting);
    if (!access.take()) return std::nullopt;
    const auto received = ledger_.pop(access.lock(), ring, place_);
    if (!received) return std::nullopt;
    open_message(access, *received, owners, message);
  }
  for (const Block& part : message) map(part.bytes);
  return message;
}

bool ArenaState::is_alone_with(std::uint32_t block) {
  const std::uint32_t self = place_of_this_process();
  const BlockRecord& record = ledger_.block(block);
  for (std::uint32_t process = 0; process < kMaxProcesses; ++process) {
    const std::uint64_t word = record.holders[process / 64].load(std::memory_order_relaxed);
    const bool holds = (word >> (process % 64) & 1) != 0;
    if (holds && process != self && !ledger_.is_dead(process)) return false;
  }
  return true;
}

}  // namespace headrace::shm
