// What follows from the truth, made anew: after a death with the lock, a burial, and whenever it
// was found to contradict itself. Nothing here is an error: what cannot be true is dropped.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "shm/ledger.h"

namespace headrace::shm {

std::size_t Ledger::rebuild() const {
  const std::uint64_t used = header_->used_nbytes;
  // First: what is let go of from now on is the next one's.
  header_->untidy.store(0, std::memory_order_seq_cst);
  try {
    count_messages_under_way();
    rebuild_lists();
  } catch (...) {  // no memory of this process's own
    header_->untidy.store(1, std::memory_order_relaxed);
    throw;
  }
  return used - std::min<std::uint64_t>(used, header_->used_nbytes);
}

void Ledger::count_messages_under_way() const {
  for (std::uint32_t i = 0; i < capacity_; ++i) block(i).links = block(i).in_ring = 0;
  // Blocks do not overlap. Of those that do, written over, all may be as large as the memory: to
  // read each would take hours, with the lock.
  std::uint64_t left = memory_.size();
  const auto fits = [&](std::uint32_t index) {
    const std::optional<Extent> found = find_extent(block(index));
    if (!found || found->nbytes > left) return false;
    left -= found->nbytes;
    return true;
  };
  const auto count = [&](std::uint32_t message) {
    if (fits(message)) count_links(message, read_parts(message, Bad::is_left_out), true);
  };
  for (std::uint32_t i = 0; i < capacity_; ++i) {
    const BlockState state = block(i).state.load(std::memory_order_relaxed);
    if (state == BlockState::taken && block(i).ticket != kNoTicket) count(i);
    if (state != BlockState::channel || !is_held(block(i)) || !fits(i)) continue;
    const std::optional<OpenRing> from = find_open_ring(i);
    if (!from) continue;
    const std::uint64_t head = from->ring->head;
    const std::uint64_t tail = from->ring->tail;
    if (tail - head > from->capacity) continue;
    for (std::uint64_t n = head; n != tail; ++n) {
      const Ticket ticket = from->place(n);
      if (!is_message(ticket.block, ticket.generation)) continue;
      if (std::exchange(block(ticket.block).in_ring, 1) == 0) count(ticket.block);
    }
  }
}

void Ledger::rebuild_lists() const {
  // Of this process's own: a stray write must not change what is being sorted.
  struct Taken {
    Extent extent;
    std::uint32_t index;
  };
  std::vector<Taken> taken;
  taken.reserve(capacity_);
  header_->first = header_->first_free = header_->full_until = kNone;
  header_->used_nbytes = header_->blocks = 0;
  const auto make_free = [this](std::uint32_t i) {
    BlockRecord& record = block(i);
    if (record.state != BlockState::free) commit(record.state, BlockState::free);
    record.next = header_->first_free;
    header_->first_free = i;
  };
  for (std::uint32_t i = capacity_; i-- > 0;) {
    const BlockRecord& record = block(i);
    const std::optional<Extent> extent = find_extent(record);
    if (record.state != BlockState::free && is_alive(record) && extent) {
      taken.push_back({*extent, i});
    } else {
      make_free(i);
    }
  }
  std::ranges::sort(taken, {}, [](const Taken& a) { return a.extent.offset; });
  std::uint32_t previous = kNone;
  std::uint64_t end = data_offset_;
  for (const Taken& each : taken) {
    if (each.extent.offset < end) {
      make_free(each.index);
      continue;
    }
    link_after(previous, each.index);
    previous = each.index;
    end = each.extent.end();
    header_->used_nbytes += each.extent.nbytes;
    ++header_->blocks;
  }
}

}  // namespace headrace::shm
