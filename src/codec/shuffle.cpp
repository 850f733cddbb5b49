#include "codec/shuffle.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/bytes.h"
#include "codec/shuffle_kernels.h"

namespace headrace {
namespace {

constexpr ShuffleKernels kPortable{"portable", {}, {}, nullptr};

const ShuffleKernels* best_kernels() {
  if (const ShuffleKernels* k = shuffle_kernels_avx2()) return k;
  if (const ShuffleKernels* k = shuffle_kernels_sse2()) return k;
  return &kPortable;
}

std::atomic<const ShuffleKernels*> g_kernels{nullptr};

const ShuffleKernels& kernels() {
  const ShuffleKernels* k = g_kernels.load(std::memory_order_relaxed);
  if (k == nullptr) {
    k = best_kernels();
    g_kernels.store(k, std::memory_order_relaxed);
  }
  return *k;
}

// Index into a kernel table, or 4.
std::size_t kernel_index(std::size_t typesize) {
  switch (typesize) {
    case 2:
      return 0;
    case 4:
      return 1;
    case 8:
      return 2;
    case 16:
      return 3;
    default:
      return 4;
  }
}

// Elements a tile of the loops without a kernel: planes and elements of a tile stay in the L1
// cache.
constexpr std::size_t kTile = 128;

// 8x8 bit matrices, a byte a row, transposed in each 8 bytes.
void transpose_bits(std::byte* data, std::size_t n_words) {
  const auto kernel = kernels().transpose_bits;
  for (std::size_t i = kernel != nullptr ? kernel(data, n_words) : 0; i < n_words; ++i) {
    auto x = load_le<std::uint64_t>(data + 8 * i);
    std::uint64_t t = (x ^ (x >> 7)) & 0x00AA00AA00AA00AAu;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000CCCC0000CCCCu;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000F0F0F0F0u;
    x ^= t ^ (t << 28);
    store_le(data + 8 * i, x);
  }
}

// A tile of elements as byte planes, on its way between bit planes and elements.
class PlaneTile {
 public:
  explicit PlaneTile(std::size_t typesize)
      : n_(std::min<std::size_t>(kBytes / typesize / 64 * 64, 1024)) {
    for (std::size_t j = 0; j < typesize; ++j) planes_[j] = memory_ + j * n_;
  }

  std::size_t n() const { return n_; }  // elements, a multiple of 64
  std::byte* plane(std::size_t j) { return planes_[j]; }
  std::byte* const* planes() { return planes_; }

 private:
  static constexpr std::size_t kMaxTypesize = 255;
  static constexpr std::size_t kBytes = kMaxTypesize * 64;

  std::size_t n_;
  std::byte* planes_[kMaxTypesize];
  alignas(64) std::byte memory_[kBytes];
};

}  // namespace

const char* shuffle_isa() { return kernels().isa; }

void set_shuffle_isa(const char* isa) {
  const std::string_view wanted = isa;
  const ShuffleKernels* k = best_kernels();
  if (wanted == "sse2" && shuffle_kernels_sse2() != nullptr) k = shuffle_kernels_sse2();
  if (wanted == "portable") k = &kPortable;
  g_kernels.store(k, std::memory_order_relaxed);
}

void unshuffle(const std::byte* const* planes,
               std::size_t typesize,
               std::size_t n,
               std::byte* dst) {
  if (typesize == 1) {
    if (n > 0) std::memcpy(dst, planes[0], n);
    return;
  }
  std::size_t done = 0;
  if (const std::size_t k = kernel_index(typesize); k < 4 && kernels().unshuffle[k] != nullptr) {
    done = kernels().unshuffle[k](planes, n, dst);
  }
  for (; done < n; done += std::min(kTile, n - done)) {
    const std::size_t end = std::min(n, done + kTile);
    for (std::size_t j = 0; j < typesize; ++j) {
      const std::byte* plane = planes[j];
      std::byte* out = dst + j;
      for (std::size_t i = done; i < end; ++i) out[i * typesize] = plane[i];
    }
  }
}

void shuffle(const std::byte* src, std::size_t typesize, std::size_t n, std::byte* const* planes) {
  if (typesize == 1) {
    if (n > 0) std::memcpy(planes[0], src, n);
    return;
  }
  std::size_t done = 0;
  if (const std::size_t k = kernel_index(typesize); k < 4 && kernels().shuffle[k] != nullptr) {
    done = kernels().shuffle[k](src, n, planes);
  }
  for (; done < n; done += std::min(kTile, n - done)) {
    const std::size_t end = std::min(n, done + kTile);
    for (std::size_t j = 0; j < typesize; ++j) {
      std::byte* plane = planes[j];
      const std::byte* in = src + j;
      for (std::size_t i = done; i < end; ++i) plane[i] = in[i * typesize];
    }
  }
}

void bit_unshuffle(const std::byte* src,
                   std::size_t typesize,
                   std::size_t n,
                   std::size_t first,
                   std::size_t count,
                   std::byte* dst) {
  const std::size_t row_nbytes = n / 8;
  PlaneTile tile(typesize);
  for (std::size_t done = 0; done < count; done += tile.n()) {
    const std::size_t wanted = std::min(tile.n(), count - done);
    const std::size_t words = (wanted + 7) / 8;
    for (std::size_t j = 0; j < typesize; ++j) {
      const std::byte* rows[8];
      for (std::size_t k = 0; k < 8; ++k) {
        rows[k] = src + (8 * j + k) * row_nbytes + (first + done) / 8;
      }
      unshuffle(rows, 8, words, tile.plane(j));
      transpose_bits(tile.plane(j), words);
    }
    unshuffle(tile.planes(), typesize, wanted, dst + done * typesize);
  }
}

void bit_shuffle(const std::byte* src, std::size_t typesize, std::size_t n, std::byte* dst) {
  const std::size_t row_nbytes = n / 8;
  PlaneTile tile(typesize);
  for (std::size_t done = 0; done < n; done += tile.n()) {
    const std::size_t taken = std::min(tile.n(), n - done);
    shuffle(src + done * typesize, typesize, taken, tile.planes());
    for (std::size_t j = 0; j < typesize; ++j) {
      transpose_bits(tile.plane(j), taken / 8);
      std::byte* rows[8];
      for (std::size_t k = 0; k < 8; ++k) rows[k] = dst + (8 * j + k) * row_nbytes + done / 8;
      shuffle(tile.plane(j), 8, taken / 8, rows);
    }
  }
}

}  // namespace headrace
