// What follows from the truth, made anew: after a death with the lock, a burial, and whenever it
// was found to contradict itself. Nothing here is an error: what cannot be true is dropped.

#include <algorithm>
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
  for (std::uint32_t i = 0; i < capacity_; ++i) {
    const BlockState state = block(i).state.load(std::memory_order_relaxed);
    if (state == BlockState::taken && block(i).ticket != kNoTicket) {
      count_links(i, read_parts(i, Bad::is_left_out), true);
    }
    if (state != BlockState::channel || !is_held(block(i))) continue;
    const std::optional<OpenRing> from = find_open_ring(i);
    if (!from) continue;
    const std::uint64_t head = from->ring->head;
    const std::uint64_t tail = from->ring->tail;
    if (tail - head > from->capacity) continue;
    for (std::uint64_t n = head; n != tail; ++n) {
      const Ticket ticket = from->place(n);
      if (!is_message(ticket.block, ticket.generation)) continue;
      block(ticket.block).in_ring = 1;
      count_links(ticket.block, read_parts(ticket.block, Bad::is_left_out), true);
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
