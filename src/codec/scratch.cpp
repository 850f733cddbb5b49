#include "codec/scratch.h"

#include <utility>
#include <vector>

namespace headrace {
namespace {

// What a thread keeps at most: larger buffers go back to the allocator, which has a cache of its
// own. Two cover a chain of compressors, four a shard around it.
constexpr std::size_t kMaxKeptBuffers = 4;
constexpr std::size_t kMaxKeptBytes = std::size_t{8} << 20;

std::vector<std::unique_ptr<Buffer>>& kept_buffers() {
  thread_local std::vector<std::unique_ptr<Buffer>> buffers = [] {
    std::vector<std::unique_ptr<Buffer>> reserved;
    reserved.reserve(kMaxKeptBuffers);
    return reserved;
  }();
  return buffers;
}

}  // namespace

Scratch::Scratch() {
  auto& kept = kept_buffers();
  if (kept.empty()) {
    buffer_ = std::make_unique<Buffer>();
  } else {
    buffer_ = std::move(kept.back());
    kept.pop_back();
  }
}

Scratch::~Scratch() {
  if (buffer_->capacity() > kMaxKeptBytes) return;
  auto& kept = kept_buffers();
  if (kept.size() >= kMaxKeptBuffers) return;
  buffer_->clear();
  kept.push_back(std::move(buffer_));
}

}  // namespace headrace
