#pragma once

// One launch for a batch of entries of mixed sizes: each block takes one item of one entry, and
// finds the entry by the number of its first item.

#include <vector>

#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// On the device; of an `Entry` the search reads only `first`.
template <class Entry>
struct Work {
  const Entry* entries;
  u32 count;

  // For all lanes of a warp at once: the last entry whose first item is at most `item`.
  SIMT_DEVICE const Entry& find(u64 item) const {
    u32 begin = 0, size = count;
    while (size > 1) {
      const u32 step = (size + simt::kWarp - 1) / simt::kWarp, at = simt::lane_index() * step;
      const u32 votes = simt::ballot(at < size && entries[begin + at].first <= item);
      const u32 skip = (simt::popcount(votes) - 1) * step;
      begin += skip;
      size = size - skip < step ? size - skip : step;
    }
    return entries[begin];
  }
};

template <class Entry>
class WorkList {
 public:
  // Sets entry.first.
  void add(Entry entry, u64 items) {
    entry.first = items_;
    items_ += items;
    entries_.push_back(entry);
  }
  u64 items() const { return items_; }
  const std::vector<Entry>& entries() const { return entries_; }
  Scratch<Entry> upload(Queue& queue) const {
    return Scratch<Entry>::of(queue, entries_.data(), entries_.size());
  }

 private:
  std::vector<Entry> entries_;
  u64 items_ = 0;
};

template <class Entry>
Work<Entry> work_of(const Scratch<Entry>& scratch) {
  return {scratch.data(), static_cast<u32>(scratch.size())};
}

}  // namespace headrace::SIMT_SPACE
