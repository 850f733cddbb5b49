#include "codec/hashes.h"

#include <libdeflate.h>

#include <algorithm>
#include <bit>

namespace headrace {

std::uint32_t crc32(ConstBytes bytes) { return libdeflate_crc32(0, bytes.data(), bytes.size()); }

std::uint32_t adler32(ConstBytes bytes) {
  // Without bytes libdeflate gives the initial value for a null pointer only.
  return bytes.empty() ? 1 : libdeflate_adler32(1, bytes.data(), bytes.size());
}

std::uint32_t fletcher32(ConstBytes bytes) {
  constexpr std::size_t kMaxWords = 360;  // so many sums fit 32 bits
  std::uint32_t sum1 = 0;
  std::uint32_t sum2 = 0;
  const auto fold = [](std::uint32_t sum) { return (sum & 0xffff) + (sum >> 16); };
  const auto byte_at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  const std::size_t words = bytes.size() / 2;
  for (std::size_t done = 0; done < words;) {
    const std::size_t end = std::min(words, done + kMaxWords);
    for (; done < end; ++done) {
      sum1 += byte_at(2 * done) << 8 | byte_at(2 * done + 1);
      sum2 += sum1;
    }
    sum1 = fold(sum1);
    sum2 = fold(sum2);
  }
  if (bytes.size() % 2 != 0) {
    sum1 += byte_at(bytes.size() - 1) << 8;
    sum2 += sum1;
    sum1 = fold(sum1);
    sum2 = fold(sum2);
  }
  return fold(sum2) << 16 | fold(sum1);
}

// http://burtleburtle.net/bob/c/lookup3.c (public domain), hashlittle().
std::uint32_t jenkins_lookup3(ConstBytes bytes, std::uint32_t initial) {
  std::uint32_t a = 0xdeadbeefu + static_cast<std::uint32_t>(bytes.size()) + initial;
  std::uint32_t b = a;
  std::uint32_t c = a;
  while (bytes.size() > 12) {
    a += load_le<std::uint32_t>(bytes.data());
    b += load_le<std::uint32_t>(bytes.data() + 4);
    c += load_le<std::uint32_t>(bytes.data() + 8);
    a -= c, a ^= std::rotl(c, 4), c += b;
    b -= a, b ^= std::rotl(a, 6), a += c;
    c -= b, c ^= std::rotl(b, 8), b += a;
    a -= c, a ^= std::rotl(c, 16), c += b;
    b -= a, b ^= std::rotl(a, 19), a += c;
    c -= b, c ^= std::rotl(b, 4), b += a;
    bytes = bytes.subspan(12);
  }
  if (bytes.empty()) return c;
  std::byte tail[12] = {};
  std::copy(bytes.begin(), bytes.end(), tail);
  a += load_le<std::uint32_t>(tail);
  b += load_le<std::uint32_t>(tail + 4);
  c += load_le<std::uint32_t>(tail + 8);
  c ^= b, c -= std::rotl(b, 14);
  a ^= c, a -= std::rotl(c, 11);
  b ^= a, b -= std::rotl(a, 25);
  c ^= b, c -= std::rotl(b, 16);
  a ^= c, a -= std::rotl(c, 4);
  b ^= a, b -= std::rotl(a, 14);
  c ^= b, c -= std::rotl(b, 24);
  return c;
}

}  // namespace headrace
