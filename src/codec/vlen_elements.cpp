#include <algorithm>
#include <iterator>
#include <utility>

#include "base/buffer.h"
#include "codec/vlen.h"
#include "headrace/error.h"

namespace headrace {

MutableBytes VlenArena::allocate(std::size_t nbytes) {
  std::shared_ptr<std::byte> block = allocate_shared(nbytes);
  MutexLock lock(mutex_);
  nbytes_ += nbytes;
  return {blocks_.emplace_back(std::move(block)).get(), nbytes};
}

MutableBytes VlenArena::keep(ConstBytes bytes) {
  const MutableBytes kept = allocate(bytes.size());
  std::ranges::copy(bytes, kept.begin());
  return kept;
}

void VlenArena::adopt(VlenArena& other) {
  const TwoMutexLock lock(mutex_, other.mutex_);
  std::ranges::move(other.blocks_, std::back_inserter(blocks_));
  other.blocks_.clear();
  nbytes_ += std::exchange(other.nbytes_, 0);
}

std::size_t VlenArena::nbytes() const {
  MutexLock lock(mutex_);
  return nbytes_;
}

VlenArena& vlen_arena(const DecodeContext& context) {
  if (context.arena) return *context.arena;
  throw Error(ErrorCode::invalid_argument,
              "elements of variable length are decoded by reading their array only");
}

std::span<VlenElement> vlen_elements(MutableBytes chunk) {
  return {reinterpret_cast<VlenElement*>(chunk.data()), chunk.size() / sizeof(VlenElement)};
}

std::span<const VlenElement> vlen_elements(ConstBytes chunk) {
  return {reinterpret_cast<const VlenElement*>(chunk.data()), chunk.size() / sizeof(VlenElement)};
}

bool all_equal(ConstBytes chunk, ConstBytes element) {
  const std::string_view wanted = vlen_elements(element)[0].text();
  return std::ranges::all_of(vlen_elements(chunk),
                             [&](const VlenElement& each) { return each.text() == wanted; });
}

}  // namespace headrace
