#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loader/permutation.h"

namespace headrace::loader {

// A chunk of a variable, by its number in C order of the variable's grid.
struct ChunkKey {
  std::size_t variable = 0;
  std::int64_t chunk = 0;
  friend bool operator==(const ChunkKey&, const ChunkKey&) = default;
};

struct ChunkKeyHash {
  std::size_t operator()(const ChunkKey& key) const {
    return mix({key.variable, static_cast<std::uint64_t>(key.chunk)});
  }
};

struct CachedChunk {
  std::shared_ptr<void> memory;  // the chunk in C order; one element of a bad chunk
  std::size_t nbytes = 0;
  std::int64_t next_use = 0;  // position in the order
  bool pinned = false;        // by the batch in the making
  bool bad = false;
  bool under_way = false;  // `memory` is being filled
};

// Decoded chunks, within a limit. As the order is known, the one goes first that is needed last
// (Belady 1966).
class ChunkCache {
 public:
  explicit ChunkCache(std::size_t limit_nbytes) : limit_(limit_nbytes) {}

  std::size_t nbytes() const { return nbytes_; }
  CachedChunk* find(const ChunkKey& key) {
    const auto found = chunks_.find(key);
    return found == chunks_.end() ? nullptr : &found->second;
  }
  CachedChunk& insert(const ChunkKey& key, CachedChunk chunk) {
    nbytes_ += chunk.nbytes;
    return chunks_.emplace(key, std::move(chunk)).first->second;
  }
  void erase(const ChunkKey& key) {
    const auto found = chunks_.find(key);
    if (found == chunks_.end()) return;
    nbytes_ -= found->second.nbytes;
    chunks_.erase(found);
  }
  void unpin() {
    for (auto& [key, chunk] : chunks_) chunk.pinned = false;
  }
  // Another order begins.
  void forget_uses() {
    for (auto& [key, chunk] : chunks_) chunk.next_use = -1;
  }

  // Lets go of chunks that are not pinned and are not needed up to `needed_until` until there is
  // room. `next_use(key)` tells when a chunk is needed from `now` on, and is asked where that is
  // not known. False: there is no room; then nothing has gone.
  template <typename NextUse>
  bool make_room(std::size_t nbytes,
                 std::int64_t now,
                 std::int64_t needed_until,
                 NextUse next_use) {
    if (nbytes_ + nbytes <= limit_) return true;
    std::vector<std::pair<std::int64_t, const ChunkKey*>> candidates;
    std::size_t freed = 0;
    for (auto& [key, chunk] : chunks_) {
      if (chunk.pinned || chunk.under_way) continue;
      if (chunk.next_use < now) chunk.next_use = next_use(key);
      if (chunk.next_use <= needed_until) continue;
      candidates.emplace_back(chunk.next_use, &key);
      freed += chunk.nbytes;
    }
    if (nbytes_ - freed + nbytes > limit_) return false;
    std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
      return a.first > b.first;
    });
    for (const auto& [use, key] : candidates) {
      const auto found = chunks_.find(*key);
      nbytes_ -= found->second.nbytes;
      chunks_.erase(found);
      if (nbytes_ + nbytes <= limit_) break;
    }
    return true;
  }

 private:
  const std::size_t limit_;
  std::size_t nbytes_ = 0;
  std::unordered_map<ChunkKey, CachedChunk, ChunkKeyHash> chunks_;
};

}  // namespace headrace::loader
