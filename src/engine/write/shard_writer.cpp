#include "engine/write/shard_writer.h"

#include <algorithm>
#include <cstring>

namespace headrace {

ShardWriter::ShardWriter(const ShardLevel& level,
                         const InnerOrder& order,
                         std::optional<ConstBytes> before,
                         std::size_t room)
    : level_(level),
      order_(order),
      first_(level.index_at_end ? 0 : level.index_nbytes),
      before_(before),
      index_(ShardIndex::empty(level.inner_count)) {
  if (before_) {
    if (before_->size() < level.index_nbytes) {
      throw Error(ErrorCode::corrupt,
                  "shard of " + std::to_string(before_->size()) +
                      " bytes is shorter than its index, expected " +
                      std::to_string(level.index_nbytes) + " bytes for that");
    }
    const std::size_t at = level.index_at_end ? before_->size() - level.index_nbytes : 0;
    index_before_ = decode_shard_index(
        before_->subspan(at, level.index_nbytes), level.index_chain, before_->size());
    room += before_->size();
  }
  bytes_.resize(room + level.index_nbytes);
  bytes_.resize_keep(first_);
}

std::optional<ConstBytes> ShardWriter::before(std::int64_t inner) const {
  if (!before_ || !index_before_.has(inner)) return std::nullopt;
  const auto [offset, nbytes] = index_before_.range(inner);
  return before_->subspan(offset, nbytes);
}

void ShardWriter::put(std::size_t turn, std::int64_t inner, Buffer& encoded) {
  take(turn, inner, &encoded);
}

void ShardWriter::remove(std::size_t turn, std::int64_t inner) { take(turn, inner, nullptr); }

void ShardWriter::take(std::size_t turn, std::int64_t inner, Buffer* encoded) {
  MutexLock lock(mutex_);
  if (turn != turn_) {
    Early& early = early_[turn];
    early.inner = inner;
    early.present = encoded != nullptr;
    if (!early.present) return;
    if (!spare_.empty()) {
      early.bytes = std::move(spare_.back());
      spare_.pop_back();
    }
    std::swap(early.bytes, *encoded);
    return;
  }
  append(inner, encoded ? std::optional<ConstBytes>(encoded->bytes()) : std::nullopt);
  for (auto next = early_.begin(); next != early_.end() && next->first == turn_;
       next = early_.erase(next)) {
    Early& early = next->second;
    append(early.inner,
           early.present ? std::optional<ConstBytes>(early.bytes.bytes()) : std::nullopt);
    if (early.present) spare_.push_back(std::move(early.bytes));
  }
}

void ShardWriter::append(std::int64_t inner, std::optional<ConstBytes> bytes) {
  ++turn_;
  const std::int64_t place = order_.place(inner);
  append_untouched(place);
  untouched_from_ = std::max(untouched_from_, place + 1);
  if (!bytes) return;
  index_.set(inner, bytes_.size(), bytes->size());
  bytes_.append(*bytes);
}

void ShardWriter::append_untouched(std::int64_t end_place) {
  for (; untouched_from_ < end_place; ++untouched_from_) {
    const std::int64_t inner = order_.inner(untouched_from_);
    const auto kept = before(inner);
    if (!kept) continue;
    index_.set(inner, bytes_.size(), kept->size());
    bytes_.append(*kept);
  }
}

// The slots lie in the shard's own bytes: where all of them are kept, it is finished in place.
void ShardWriter::reserve(std::size_t turns, std::size_t nbytes) {
  slot_nbytes_ = nbytes;
  slots_.resize(turns);
  bytes_.resize_keep(first_ + turns * nbytes);
}

MutableBytes ShardWriter::reserved(std::size_t turn) {
  return bytes_.bytes().subspan(first_ + turn * slot_nbytes_, slot_nbytes_);
}

void ShardWriter::put_reserved(std::size_t turn, std::int64_t inner) {
  slots_[turn] = {inner, true};
}

void ShardWriter::remove_reserved(std::size_t turn, std::int64_t inner) {
  slots_[turn] = {inner, false};
}

void ShardWriter::finish_reserved() {
  Buffer slots;
  const bool none_removed = std::ranges::all_of(slots_, &Slot::present);
  const bool in_place =
      none_removed && (!before_ || slots_.size() == static_cast<std::size_t>(level_.inner_count));
  if (!in_place) {
    std::swap(slots, bytes_);
    bytes_.resize(first_);
  }
  for (std::size_t turn = 0; turn < slots_.size(); ++turn) {
    const std::size_t at = first_ + turn * slot_nbytes_;
    const Slot& slot = slots_[turn];
    if (in_place) {
      index_.set(slot.inner, at, slot_nbytes_);
    } else {
      append(slot.inner,
             slot.present ? std::optional<ConstBytes>(slots.bytes().subspan(at, slot_nbytes_))
                          : std::nullopt);
    }
  }
  if (in_place) untouched_from_ = level_.inner_count;
}

bool ShardWriter::finish(Buffer& encoded) {
  if (!slots_.empty()) finish_reserved();
  append_untouched(level_.inner_count);
  if (bytes_.size() == first_) return false;
  Buffer index;
  encode_shard_index(index_, level_.index_chain, index);
  if (level_.index_at_end) {
    bytes_.append(index);
  } else {
    std::memcpy(bytes_.data(), index.data(), index.size());
  }
  std::swap(encoded, bytes_);
  return true;
}

PlainShard::PlainShard(const ShardLevel& level)
    : level_(level), index_(ShardIndex::empty(level.inner_count)), parts_(1) {}

void PlainShard::put(std::int64_t inner, ConstBytes chunk) {
  const std::size_t first = level_.index_at_end ? 0 : level_.index_nbytes;
  index_.set(inner, first + chunks_nbytes_, chunk.size());
  chunks_nbytes_ += chunk.size();
  ConstBytes& before = parts_.back();
  if (!before.empty() && before.data() + before.size() == chunk.data()) {
    before = {before.data(), before.size() + chunk.size()};
  } else {
    parts_.push_back(chunk);
  }
}

std::span<const ConstBytes> PlainShard::finish() {
  encode_shard_index(index_, level_.index_chain, encoded_index_);
  if (level_.index_at_end) {
    parts_.push_back(encoded_index_.bytes());
  } else {
    parts_.front() = encoded_index_.bytes();
  }
  return parts_;
}

}  // namespace headrace
