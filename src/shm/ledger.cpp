#include "shm/ledger.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/checked.h"

namespace headrace::shm {

void (*crash_hook)() = nullptr;

namespace {

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

std::size_t header_nbytes(std::uint32_t capacity) {
  return round_up(sizeof(Header) + capacity * sizeof(BlockRecord), 4096);
}

std::uint64_t bit(std::uint32_t process) { return std::uint64_t{1} << (process % 64); }

void set_holder(BlockRecord& record, std::uint32_t process) {
  commit_bits(record.holders[process / 64], bit(process), true);
}

void clear_holder(BlockRecord& record, std::uint32_t process) {
  commit_bits(record.holders[process / 64], bit(process), false);
}

// What others may write to at any time, so that what is checked is what is used.
template <typename T>
T read_once(const T& value) {
  return *static_cast<const volatile T*>(&value);
}

[[noreturn]] void throw_not_an_arena(const char* why) {
  throw Error(ErrorCode::invalid_argument, std::string("[shm] this memory is no arena: ") + why);
}

[[noreturn]] void throw_stale() {
  throw Error(ErrorCode::not_found,
              "[shm] the message was received before, or its memory was taken back after its "
              "sender's death");
}

}  // namespace

// ---------------------------------------------------------------- memory

std::size_t Ledger::memory_nbytes(std::size_t data_nbytes, std::uint32_t capacity) {
  return checked_add(header_nbytes(capacity), data_nbytes, "[shm] size of an arena");
}

void Ledger::format(std::span<std::byte> memory,
                    std::uint32_t capacity,
                    bool huge,
                    Backing backing) {
  Header& header = *reinterpret_cast<Header*>(memory.data());
  header.version = kLayoutVersion;
  header.capacity = capacity;
  header.nbytes = memory.size();
  header.data_offset = header_nbytes(capacity);
  header.huge_pages = huge ? 1 : 0;
  header.backing = static_cast<std::uint32_t>(backing);
  header.pid_namespace = pid_namespace();
  if (getentropy(header.id.data(), header.id.size()) != 0) {
    throw Error(ErrorCode::io, "[shm] getentropy", errno);
  }
  header.magic = kArenaMagic;
  Ledger(memory).rebuild();
}

Ledger::Ledger(std::span<std::byte> memory)
    : memory_(memory), header_(reinterpret_cast<Header*>(memory.data())) {
  if (memory.size() < sizeof(Header)) throw_not_an_arena("it is too small");
  if (header_->magic != kArenaMagic) throw_not_an_arena("it does not begin as one");
  if (header_->version != kLayoutVersion)
    throw_not_an_arena("it is of another version of headrace");
  capacity_ = read_once(header_->capacity);
  data_offset_ = read_once(header_->data_offset);
  if (header_->nbytes != memory.size() || capacity_ == 0 || capacity_ == kNone ||
      data_offset_ != header_nbytes(capacity_) || data_offset_ > memory.size()) {
    throw_not_an_arena("its sizes contradict each other");
  }
  blocks_ = reinterpret_cast<BlockRecord*>(header_ + 1);
}

// What follows may be wrong because of it, or the reason.
void Ledger::throw_corrupt(const char* what) const {
  header_->untidy.store(1, std::memory_order_relaxed);
  throw Error(ErrorCode::corrupt,
              std::string("[shm] the arena was written to where nobody may: ") + what);
}

std::optional<Ledger::Extent> Ledger::find_extent(const BlockRecord& record) const {
  const Extent found{record.offset.load(std::memory_order_relaxed),
                     record.nbytes.load(std::memory_order_relaxed)};
  const std::uint64_t end = memory_.size();
  const bool is_good = found.offset >= data_offset_ && found.offset <= end &&
                       found.offset % kBlockAlignment == 0 && found.nbytes <= end - found.offset;
  return is_good ? std::optional(found) : std::nullopt;
}

Ledger::Extent Ledger::extent(std::uint32_t index) const {
  const std::optional<Extent> found = find_extent(block(index));
  if (!found) throw_corrupt("a block lies outside of it");
  return *found;
}

std::span<std::byte> Ledger::bytes(std::uint32_t index) const {
  const Extent found = extent(index);
  return memory_.subspan(found.offset, found.nbytes);
}

std::span<std::byte> Ledger::bytes(std::uint32_t index, std::size_t nbytes) const {
  const std::span<std::byte> all = bytes(index);
  if (all.size() < nbytes) throw_corrupt("a block is shorter than it was made");
  return all.first(nbytes);
}

// ---------------------------------------------------------------- blocks

bool Ledger::is_held(const BlockRecord& record) const {
  return std::ranges::any_of(record.holders, [](const std::atomic<std::uint64_t>& word) {
    return word.load(std::memory_order_acquire) != 0;
  });
}

bool Ledger::is_held_by(std::uint32_t index, std::uint32_t process) const {
  return (block(index).holders[process / 64].load(std::memory_order_relaxed) & bit(process)) != 0;
}

bool Ledger::is_alive(const BlockRecord& record) const {
  return is_held(record) || record.ticket.load(std::memory_order_relaxed) != kNoTicket ||
         record.in_ring != 0 || record.links != 0;
}

std::uint32_t Ledger::allocate(const Lock&, std::size_t nbytes, std::uint32_t process) const {
  const std::uint64_t end = memory_.size();
  if (nbytes > end) return kNone;
  const std::uint64_t size = round_up(std::max<std::size_t>(nbytes, 1), kBlockAlignment);
  const std::uint32_t index = read_once(header_->first_free);
  if (index == kNone) return kNone;
  BlockRecord& record = block(index);
  if (record.state != BlockState::free) throw_corrupt("a block is free and is not");

  // The first gap that is large enough: low addresses are the ones that caches have.
  std::uint32_t previous = read_once(header_->full_until);
  std::uint64_t gap = previous == kNone ? data_offset_ : extent(previous).end();
  std::uint32_t next = read_once(previous == kNone ? header_->first : block(previous).next);
  bool no_gap_yet = true;
  for (std::uint32_t steps = 0; next != kNone; ++steps) {
    const Extent taken = extent(next);
    if (taken.offset < gap || steps > capacity_) throw_corrupt("blocks overlap");
    if (taken.offset - gap >= size) break;
    no_gap_yet = no_gap_yet && taken.offset == gap;
    if (no_gap_yet) header_->full_until = next;
    previous = next;
    gap = taken.end();
    next = read_once(block(next).next);
  }
  if (next == kNone && (gap > end || end - gap < size)) return kNone;

  header_->first_free = record.next;
  record.offset.store(gap, std::memory_order_relaxed);
  record.nbytes.store(size, std::memory_order_relaxed);
  record.ticket.store(kNoTicket, std::memory_order_relaxed);
  for (std::atomic<std::uint64_t>& word : record.holders) word.store(0, std::memory_order_relaxed);
  record.links = record.in_ring = 0;
  commit(record.generation, record.generation.load(std::memory_order_relaxed) + 1);
  set_holder(record, process);
  commit(record.state, BlockState::taken);
  link_after(previous, index);
  header_->used_nbytes += size;
  ++header_->blocks;
  return index;
}

void Ledger::link_after(std::uint32_t previous, std::uint32_t index) const {
  BlockRecord& record = block(index);
  record.previous = previous;
  std::uint32_t& next = previous == kNone ? header_->first : block(previous).next;
  record.next = next;
  if (const std::uint32_t after = read_once(record.next); after != kNone) {
    block(after).previous = index;
  }
  next = index;
}

void Ledger::hold(std::uint32_t index, std::uint32_t process) const {
  set_holder(block(index), process);
  if (block(index).state.load(std::memory_order_relaxed) == BlockState::channel) {
    ring(index).shared.store(1, std::memory_order_relaxed);
  }
}

bool Ledger::release(const Lock&, std::uint32_t index, std::uint32_t process) const {
  BlockRecord& record = block(index);
  if (record.state == BlockState::free) throw_corrupt("a block is free that was held");
  clear_holder(record, process);
  if (is_alive(record)) return false;
  if (record.state.load(std::memory_order_relaxed) == BlockState::channel) {
    rebuild();  // with the channel go the messages in it, and what they alone kept
  } else {
    free_block(index);
  }
  return true;
}

// The mark after the bit: who sees the mark frees by what the bits say.
void Ledger::release_later(std::uint32_t index, std::uint32_t process) const {
  clear_holder(block(index), process);
  commit(header_->untidy, std::uint32_t{1});
}

void Ledger::free_block(std::uint32_t index) const {
  BlockRecord& record = block(index);
  const std::uint32_t previous = read_once(record.previous);
  const std::uint32_t next = read_once(record.next);
  std::uint32_t& before = previous == kNone ? header_->first : block(previous).next;
  if (before != index) throw_corrupt("the list of blocks is broken");
  std::uint32_t* const after = next == kNone ? nullptr : &block(next).previous;
  const std::uint64_t offset = record.offset;
  const std::uint32_t full = read_once(header_->full_until);
  const bool was_full = full != kNone && block(full).offset >= offset;

  commit(record.state, BlockState::free);
  header_->used_nbytes -= record.nbytes;
  --header_->blocks;
  before = next;
  if (after) *after = previous;
  // What was full up to here ends before this block now.
  if (was_full) header_->full_until = previous;
  record.next = header_->first_free;
  header_->first_free = index;
}

// ---------------------------------------------------------------- messages

// Whether it lies in the block that it names, and that is still the same one.
bool Ledger::is_part(const PartRecord& part) const {
  if (part.block >= capacity_) return false;
  const BlockRecord& record = block(part.block);
  const std::optional<Extent> found = find_extent(record);
  return found && record.state.load(std::memory_order_relaxed) != BlockState::free &&
         record.generation.load(std::memory_order_relaxed) == part.generation &&
         part.offset >= found->offset && part.offset <= found->end() &&
         part.nbytes <= found->end() - part.offset;
}

std::vector<PartRecord> Ledger::read_parts(std::uint32_t message, Bad bad) const {
  const std::optional<Extent> found = find_extent(block(message));
  std::uint64_t count = 0;
  bool is_good = found && found->nbytes >= sizeof(MessageRecord);
  if (is_good) {
    count =
        read_once(reinterpret_cast<const MessageRecord*>(memory_.data() + found->offset)->parts);
    is_good = count <= (found->nbytes - sizeof(MessageRecord)) / sizeof(PartRecord);
  }
  if (!is_good && bad == Bad::is_error) throw_corrupt("a message has no such parts");
  std::vector<PartRecord> parts;
  if (!is_good) return parts;
  parts.resize(count);
  if (count > 0) {
    std::memcpy(parts.data(),
                memory_.data() + found->offset + sizeof(MessageRecord),
                count * sizeof(PartRecord));
  }
  const auto is_bad = [this](const PartRecord& part) { return !is_part(part); };
  if (std::erase_if(parts, is_bad) > 0 && bad == Bad::is_error) {
    throw_corrupt("part of a message is not in the block that it names");
  }
  return parts;
}

std::vector<PartRecord> Ledger::parts(std::uint32_t message) const {
  return read_parts(message, Bad::is_error);
}

void Ledger::count_links(std::uint32_t message, std::span<const PartRecord> parts, bool add) const {
  for (const PartRecord& part : parts) {
    if (part.block == message) continue;
    std::uint32_t& links = block(part.block).links;
    if (add) {
      ++links;
    } else if (links > 0) {
      --links;
    }
  }
}

Ticket Ledger::make_ticket(std::uint32_t message) const {
  return {header_->id, message, block(message).generation, {}};
}

Ticket Ledger::send(const Lock&, std::uint32_t message, std::uint32_t process) const {
  count_links(message, parts(message), true);
  commit(block(message).ticket, process + 1);
  clear_holder(block(message), process);
  return make_ticket(message);
}

bool Ledger::is_message(std::uint32_t index, std::uint32_t generation) const {
  return index < capacity_ && block(index).state == BlockState::taken &&
         block(index).generation == generation;
}

// The holder's bits first: until the store by which the message is no longer under way, a death
// leaves it there.
void Ledger::take_over(const Received& message, std::uint32_t process) const {
  set_holder(block(message.block), process);
  for (const PartRecord& part : message.parts) set_holder(block(part.block), process);
}

Ledger::Received Ledger::receive(const Lock&, const Ticket& ticket, std::uint32_t process) const {
  if (ticket.arena != header_->id) {
    throw Error(ErrorCode::invalid_argument, "[shm] the message is of another arena");
  }
  if (!is_message(ticket.block, ticket.generation) || block(ticket.block).ticket == kNoTicket) {
    throw_stale();
  }
  Received message{ticket.block, {}};
  try {
    message.parts = parts(ticket.block);
  } catch (const Error&) {  // nobody can ever receive it
    commit(block(ticket.block).ticket, kNoTicket);
    throw;
  }
  take_over(message, process);
  commit(block(ticket.block).ticket, kNoTicket);
  count_links(ticket.block, message.parts, false);
  return message;
}

std::size_t Ledger::free_orphans(const Lock&, std::uint64_t grace_ns) const {
  const std::uint64_t now = monotonic_ns();
  bool any = false;
  for (std::uint32_t i = 0; i < capacity_; ++i) {
    BlockRecord& record = block(i);
    if (record.state != BlockState::free && record.ticket == kOrphanTicket &&
        now - record.orphaned_ns >= grace_ns) {
      commit(record.ticket, kNoTicket);
      any = true;
    }
  }
  return any ? rebuild() : 0;
}

// ---------------------------------------------------------------- channels

std::size_t Ledger::ring_nbytes(std::size_t capacity) {
  const std::size_t places =
      checked_mul(capacity - 1, sizeof(Ticket), "[shm] capacity of a channel");
  return checked_add(sizeof(Ring), places, "[shm] capacity of a channel");
}

std::optional<Ledger::OpenRing> Ledger::find_open_ring(std::uint32_t index) const {
  const std::optional<Extent> found = find_extent(block(index));
  if (!found || found->nbytes < sizeof(Ring)) return std::nullopt;
  auto* const ring = reinterpret_cast<Ring*>(memory_.data() + found->offset);
  const std::uint64_t capacity = read_once(ring->capacity);
  const std::uint64_t room = (found->nbytes - sizeof(Ring)) / sizeof(Ticket) + 1;
  if (capacity == 0 || capacity > room) return std::nullopt;
  return OpenRing{ring, capacity};
}

Ledger::OpenRing Ledger::open_ring(std::uint32_t index) const {
  const std::optional<OpenRing> found = find_open_ring(index);
  if (!found) throw_corrupt("a channel has another size than its block");
  return *found;
}

void Ledger::make_ring(const Lock&, std::uint32_t index, std::size_t capacity) const {
  const std::span<std::byte> memory = bytes(index);
  if (memory.size() < ring_nbytes(capacity)) throw_corrupt("a channel does not fit into its block");
  Ring& made = *reinterpret_cast<Ring*>(memory.data());
  std::memset(static_cast<void*>(&made), 0, sizeof(Ring));
  made.capacity = capacity;
  commit(block(index).state, BlockState::channel);
}

std::uint32_t Ledger::find_ring(const Lock&, ChannelHandle handle) const {
  if (handle.block >= capacity_) return kNone;
  const BlockRecord& record = block(handle.block);
  const bool found = record.state == BlockState::channel && record.generation == handle.generation;
  return found ? handle.block : kNone;
}

bool Ledger::push(const Lock&,
                  std::uint32_t index,
                  std::uint32_t message,
                  std::uint32_t process) const {
  const OpenRing to = open_ring(index);
  const std::uint64_t tail = to.ring->tail.load(std::memory_order_relaxed);
  const std::uint64_t count = tail - to.ring->head.load(std::memory_order_relaxed);
  if (count > to.capacity) throw_corrupt("a channel holds more than it can");
  if (count == to.capacity) return false;
  const std::vector<PartRecord> linked = parts(message);
  to.place(tail) = make_ticket(message);
  block(message).in_ring = 1;
  count_links(message, linked, true);
  commit(to.ring->tail, tail + 1);
  clear_holder(block(message), process);
  return true;
}

std::optional<Ledger::Received> Ledger::pop(const Lock&,
                                            std::uint32_t index,
                                            std::uint32_t process) const {
  const OpenRing from = open_ring(index);
  const std::uint64_t head = from.ring->head.load(std::memory_order_relaxed);
  const std::uint64_t count = from.ring->tail.load(std::memory_order_relaxed) - head;
  if (count > from.capacity) throw_corrupt("a channel holds more than it can");
  if (count == 0) return std::nullopt;
  const Ticket ticket = from.place(head);
  Received message{ticket.block, {}};
  try {
    if (!is_message(ticket.block, ticket.generation)) throw_corrupt("a channel's place");
    message.parts = parts(ticket.block);
  } catch (const Error&) {  // the ones behind it are not to wait for it
    commit(from.ring->head, head + 1);
    throw;
  }
  take_over(message, process);
  commit(from.ring->head, head + 1);
  block(message.block).in_ring = 0;
  count_links(message.block, message.parts, false);
  return message;
}

}  // namespace headrace::shm
