// The process table of an arena (tests/models/places.pml).

#include "shm/ledger.h"

namespace headrace::shm {

using namespace place_word;

std::uint64_t birth_patience_ns = 60'000'000'000;  // they take microseconds

namespace {

std::uint64_t bit(std::uint32_t process) { return std::uint64_t{1} << (process % 64); }

std::uint64_t unborn(std::uint64_t born_ns) { return kUnborn | born_ns; }

bool is_dead_word(std::uint64_t word) {
  if (word == kFree || word == kLeft) return true;
  if (word & kUnborn) return monotonic_ns() > (word & ~kUnborn) + birth_patience_ns;
  return !is_alive(word);
}

}  // namespace

std::uint32_t Ledger::join() const {
  const std::uint32_t place = claim(this_process());
  return place == kNone ? inherit() : place;
}

std::uint32_t Ledger::join_unborn(std::uint64_t born_ns) const {
  std::uint32_t place = claim(unborn(born_ns));
  if (place == kNone) {
    place = inherit();
    if (place != kNone) commit(header_->processes[place].identity, unborn(born_ns));
  }
  return place;
}

// A free place.
std::uint32_t Ledger::claim(std::uint64_t self) const {
  for (std::uint32_t i = 0; i < kMaxProcesses; ++i) {
    std::uint64_t nobody = kFree;
    if (header_->processes[i].identity.compare_exchange_strong(
            nobody, self, std::memory_order_acq_rel)) {
      return i;
    }
  }
  return kNone;
}

// A dead process's place, when there is no other: to take the lock one has to have a place. Not
// that of a process which died with the lock: it would look alive again.
std::uint32_t Ledger::inherit() const {
  constexpr std::chrono::seconds kPatience{1};
  const std::uint64_t self = this_process();
  for (const std::uint32_t place : find_dead()) {
    std::atomic<std::uint64_t>& identity = header_->processes[place].identity;
    std::uint64_t dead = identity.load(std::memory_order_acquire);
    const std::uint32_t holder = header_->lock.load(std::memory_order_acquire) & lock_word::kHolder;
    if (holder == place + 1 || dead == kFree || !is_dead_word(dead)) continue;
    if (!identity.compare_exchange_strong(dead, self, std::memory_order_acq_rel)) continue;
    const Lock lock(*this, place, kPatience);
    if (!lock) {  // the arena's lock is with a stopped process: the place is for others to clear
      leave(place);
      return kNone;
    }
    clear_place(place);
    rebuild();
    return place;
  }
  return kNone;
}

bool Ledger::arrive(std::uint32_t process, std::uint64_t born_ns) const {
  std::uint64_t mine = unborn(born_ns);
  crash_point();
  return header_->processes[process].identity.compare_exchange_strong(
      mine, this_process(), std::memory_order_acq_rel);
}

void Ledger::renounce(std::uint32_t process, std::uint64_t born_ns) const {
  std::uint64_t mine = unborn(born_ns);
  header_->processes[process].identity.compare_exchange_strong(
      mine, kLeft, std::memory_order_acq_rel);
}

void Ledger::leave(std::uint32_t process) const {
  commit(header_->processes[process].identity, kLeft);
}

bool Ledger::is_dead(std::uint32_t process) const {
  if (process >= kMaxProcesses) return true;
  return is_dead_word(header_->processes[process].identity.load(std::memory_order_acquire));
}

std::vector<std::uint32_t> Ledger::find_dead() const {
  std::vector<std::uint32_t> dead;
  for (std::uint32_t i = 0; i < kMaxProcesses; ++i) {
    const std::uint64_t word = header_->processes[i].identity.load(std::memory_order_acquire);
    if (word != kFree && is_dead_word(word)) dead.push_back(i);
  }
  return dead;
}

// Messages that it had sent by a Descriptor are orphans, what it held it holds no more.
void Ledger::clear_place(std::uint32_t process) const {
  for (std::uint32_t i = 0; i < capacity_; ++i) {
    if (block(i).ticket.load(std::memory_order_relaxed) == process + 1) {
      commit(block(i).orphaned_ns, monotonic_ns());
      commit(block(i).ticket, kOrphanTicket);
    }
    std::atomic<std::uint64_t>& word = block(i).holders[process / 64];
    if (word.load(std::memory_order_relaxed) & bit(process)) commit_bits(word, bit(process), false);
  }
}

std::size_t Ledger::bury(const Lock&, std::span<const std::uint32_t> dead) const {
  for (const std::uint32_t process : dead) {
    std::atomic<std::uint64_t>& identity = header_->processes[process].identity;
    // Another process may have been first, and the place somebody else's by now.
    std::uint64_t word = identity.load(std::memory_order_acquire);
    if (word == kFree || !is_dead_word(word)) continue;
    // First of all a child that is late must not arrive any more.
    if (word != kLeft &&
        !identity.compare_exchange_strong(word, kLeft, std::memory_order_acq_rel)) {
      continue;
    }
    crash_point();
    clear_place(process);
    word = kLeft;  // else one that found no other place has it by now, and clears it again
    identity.compare_exchange_strong(word, kFree, std::memory_order_acq_rel);
    crash_point();
  }
  return rebuild();
}

}  // namespace headrace::shm
