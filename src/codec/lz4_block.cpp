#include "codec/lz4_block.h"

#include <algorithm>

namespace headrace {
namespace {

// A sequence: a token of two lengths, literals, 16 bits of distance, a match. A length of 15 goes
// on in bytes, up to the first that is not 255. The last sequence ends with its literals.
constexpr std::size_t kLongLength = 15;
constexpr std::size_t kMinMatch = 4;
// Copies may read and write this far beyond their end.
constexpr std::size_t kSlack = 32;
// What a sequence without more lengths needs, copied so.
constexpr std::size_t kFastIn = 1 + kSlack + 2;
constexpr std::size_t kFastOut = kLongLength + kLongLength + kMinMatch + kSlack;

void copy_8(std::byte* dst, const std::byte* src) { std::memcpy(dst, src, 8); }
void copy_16(std::byte* dst, const std::byte* src) { std::memcpy(dst, src, 16); }
void copy_fast(std::byte* dst, const std::byte* src, std::size_t n) {
  for (std::byte* const end = dst + n; dst < end; dst += 32, src += 32) {
    copy_16(dst, src);
    copy_16(dst + 16, src + 16);
  }
}

// The rest of a length; false when the block ends within it.
bool read_length(const std::byte*& in, const std::byte* in_end, std::size_t& length) {
  std::size_t more = 0;
  do {
    if (in == in_end) return false;
    more = std::to_integer<std::size_t>(*in++);
    length += more;
  } while (more == 255);
  return true;
}

void copy_match_fast(std::byte* out, std::size_t distance, std::size_t n) {
  const std::byte* src = out - distance;
  std::byte* const end = out + n;
  if (distance >= 16) {
    copy_fast(out, src, n);
  } else if (distance >= 8) {
    for (; out < end; out += 8, src += 8) copy_8(out, src);
  } else {
    // 8 bytes of the repeating pattern come again at the largest multiple of the distance in 8.
    static constexpr std::uint64_t kRepeat[] = {0,
                                                0x0101010101010101,
                                                0x0001000100010001,
                                                0x0001000001000001,
                                                0x0000000100000001,
                                                0x0000010000000001,
                                                0x0001000000000001,
                                                0x0100000000000001};
    static constexpr std::uint8_t kStep[] = {0, 8, 8, 6, 8, 5, 6, 7};
    const std::uint64_t unit = load_le<std::uint64_t>(src) & ((1ull << 8 * distance) - 1);
    const std::uint64_t pattern = unit * kRepeat[distance];
    const std::size_t step = kStep[distance];
    store_le(out, pattern);
    store_le(out + step, pattern);
    for (out += 2 * step; out < end; out += step) store_le(out, pattern);
  }
}

// Writes nothing beyond out + n.
void copy_match(std::byte* out, std::size_t distance, std::size_t n) {
  const std::byte* const src = out - distance;
  while (n > 0) {
    const std::size_t step = std::min(n, distance);
    std::memcpy(out, src, step);
    out += step;
    n -= step;
    distance += step;  // what was copied repeats the pattern
  }
}

template <bool kPrefix>
bool decode(ConstBytes src, MutableBytes dst) {
  const std::byte* in = src.data();
  const std::byte* const in_end = in + src.size();
  std::byte* const begin = dst.data();
  std::byte* out = begin;
  std::byte* const out_end = out + dst.size();
  const auto in_left = [&] { return static_cast<std::size_t>(in_end - in); };
  const auto out_left = [&] { return static_cast<std::size_t>(out_end - out); };

  const std::byte* const fast_in_end = in_end - std::min(src.size(), kFastIn);
  std::byte* const fast_out_end = out_end - std::min(dst.size(), kFastOut);
  for (;;) {
    while (in < fast_in_end && out < fast_out_end) {
      const std::byte* const sequence = in;
      const auto token = std::to_integer<std::size_t>(*in++);
      std::size_t n = token >> 4;
      std::byte* to = out;
      if (n < kLongLength) {
        copy_16(to, in);
      } else {
        if (!read_length(in, in_end, n)) return false;
        if (n > in_left() || in_left() - n < kFastIn || n > out_left() ||
            out_left() - n < kFastOut) {
          in = sequence;
          break;
        }
        copy_fast(to, in, n);
      }
      in += n;
      to += n;
      const std::size_t distance = load_le<std::uint16_t>(in);
      in += 2;
      // Distance 0 wraps around.
      if (distance - 1 >= static_cast<std::size_t>(to - begin)) return false;
      n = (token & 15) + kMinMatch;
      if (n < kLongLength + kMinMatch && distance >= 8) {
        copy_8(to, to - distance);
        copy_8(to + 8, to + 8 - distance);
        std::memcpy(to + 16, to + 16 - distance, 2);
      } else {
        if (n == kLongLength + kMinMatch) {
          if (!read_length(in, in_end, n)) return false;
          const auto left = static_cast<std::size_t>(out_end - to);
          if (left < kSlack || n > left - kSlack) {
            in = sequence;
            break;
          }
        }
        copy_match_fast(to, distance, n);
      }
      out = to + n;
    }
    if (in == in_end) return false;
    const auto token = std::to_integer<std::size_t>(*in++);
    std::size_t n = token >> 4;
    if (n == kLongLength && !read_length(in, in_end, n)) return false;
    if (kPrefix) n = std::min(n, out_left());
    if (n > in_left() || n > out_left()) return false;
    if (n > 0) std::memcpy(out, in, n);
    in += n;
    out += n;
    if (kPrefix && out == out_end) return true;
    if (in == in_end) return out == out_end;
    if (in_left() < 2) return false;
    const std::size_t distance = load_le<std::uint16_t>(in);
    in += 2;
    if (distance - 1 >= static_cast<std::size_t>(out - begin)) return false;
    n = token & 15;
    if (n == kLongLength && !read_length(in, in_end, n)) return false;
    n += kMinMatch;
    if (kPrefix) n = std::min(n, out_left());
    if (n > out_left()) return false;
    copy_match(out, distance, n);
    out += n;
    if (kPrefix && out == out_end) return true;
  }
}

}  // namespace

bool lz4_decode_block(ConstBytes src, MutableBytes dst) { return decode<false>(src, dst); }

bool lz4_decode_prefix(ConstBytes src, MutableBytes dst) { return decode<true>(src, dst); }

}  // namespace headrace
