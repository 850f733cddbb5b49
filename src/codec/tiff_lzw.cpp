// imagecodecs_lzw: bytes -> bytes, TIFF's compression 5: LZW with codes of 9 to 12 bits, the most
// significant bit first.
// Compatibility: TIFF 6.0 as libtiff and imagecodecs write it; not what was written before 1991,
// with the bits of a code the other way round.
// Spec: TIFF 6.0, section 13
// {"id": "imagecodecs_lzw"}

#include <array>

#include "codec/bit_reader.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/decode_only.h"

namespace headrace {
namespace {

constexpr unsigned kClear = 256, kEnd = 257, kFirst = 258;
constexpr unsigned kMinWidth = 9, kMaxWidth = 12;

// A string of the table lies where it came out, followed by the byte that made it a new one.
struct String {
  std::size_t begin = 0;
  std::size_t size = 0;
};

// Gives how many bytes came out; `corrupt` when they are more than dst has.
std::size_t decode_lzw(ConstBytes src, MutableBytes dst) {
  if (src.size() >= 2 && src[0] == std::byte{0} && (src[1] & std::byte{1}) != std::byte{0}) {
    throw Error(ErrorCode::unsupported, "LZW as it was before TIFF 6.0");
  }
  std::array<String, std::size_t{1} << kMaxWidth> table;
  BitReader bits(src);
  std::size_t out = 0;
  unsigned next = kFirst;
  unsigned width = kMinWidth;
  String last;
  while (bits.left() >= width) {
    const auto code = static_cast<unsigned>(bits.read(width));
    if (code == kEnd) break;
    if (code == kClear) {
      next = kFirst;
      width = kMinWidth;
      last = {};
      continue;
    }
    if (last.size > 0 && next < table.size()) table[next++] = {last.begin, last.size + 1};
    if (code >= next) throw_corrupt("a code that is not in the table");
    const std::size_t n = code < kClear ? 1 : table[code].size;
    if (n > dst.size() - out) throw_corrupt("more bytes than expected");
    if (code < kClear) {
      dst[out] = static_cast<std::byte>(code);
    } else {
      // The string that was just made ends with the first byte of this one.
      const std::byte* const from = dst.data() + table[code].begin;
      for (std::size_t i = 0; i < n; ++i) dst[out + i] = from[i];
    }
    last = {out, n};
    out += n;
    // The encoder is one string ahead, and makes its codes wider one early besides.
    if (next + 2 > (1U << width) && width < kMaxWidth) ++width;
  }
  return out;
}

class Lzw final : public DecodeOnly {
 public:
  std::string_view name() const override { return "imagecodecs_lzw"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::at_most(n + n / 2 + 8);  // at the worst 12 bits a byte
  }
  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(dst.size(), decode_lzw(src, dst));
  }
  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    decode_growing(src, max_nbytes, [&](std::size_t bound) {
      dst.resize(bound);
      dst.resize_keep(decode_lzw(src, dst.bytes()));
    });
  }
};

}  // namespace

CodecPtr make_tiff_lzw(const CodecSpec& spec, const CodecSite&) {
  CodecConfig(spec).finish();
  return std::make_shared<Lzw>();
}

}  // namespace headrace
