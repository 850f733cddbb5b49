#include "shm/ledger.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <string>

#include "base/checked.h"
#include "shm/futex.h"

namespace headrace::shm {

void (*crash_hook)() = nullptr;
std::uint64_t birth_patience_ns = 60'000'000'000;  // they take microseconds

namespace {

using namespace std::chrono_literals;

// How long a thread waits for the lock before it asks whether its holder is alive.
constexpr auto kLockPatience = 20ms;

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

std::size_t header_nbytes(std::uint32_t capacity) {
  return round_up(sizeof(Header) + capacity * (sizeof(BlockRecord) + sizeof(std::uint32_t)), 4096);
}

std::uint64_t bit(std::uint32_t process) { return std::uint64_t{1} << (process % 64); }

void set_holder(BlockRecord& record, std::uint32_t process) {
  std::atomic<std::uint64_t>& word = record.holders[process / 64];
  commit(word, word.load(std::memory_order_relaxed) | bit(process));
}

void clear_holder(BlockRecord& record, std::uint32_t process) {
  std::atomic<std::uint64_t>& word = record.holders[process / 64];
  commit(word, word.load(std::memory_order_relaxed) & ~bit(process));
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
  const std::uint32_t capacity = header_->capacity;
  if (header_->nbytes != memory.size() || capacity == 0 || capacity == kNone ||
      header_->data_offset != header_nbytes(capacity) || header_->data_offset > memory.size()) {
    throw_not_an_arena("its sizes contradict each other");
  }
  blocks_ = reinterpret_cast<BlockRecord*>(header_ + 1);
  order_ = reinterpret_cast<std::uint32_t*>(blocks_ + capacity);
}

std::span<std::byte> Ledger::bytes(std::uint32_t index) const {
  const BlockRecord& record = block(index);
  return memory_.subspan(record.offset, record.nbytes);
}

// ---------------------------------------------------------------- lock

Ledger::Lock::Lock(const Ledger& ledger, std::uint32_t process) : ledger_(ledger) {
  std::atomic<std::uint32_t>& word = ledger.header().lock;
  constexpr int kSpins = 100;
  for (int i = 0; i < kSpins; ++i) {
    std::uint32_t seen = word.load(std::memory_order_relaxed);
    if ((seen & lock_word::kHolder) == 0 &&
        word.compare_exchange_weak(
            seen, lock_word::taken(seen, process, 0), std::memory_order_acquire)) {
      crash_point();
      return;
    }
  }
  while (!wait_and_take(process)) {
  }
  crash_point();
}

// One look at the lock, and one sleep. Whoever has slept leaves the mark for others that may.
bool Ledger::Lock::wait_and_take(std::uint32_t process) const {
  std::atomic<std::uint32_t>& word = ledger_.header().lock;
  std::uint32_t seen = word.load(std::memory_order_relaxed);
  const auto take = [&] {
    return word.compare_exchange_strong(
        seen,
        lock_word::taken(seen & ~lock_word::kWaiters, process, lock_word::kWaiters),
        std::memory_order_acquire);
  };
  if ((seen & lock_word::kHolder) == 0) return take();
  if ((seen & lock_word::kWaiters) == 0 &&
      !word.compare_exchange_strong(seen, seen | lock_word::kWaiters, std::memory_order_relaxed)) {
    return false;
  }
  seen |= lock_word::kWaiters;
  if (futex_wait(word, seen, kLockPatience)) return false;
  if (!ledger_.is_dead((seen & lock_word::kHolder) - 1) || !take()) return false;
  ledger_.rebuild();
  return true;
}

Ledger::Lock::~Lock() {
  crash_point();
  std::atomic<std::uint32_t>& word = ledger_.header().lock;
  const std::uint32_t before =
      word.fetch_and(~(lock_word::kHolder | lock_word::kWaiters), std::memory_order_release);
  if (before & lock_word::kWaiters) {
    crash_point();
    futex_wake(word, 1);
  }
}

// ---------------------------------------------------------------- processes

std::uint32_t Ledger::join(std::uint64_t born_ns) const {
  const ProcessIdentity self = this_process();
  std::uint32_t place = claim(self);
  if (place == kNone) place = inherit(self);
  if (place != kNone) header_->processes[place].born_ns.store(born_ns, std::memory_order_release);
  return place;
}

// A free place.
std::uint32_t Ledger::claim(ProcessIdentity self) const {
  for (std::uint32_t i = 0; i < kMaxProcesses; ++i) {
    ProcessIdentity nobody = 0;
    if (header_->processes[i].identity.compare_exchange_strong(
            nobody, self, std::memory_order_acq_rel)) {
      return i;
    }
  }
  return kNone;
}

// A dead process's place, when there is no other: to take the lock one has to have a place. Not
// that of a process which died with the lock: it would look alive again.
std::uint32_t Ledger::inherit(ProcessIdentity self) const {
  for (const std::uint32_t place : find_dead()) {
    std::atomic<ProcessIdentity>& identity = header_->processes[place].identity;
    ProcessIdentity dead = identity.load(std::memory_order_acquire);
    const std::uint32_t holder = header_->lock.load(std::memory_order_acquire) & lock_word::kHolder;
    if (holder == place + 1 || dead == 0 || shm::is_alive(dead)) continue;
    if (!identity.compare_exchange_strong(dead, self, std::memory_order_acq_rel)) continue;
    const Lock lock(*this, place);
    clear_place(place);
    rebuild();
    return place;
  }
  return kNone;
}

bool Ledger::arrive(std::uint32_t process) const {
  ProcessRecord& record = header_->processes[process];
  ProcessIdentity parent = record.identity.load(std::memory_order_acquire);
  if (record.born_ns.load(std::memory_order_acquire) == 0) return false;
  if (!record.identity.compare_exchange_strong(parent, this_process(), std::memory_order_acq_rel)) {
    return false;
  }
  record.born_ns.store(0, std::memory_order_release);
  return true;
}

bool Ledger::is_dead(std::uint32_t process) const {
  if (process >= kMaxProcesses) return true;
  const ProcessRecord& record = header_->processes[process];
  const std::uint64_t born = record.born_ns.load(std::memory_order_acquire);
  if (born != 0) return monotonic_ns() > born + birth_patience_ns;
  const ProcessIdentity identity = record.identity.load(std::memory_order_acquire);
  return identity == 0 || !shm::is_alive(identity);
}

std::vector<std::uint32_t> Ledger::find_dead() const {
  std::vector<std::uint32_t> dead;
  for (std::uint32_t i = 0; i < kMaxProcesses; ++i) {
    if (header_->processes[i].identity.load(std::memory_order_relaxed) != 0 && is_dead(i)) {
      dead.push_back(i);
    }
  }
  return dead;
}

// Messages that it had sent by a Descriptor are orphans, what it held it holds no more.
void Ledger::clear_place(std::uint32_t process) const {
  for (std::uint32_t i = 0; i < header_->capacity; ++i) {
    if (block(i).ticket.load(std::memory_order_relaxed) == process + 1) {
      commit(block(i).orphaned_ns, monotonic_ns());
      commit(block(i).ticket, kOrphanTicket);
    }
    if (block(i).holders[process / 64].load(std::memory_order_relaxed) & bit(process)) {
      clear_holder(block(i), process);
    }
  }
}

std::size_t Ledger::bury(const Lock&, std::span<const std::uint32_t> dead) const {
  for (const std::uint32_t process : dead) {
    ProcessRecord& record = header_->processes[process];
    // Another process may have been first, and the place somebody else's by now.
    ProcessIdentity identity = record.identity.load(std::memory_order_acquire);
    if (identity == 0 || !is_dead(process)) continue;
    clear_place(process);
    record.born_ns.store(0, std::memory_order_release);
    crash_point();
    record.identity.compare_exchange_strong(identity, 0, std::memory_order_acq_rel);
  }
  return rebuild();
}

// ---------------------------------------------------------------- blocks

bool Ledger::is_held(const BlockRecord& record) const {
  return std::ranges::any_of(record.holders, [](const std::atomic<std::uint64_t>& word) {
    return word.load(std::memory_order_relaxed) != 0;
  });
}

bool Ledger::is_alive(const BlockRecord& record) const {
  return is_held(record) || record.ticket.load(std::memory_order_relaxed) != kNoTicket ||
         record.in_ring != 0 || record.links != 0;
}

std::uint32_t Ledger::allocate(const Lock&, std::size_t nbytes, std::uint32_t process) const {
  const std::uint64_t end = header_->nbytes;
  if (nbytes > end) return kNone;
  const std::uint64_t size = round_up(std::max<std::size_t>(nbytes, 1), kBlockAlignment);
  const std::uint32_t index = header_->first_free;
  if (index == kNone) return kNone;

  // The first gap that is large enough: low addresses are the ones that caches have.
  std::uint32_t previous = header_->full_until;
  std::uint64_t gap = header_->data_offset;
  if (previous != kNone) gap = block(previous).offset + block(previous).nbytes;
  std::uint32_t next = previous == kNone ? header_->first : block(previous).next;
  bool no_gap_yet = true;
  while (next != kNone && block(next).offset - gap < size) {
    no_gap_yet = no_gap_yet && block(next).offset == gap;
    if (no_gap_yet) header_->full_until = next;
    previous = next;
    gap = block(next).offset + block(next).nbytes;
    next = block(next).next;
  }
  if (next == kNone && (gap > end || end - gap < size)) return kNone;

  BlockRecord& record = block(index);
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
  if (next != kNone) block(next).previous = index;
  next = index;
}

void Ledger::hold(const Lock&, std::uint32_t index, std::uint32_t process) const {
  set_holder(block(index), process);
  if (block(index).state.load(std::memory_order_relaxed) == BlockState::channel) {
    ring(index).shared.store(1, std::memory_order_relaxed);
  }
}

bool Ledger::release(const Lock&, std::uint32_t index, std::uint32_t process) const {
  BlockRecord& record = block(index);
  clear_holder(record, process);
  if (is_alive(record)) return false;
  if (record.state.load(std::memory_order_relaxed) == BlockState::channel) {
    rebuild();  // with the channel go the messages in it, and what they alone kept
  } else {
    free_block(index);
  }
  return true;
}

void Ledger::free_block(std::uint32_t index) const {
  BlockRecord& record = block(index);
  commit(record.state, BlockState::free);
  header_->used_nbytes -= record.nbytes;
  --header_->blocks;
  (record.previous == kNone ? header_->first : block(record.previous).next) = record.next;
  if (record.next != kNone) block(record.next).previous = record.previous;
  // What was full up to here ends before this block now.
  const std::uint32_t full = header_->full_until;
  if (full != kNone && block(full).offset >= record.offset) header_->full_until = record.previous;
  record.next = header_->first_free;
  header_->first_free = index;
}

// ---------------------------------------------------------------- messages

std::span<const PartRecord> Ledger::parts(std::uint32_t message) const {
  const std::span<std::byte> memory = bytes(message);
  const auto& record = *reinterpret_cast<const MessageRecord*>(memory.data());
  const std::size_t room = (memory.size() - sizeof(MessageRecord)) / sizeof(PartRecord);
  return {reinterpret_cast<const PartRecord*>(&record + 1),
          std::min<std::size_t>(record.parts, room)};
}

void Ledger::count_links(std::uint32_t message, bool add) const {
  for (const PartRecord& part : parts(message)) {
    if (part.block == message) continue;
    if (add) {
      ++block(part.block).links;
    } else {
      --block(part.block).links;
    }
  }
}

Ticket Ledger::make_ticket(std::uint32_t message) const {
  return {header_->id, message, block(message).generation, {}};
}

Ticket Ledger::send(const Lock&, std::uint32_t message, std::uint32_t process) const {
  count_links(message, true);
  commit(block(message).ticket, process + 1);
  clear_holder(block(message), process);
  return make_ticket(message);
}

std::uint32_t Ledger::find_message(const Ticket& ticket) const {
  if (ticket.arena != header_->id) {
    throw Error(ErrorCode::invalid_argument, "[shm] the message is of another arena");
  }
  if (ticket.block >= header_->capacity) throw_stale();
  const BlockRecord& record = block(ticket.block);
  if (record.state != BlockState::taken || record.generation != ticket.generation) throw_stale();
  return ticket.block;
}

// The holder's bits first: until the store by which the message is no longer under way, a death
// leaves it there.
void Ledger::take_over(std::uint32_t message, std::uint32_t process) const {
  set_holder(block(message), process);
  for (const PartRecord& part : parts(message)) set_holder(block(part.block), process);
}

std::uint32_t Ledger::receive(const Lock&, const Ticket& ticket, std::uint32_t process) const {
  const std::uint32_t message = find_message(ticket);
  if (block(message).ticket == kNoTicket) throw_stale();
  take_over(message, process);
  commit(block(message).ticket, kNoTicket);
  count_links(message, false);
  return message;
}

std::size_t Ledger::free_orphans(const Lock&, std::uint64_t grace_ns) const {
  const std::uint64_t now = monotonic_ns();
  bool any = false;
  for (std::uint32_t i = header_->first; i != kNone; i = block(i).next) {
    BlockRecord& record = block(i);
    if (record.ticket == kOrphanTicket && now - record.orphaned_ns >= grace_ns) {
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

Ring& Ledger::ring(std::uint32_t index) const {
  return *reinterpret_cast<Ring*>(bytes(index).data());
}

void Ledger::make_ring(const Lock&, std::uint32_t index, std::size_t capacity) const {
  Ring& made = ring(index);
  std::memset(static_cast<void*>(&made), 0, sizeof(Ring));
  made.capacity = capacity;
  commit(block(index).state, BlockState::channel);
}

std::uint32_t Ledger::find_ring(const Lock&, ChannelHandle handle) const {
  if (handle.block >= header_->capacity) return kNone;
  const BlockRecord& record = block(handle.block);
  const bool found = record.state == BlockState::channel && record.generation == handle.generation;
  return found ? handle.block : kNone;
}

bool Ledger::push(const Lock&,
                  std::uint32_t index,
                  std::uint32_t message,
                  std::uint32_t process) const {
  Ring& to = ring(index);
  const std::uint64_t tail = to.tail.load(std::memory_order_relaxed);
  if (tail - to.head.load(std::memory_order_relaxed) >= to.capacity) return false;
  to.places.data()[tail % to.capacity] = make_ticket(message);
  block(message).in_ring = 1;
  count_links(message, true);
  commit(to.tail, tail + 1);
  clear_holder(block(message), process);
  return true;
}

std::uint32_t Ledger::pop(const Lock&, std::uint32_t index, std::uint32_t process) const {
  Ring& from = ring(index);
  const std::uint64_t head = from.head.load(std::memory_order_relaxed);
  if (head == from.tail.load(std::memory_order_relaxed)) return kNone;
  const std::uint32_t message = find_message(from.places.data()[head % from.capacity]);
  take_over(message, process);
  commit(from.head, head + 1);
  block(message).in_ring = 0;
  count_links(message, false);
  return message;
}

// ---------------------------------------------------------------- what follows from the truth

std::size_t Ledger::rebuild() const {
  const std::uint64_t used = header_->used_nbytes;
  count_messages_under_way();
  rebuild_lists();
  return used - std::min(used, header_->used_nbytes);
}

void Ledger::count_messages_under_way() const {
  for (std::uint32_t i = 0; i < header_->capacity; ++i) block(i).links = block(i).in_ring = 0;
  for (std::uint32_t i = 0; i < header_->capacity; ++i) {
    const BlockState state = block(i).state.load(std::memory_order_relaxed);
    if (state == BlockState::taken && block(i).ticket != kNoTicket) count_links(i, true);
    if (state != BlockState::channel || !is_held(block(i))) continue;
    const Ring& from = ring(i);
    for (std::uint64_t place = from.head; place != from.tail; ++place) {
      const std::uint32_t message = from.places.data()[place % from.capacity].block;
      block(message).in_ring = 1;
      count_links(message, true);
    }
  }
}

void Ledger::rebuild_lists() const {
  const auto offset = [this](std::uint32_t i) { return block(i).offset.load(); };
  header_->first = header_->first_free = header_->full_until = kNone;
  header_->used_nbytes = header_->blocks = 0;
  std::uint32_t count = 0;
  for (std::uint32_t i = header_->capacity; i-- > 0;) {
    BlockRecord& record = block(i);
    if (record.state != BlockState::free && is_alive(record)) {
      order_[count++] = i;
      header_->used_nbytes += record.nbytes;
    } else {
      if (record.state != BlockState::free) commit(record.state, BlockState::free);
      record.next = header_->first_free;
      header_->first_free = i;
    }
  }
  header_->blocks = count;
  std::ranges::sort(order_, order_ + count, {}, offset);
  std::uint32_t previous = kNone;
  for (std::uint32_t i = 0; i < count; ++i) {
    link_after(previous, order_[i]);
    previous = order_[i];
  }
}

}  // namespace headrace::shm
