#pragma once

// Chunks of variable-length elements are VlenElements, fixed-size items like any other to whatever
// moves elements; the bytes they point at lie in an arena, which decoders are given by their
// DecodeContext.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "codec/codec.h"
#include "headrace/dtype.h"

namespace headrace {

// Keeps the bytes of elements. Any thread may use it.
class VlenArena {
 public:
  // Uninitialised memory that lives as long as the arena.
  MutableBytes allocate(std::size_t nbytes);
  // A copy that does.
  MutableBytes keep(ConstBytes bytes);
  // What `other` keeps, which nobody uses any more.
  void adopt(VlenArena& other);
  std::size_t nbytes() const;

 private:
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<std::byte>> blocks_ GUARDED_BY(mutex_);
  std::size_t nbytes_ GUARDED_BY(mutex_) = 0;
};

// What codecs behind elements of variable length may be given at most: their size has no bound.
inline constexpr std::size_t kAnyNbytes = std::size_t{1} << 48;

// The arena that a decoder of such elements cannot do without.
VlenArena& vlen_arena(const DecodeContext& context);

std::span<VlenElement> vlen_elements(MutableBytes chunk);
std::span<const VlenElement> vlen_elements(ConstBytes chunk);

inline VlenElement vlen_element(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Whether each element of a chunk has the same bytes as `element`, a VlenElement.
bool all_equal(ConstBytes chunk, ConstBytes element);

}  // namespace headrace
