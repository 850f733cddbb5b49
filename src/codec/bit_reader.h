#pragma once

// Numbers of any width, the most significant bit first, as HDF5, TIFF and GRIB pack them.

#include <concepts>
#include <cstdint>
#include <limits>

#include "base/bytes.h"
#include "codec/sizes.h"

namespace headrace {

template <std::unsigned_integral T>
T load_be(const std::byte* p) {
  return byteswap(load_le<T>(p));
}

// All bits below `width`, which may be 64.
constexpr std::uint64_t low_bits(unsigned width) {
  return width >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
}

class BitReader {
 public:
  explicit BitReader(ConstBytes src) : src_(src) {}

  // At most 64 bits; `corrupt` where the bytes end before.
  std::uint64_t read(unsigned width) {
    if (width > left()) throw_corrupt("the packed numbers are cut short");
    if (width == 0) return 0;
    const auto byte = static_cast<std::size_t>(bit_ / 8);
    const auto used = static_cast<unsigned>(bit_ % 8);
    if (src_.size() - byte >= 8 && used + width <= 64) {
      bit_ += width;
      return load_be<std::uint64_t>(src_.data() + byte) << used >> (64 - width);
    }
    return read_slowly(width);
  }

  std::uint64_t left() const { return 8 * std::uint64_t{src_.size()} - bit_; }
  void to_next_byte() { bit_ = (bit_ + 7) / 8 * 8; }

 private:
  std::uint64_t read_slowly(unsigned width) {
    std::uint64_t v = 0;
    while (width > 0) {
      const auto used = static_cast<unsigned>(bit_ % 8);
      const unsigned take = width < 8 - used ? width : 8 - used;
      const auto byte = std::to_integer<unsigned>(src_[static_cast<std::size_t>(bit_ / 8)]);
      v = (v << take) | ((byte >> (8 - used - take)) & ((1U << take) - 1));
      bit_ += take;
      width -= take;
    }
    return v;
  }

  ConstBytes src_;
  std::uint64_t bit_ = 0;
};

}  // namespace headrace
