#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "engine/array_state.h"

namespace headrace {

// A shard on its way to new bytes: inner chunks are put or removed from several threads, one thread
// an inner chunk; the others stay as they were stored.
class ShardWriter {
 public:
  // `before` is the stored shard, borrowed; nothing when there is none or all of it is replaced.
  ShardWriter(const ShardLevel& level, std::optional<ConstBytes> before);

  // The stored bytes of an inner chunk; `corrupt` when the shard's index lies about it.
  std::optional<ConstBytes> before(std::int64_t inner) const;

  void put(std::int64_t inner, ConstBytes encoded);  // copied
  void remove(std::int64_t inner);

  // Memory for `slots` inner chunks of `nbytes` each, filled in place and put without a copy.
  void reserve(std::size_t slots, std::size_t nbytes);
  MutableBytes reserved(std::size_t slot);
  void put_reserved(std::int64_t inner, std::size_t slot);

  // The shard's bytes; false when no inner chunk is left. `corrupt` when the index lies about one
  // that stays.
  bool finish(Buffer& encoded);

 private:
  static constexpr std::size_t kNoSlot = static_cast<std::size_t>(-1);

  struct Inner {
    bool touched = false;
    std::size_t slot = kNoSlot;
    Buffer bytes;
  };
  ConstBytes bytes_of_inner(std::int64_t inner) const;

  const ShardLevel& level_;
  const std::size_t first_;  // where the first inner chunk lies: behind an index at the start
  std::optional<ConstBytes> before_;
  ShardIndex index_before_;
  std::vector<Inner> inner_;
  // Slots lie where the first inner chunk does, with room for the index, so that a shard made of
  // slots alone is finished in place.
  Buffer slots_;
  std::size_t slot_nbytes_ = 0;
};

}  // namespace headrace
