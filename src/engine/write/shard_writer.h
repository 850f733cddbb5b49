#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/mutex.h"
#include "codec/shard_index.h"
#include "engine/layout/array_layout.h"
#include "engine/query/inner_order.h"

namespace headrace {

// A shard on its way to new bytes: inner chunks are put or removed from several threads, each with
// its turn, counted from 0 without a gap in the order of the shard. Whoever is done first, they lie
// in the shard by their turns, so that any number of threads writes the same bytes. Those that
// nobody touches stay as they were stored, at their places in the order.
class ShardWriter {
 public:
  // `before` is the stored shard; nothing when there is none or all of it is replaced. It and the
  // order are borrowed. `room` for this many bytes of inner chunks is made at once.
  ShardWriter(const ShardLevel& level,
              const InnerOrder& order,
              std::optional<ConstBytes> before,
              std::size_t room);

  // The stored bytes of an inner chunk; `corrupt` when the shard's index lies about it.
  std::optional<ConstBytes> before(std::int64_t inner) const;

  // Takes the bytes and leaves a buffer with others.
  void put(std::size_t turn, std::int64_t inner, Buffer& encoded);
  void remove(std::size_t turn, std::int64_t inner);

  // For inner chunks of one size: each is filled in the place of its turn and put without a copy.
  void reserve(std::size_t turns, std::size_t nbytes);
  MutableBytes reserved(std::size_t turn);
  void put_reserved(std::size_t turn, std::int64_t inner);
  void remove_reserved(std::size_t turn, std::int64_t inner);

  // The shard's bytes; false when no inner chunk is left. `corrupt` when the index lies about one
  // that stays.
  bool finish(Buffer& encoded);

 private:
  struct Early {
    std::int64_t inner = 0;
    bool present = false;
    Buffer bytes;
  };
  struct Slot {
    std::int64_t inner = 0;
    bool present = false;
  };

  void take(std::size_t turn, std::int64_t inner, Buffer* encoded);
  void append(std::int64_t inner, std::optional<ConstBytes> bytes);
  void append_untouched(std::int64_t end_place);
  void finish_reserved();

  const ShardLevel& level_;
  const InnerOrder& order_;
  const std::size_t first_;  // where the first inner chunk lies: behind an index at the start
  std::optional<ConstBytes> before_;
  ShardIndex index_before_;

  Mutex mutex_;
  std::map<std::size_t, Early> early_ GUARDED_BY(mutex_);  // done before their turn
  std::vector<Buffer> spare_ GUARDED_BY(mutex_);

  // Under the lock too while inner chunks come; of one thread after that.
  std::size_t turn_ = 0;  // whose bytes come next

  Buffer bytes_;
  ShardIndex index_;
  std::int64_t untouched_from_ = 0;  // inner chunks at places below were put, removed or kept

  std::size_t slot_nbytes_ = 0;
  std::vector<Slot> slots_;
};

// A new shard whose inner chunks lie in memory as they are stored; borrows them.
class PlainShard {
 public:
  explicit PlainShard(const ShardLevel& level);

  // In the order in which they are to lie.
  void put(std::int64_t inner, ConstBytes chunk);
  bool empty() const { return chunks_nbytes_ == 0; }
  // The shard, until the next call.
  std::span<const ConstBytes> finish();

 private:
  const ShardLevel& level_;
  ShardIndex index_;
  std::vector<ConstBytes> parts_;  // the first stands for an index at the start
  std::size_t chunks_nbytes_ = 0;
  Buffer encoded_index_;
};

}  // namespace headrace
