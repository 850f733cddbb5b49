#pragma once

// One launch for a batch of entries of mixed sizes: each CTA takes one item of one entry, and
// finds the entry by the number of its first item.

#include "simt/recycling_vector.h"
#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

// On the device; of an `Entry` the search reads only `first`.
template <class Entry>
struct Work {
  const Entry* entries;
  u32 count;

  // For all lanes of a warp at once: the last entry whose first item is at most `item`.
  SIMT_DEVICE const Entry& find(u64 item) const {
    return entries[simt::last_at_or_before(
        count, item, [this](u32 i) { return entries[i].first; })];
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
  const RecyclingVector<Entry>& entries() const { return entries_; }
  Scratch<Entry> upload(Queue& queue) const {
    return Scratch<Entry>::of(queue, entries_.data(), entries_.size());
  }

 private:
  RecyclingVector<Entry> entries_;
  u64 items_ = 0;
};

template <class Entry>
Work<Entry> work_of(const Scratch<Entry>& scratch) {
  return {scratch.data(), static_cast<u32>(scratch.size())};
}

}  // namespace headrace::SIMT_SPACE
