#include "base/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <string>
#include <utility>

#include "base/fork_mutex.h"
#include "base/pages.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kAlignment = 64;
// From here on blocks are mapped and kept. glibc gives the end of its heap back when such a block
// is freed, and takes fresh pages for the next.
constexpr std::size_t kMappedBytes = std::size_t{1} << 20;
// What the cache keeps at most. Its pages are marked MADV_FREE: the kernel takes them when short.
constexpr std::size_t kCacheBytes = std::size_t{256} << 20;
constexpr std::size_t kCacheBlocks = 64;

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

[[noreturn]] void throw_out_of_memory(std::size_t nbytes) {
  throw Error(ErrorCode::out_of_memory, "cannot allocate " + std::to_string(nbytes) + " bytes");
}

// Freed blocks that were mapped, for the next one of about the same size. Measured (Zen 5, 256 MiB,
// memcpy from cache): 1.9 GB/s into fresh 4 KiB pages, 11 into fresh huge pages, 17 into used ones.
class BlockCache {
 public:
  static BlockCache& get() {
    static auto* cache = new BlockCache;  // never destroyed: buffers may outlive statics
    return *cache;
  }

  std::byte* take(std::size_t size) {
    ForkLock lock(mutex_);
    for (std::size_t i = count_; i-- > 0;) {
      if (blocks_[i].size == size) return remove(i).address;
    }
    return nullptr;
  }

  // Takes no memory: destructors give, and when memory is short.
  void give(std::byte* p, std::size_t size) {
    if (size > kCacheBytes) {
      munmap(p, size);
      return;
    }
#ifdef MADV_FREE
    madvise(p, size, MADV_FREE);
#endif
    for (;;) {
      Block dropped;
      {
        ForkLock lock(mutex_);
        if (count_ < kCacheBlocks && held_ + size <= kCacheBytes) {
          blocks_[count_++] = {p, size};
          held_ += size;
          return;
        }
        dropped = remove(0);
      }
      munmap(dropped.address, dropped.size);
    }
  }

 private:
  struct Block {
    std::byte* address = nullptr;
    std::size_t size = 0;
  };

  Block remove(std::size_t i) REQUIRES(mutex_) {
    const Block block = blocks_[i];
    std::move(blocks_.begin() + i + 1, blocks_.begin() + count_, blocks_.begin() + i);
    --count_;
    held_ -= block.size;
    return block;
  }

  ForkMutex mutex_;
  std::array<Block, kCacheBlocks> blocks_ GUARDED_BY(mutex_);  // the first count_, oldest first
  std::size_t count_ GUARDED_BY(mutex_) = 0;
  std::size_t held_ GUARDED_BY(mutex_) = 0;
};

std::chrono::nanoseconds thread_cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

bool is_slow_to_come(std::byte* huge_page) {
  constexpr std::chrono::milliseconds kSlow(2);
  const auto begin = thread_cpu_time();
  *static_cast<volatile std::byte*>(huge_page) = std::byte{0};
  return thread_cpu_time() - begin >= kSlow;
}

// Asks for huge pages, where they are at hand. A hypervisor that takes free memory back (free page
// reporting) gives it again 4 KiB by 4 KiB: a huge page then took 5 to 9 ms (Firecracker, EPYC), in
// place of 0.2 where it was there, and 1 ms in small pages, which come from what was used last. One
// that is slow speaks for those after it, in this block and the next ones. Of large blocks, which
// several threads touch first, only the first page is tried.
void choose_pages(std::byte* block, std::size_t size) {
  constexpr std::size_t kTriedBytes = std::size_t{16} << 20;
  constexpr auto kSmallBytes = std::int64_t{256} << 20;  // until huge pages are tried again
  static std::atomic<std::int64_t> small_left{0};
  if (small_left.load(std::memory_order_relaxed) > 0) {
    small_left.fetch_sub(static_cast<std::int64_t>(size), std::memory_order_relaxed);
    want_small_pages(block, size);
    return;
  }
  if (!want_huge_pages(block, size)) return;
  const std::size_t tried = size <= kTriedBytes ? size : kHugePage;
  for (std::size_t at = 0; at < tried; at += kHugePage) {
    if (!is_slow_to_come(block + at)) continue;
    want_small_pages(block, size);  // what is there stays
    small_left.store(kSmallBytes, std::memory_order_relaxed);
    return;
  }
}

std::byte* map_pages(std::size_t size) {
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw_out_of_memory(size);
  return static_cast<std::byte*>(p);
}

std::byte* map_block(std::size_t size) {
  if (std::byte* p = BlockCache::get().take(size)) return p;
  if (size < kHugePage) return map_pages(size);
  std::byte* const start = map_pages(size + kHugePage);
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  const std::size_t head = round_up(address, kHugePage) - address;
  if (head > 0) munmap(start, head);
  if (kHugePage - head > 0) munmap(start + head + size, kHugePage - head);
  choose_pages(start + head, size);
  return start + head;
}

// Of mapped blocks few sizes, that those kept fit. A huge page may be empty by an eighth.
std::size_t block_size(std::size_t nbytes) {
  if (nbytes > SIZE_MAX / 2) throw_out_of_memory(nbytes);
  if (nbytes < kMappedBytes) return round_up(std::max<std::size_t>(nbytes, 1), kAlignment);
  const std::size_t size = round_up(nbytes, kHugePage / 8);
  return size < kHugePage ? size : round_up(size, kHugePage);
}

// size: as block_size() gives it.
std::byte* allocate(std::size_t size) {
  if (size >= kMappedBytes) return map_block(size);
  void* p = std::aligned_alloc(kAlignment, size);
  if (!p) throw_out_of_memory(size);
  return static_cast<std::byte*>(p);
}

void deallocate(std::byte* p, std::size_t size) {
  if (!p) return;
  if (size >= kMappedBytes) {
    BlockCache::get().give(p, size);
  } else {
    std::free(p);
  }
}

}  // namespace

std::shared_ptr<std::byte> allocate_shared(std::size_t nbytes) {
  const std::size_t size = block_size(nbytes);
  try {
    return {allocate(size), [size](std::byte* p) { deallocate(p, size); }};
  } catch (const std::bad_alloc&) {
    throw_out_of_memory(nbytes);  // of the count of owners: the block itself was freed
  }
}

Buffer::~Buffer() { deallocate(data_, capacity_); }

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      capacity_(std::exchange(other.capacity_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

void Buffer::resize(std::size_t nbytes) {
  if (nbytes > capacity_) {
    reset();
    const std::size_t size = block_size(nbytes);
    data_ = allocate(size);
    capacity_ = size;
  }
  size_ = nbytes;
}

void Buffer::resize_keep(std::size_t nbytes) {
  if (nbytes > capacity_) {
    Buffer larger(std::max(nbytes, capacity_ + capacity_ / 2));
    if (size_ > 0) std::memcpy(larger.data_, data_, size_);
    std::swap(*this, larger);
  }
  size_ = nbytes;
}

void Buffer::append(ConstBytes bytes) {
  const std::size_t old = size_;
  resize_keep(old + bytes.size());
  if (!bytes.empty()) std::memcpy(data_ + old, bytes.data(), bytes.size());
}

void Buffer::assign(ConstBytes bytes) {
  resize(bytes.size());
  if (!bytes.empty()) std::memcpy(data_, bytes.data(), bytes.size());
}

void Buffer::reset() {
  deallocate(std::exchange(data_, nullptr), std::exchange(capacity_, 0));
  size_ = 0;
}

}  // namespace headrace
