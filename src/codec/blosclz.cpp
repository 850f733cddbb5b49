#include "codec/blosclz.h"

#include <cstring>

namespace headrace {
namespace {

// A control byte below 32 starts a run of that many literals and one more. Any other starts a
// match: 3 bits of length, 5 high bits of distance; then more length (while 255), 8 low bits of
// distance, and 16 bits of distance more when all 13 are set. The first byte is always literals.
constexpr std::size_t kLongDistance = 8191;

void copy_match(std::byte* dst, std::size_t distance, std::size_t n) {
  const std::byte* src = dst - distance;
  if (distance == 1) {
    std::memset(dst, std::to_integer<int>(*src), n);
  } else if (distance >= 8) {
    for (; n >= 8; n -= 8, src += 8, dst += 8) std::memcpy(dst, src, 8);
    for (; n > 0; --n) *dst++ = *src++;
  } else {
    for (; n > 0; --n) *dst++ = *src++;
  }
}

}  // namespace

std::size_t blosclz_decode(ConstBytes src, MutableBytes dst) {
  const std::byte* in = src.data();
  const std::byte* const in_end = in + src.size();
  std::byte* out = dst.data();
  std::byte* const out_end = out + dst.size();
  if (src.empty()) return 0;

  auto control = std::to_integer<std::size_t>(*in++) & 31;
  for (;;) {
    if (control < 32) {
      const std::size_t n = control + 1;
      if (n > static_cast<std::size_t>(in_end - in)) return 0;
      if (n > static_cast<std::size_t>(out_end - out)) return 0;
      std::memcpy(out, in, n);
      in += n;
      out += n;
    } else {
      std::size_t n = (control >> 5) + 2;
      if (n == 7 + 2) {
        std::size_t more = 0;
        do {
          if (in == in_end) return 0;
          more = std::to_integer<std::size_t>(*in++);
          n += more;
        } while (more == 255);
      }
      if (in == in_end) return 0;
      const std::size_t low = std::to_integer<std::size_t>(*in++);
      std::size_t distance = ((control & 31) << 8) + low + 1;
      if (distance == kLongDistance + 1) {
        if (in_end - in < 2) return 0;
        distance +=
            (std::to_integer<std::size_t>(in[0]) << 8) + std::to_integer<std::size_t>(in[1]);
        in += 2;
      }
      if (distance > static_cast<std::size_t>(out - dst.data())) return 0;
      if (n > static_cast<std::size_t>(out_end - out)) return 0;
      copy_match(out, distance, n);
      out += n;
    }
    if (in == in_end) return static_cast<std::size_t>(out - dst.data());
    control = std::to_integer<std::size_t>(*in++);
  }
}

}  // namespace headrace
