#include "engine/shard_writer.h"

#include <algorithm>
#include <cstring>

namespace headrace {

ShardWriter::ShardWriter(const ShardLevel& level, std::optional<ConstBytes> before)
    : level_(level),
      first_(level.index_at_end ? 0 : level.index_nbytes),
      before_(before),
      inner_(static_cast<std::size_t>(level.inner_count)) {
  if (!before_) return;
  if (before_->size() < level.index_nbytes) {
    throw Error(ErrorCode::corrupt,
                "shard of " + std::to_string(before_->size()) +
                    " bytes is shorter than its index, expected " +
                    std::to_string(level.index_nbytes) + " bytes for that");
  }
  const std::size_t at = level.index_at_end ? before_->size() - level.index_nbytes : 0;
  index_before_ = decode_shard_index(
      before_->subspan(at, level.index_nbytes), level.index_chain, before_->size());
}

std::optional<ConstBytes> ShardWriter::before(std::int64_t inner) const {
  if (!before_ || !index_before_.has(inner)) return std::nullopt;
  const auto [offset, nbytes] = index_before_.range(inner);
  return before_->subspan(offset, nbytes);
}

void ShardWriter::put(std::int64_t inner, ConstBytes encoded) {
  Inner& to = inner_[static_cast<std::size_t>(inner)];
  to.touched = true;
  to.bytes.assign(encoded);
}

void ShardWriter::remove(std::int64_t inner) {
  inner_[static_cast<std::size_t>(inner)].touched = true;
}

void ShardWriter::reserve(std::size_t slots, std::size_t nbytes) {
  slot_nbytes_ = nbytes;
  slots_.resize(slots * nbytes + level_.index_nbytes);
}

MutableBytes ShardWriter::reserved(std::size_t slot) {
  return slots_.bytes().subspan(first_ + slot * slot_nbytes_, slot_nbytes_);
}

void ShardWriter::put_reserved(std::int64_t inner, std::size_t slot) {
  Inner& to = inner_[static_cast<std::size_t>(inner)];
  to.touched = true;
  to.slot = slot;
}

ConstBytes ShardWriter::bytes_of_inner(std::int64_t i) const {
  const Inner& inner = inner_[static_cast<std::size_t>(i)];
  if (!inner.touched) return before(i).value_or(ConstBytes{});
  if (inner.slot == kNoSlot) return inner.bytes;
  return slots_.bytes().subspan(first_ + inner.slot * slot_nbytes_, slot_nbytes_);
}

bool ShardWriter::finish(Buffer& encoded) {
  ShardIndex index = ShardIndex::empty(level_.inner_count);
  std::size_t end = first_;
  bool in_place = slot_nbytes_ > 0;
  bool any = false;
  for (std::int64_t i = 0; i < level_.inner_count; ++i) {
    const Inner& inner = inner_[static_cast<std::size_t>(i)];
    const ConstBytes bytes = bytes_of_inner(i);
    if (bytes.empty()) continue;
    any = true;
    in_place &= inner.slot != kNoSlot && first_ + inner.slot * slot_nbytes_ == end;
    index.set(i, end, bytes.size());
    end += bytes.size();
  }
  if (!any) return false;
  Buffer encoded_index;
  encode_shard_index(index, level_.index_chain, encoded_index);
  if (in_place) {
    std::swap(encoded, slots_);  // plain chunks that lie in order already
  } else {
    encoded.resize(end);
    std::byte* to = encoded.data() + first_;
    for (std::int64_t i = 0; i < level_.inner_count; ++i) {
      const ConstBytes bytes = bytes_of_inner(i);
      if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
      to += bytes.size();
    }
  }
  const std::size_t at = level_.index_at_end ? end : 0;
  if (level_.index_at_end) end += level_.index_nbytes;
  encoded.resize_keep(end);
  std::memcpy(encoded.data() + at, encoded_index.data(), encoded_index.size());
  return true;
}

}  // namespace headrace
