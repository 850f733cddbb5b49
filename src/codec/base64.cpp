// base64: bytes -> bytes, as text of 64 letters (RFC 4648, the standard alphabet, with padding).
// Compatibility: numcodecs, whose decoder, Python's, passes over all other characters and ends with
// the padding.
// Spec: https://numcodecs.readthedocs.io/en/stable/other/base64.html
// {"name": "numcodecs.base64"}

#include "base/base64.h"

#include <array>

#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

constexpr std::uint8_t kNoDigit = 64;

constexpr std::array<std::uint8_t, 256> digit_values() {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<std::uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i)
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::uint8_t>(i);
  return values;
}

class Base64 final : public Codec {
 public:
  CodecKind kind() const override { return CodecKind::bytes_to_bytes; }
  std::string_view name() const override { return "base64"; }
  std::string_view implementation() const override { return "headrace"; }
  // Not fixed: line breaks may stand between.
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::at_most(n / 3 * 4 + n / 9 + 8);
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    std::size_t n = 0;
    each_byte(src, [&](std::byte b) {
      if (n < dst.size()) dst[n] = b;
      ++n;
    });
    check_decoded_size(dst.size(), n);
  }

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    std::size_t n = 0;
    dst.resize(std::min(max_nbytes, src.size() / 4 * 3 + 3));
    each_byte(src, [&](std::byte b) {
      if (n < dst.size()) dst.data()[n] = b;
      ++n;
    });
    if (n > dst.size()) check_decoded_size(max_nbytes, n);
    dst.resize_keep(n);
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    dst.assign(bytes_of(base64_encode(src)));
  }

 private:
  template <typename Take>
  static void each_byte(ConstBytes src, Take take) {
    static constexpr auto kValues = digit_values();
    unsigned digits = 0;  // of the group of four
    unsigned padding = 0;
    std::uint8_t left = 0;
    for (const std::byte b : src) {
      if (b == std::byte{'='}) {
        if (digits >= 2 && digits + ++padding >= 4) return;
        continue;
      }
      const std::uint8_t v = kValues[std::to_integer<std::size_t>(b)];
      if (v == kNoDigit) continue;
      padding = 0;
      if (digits > 0) take(static_cast<std::byte>(left << (2 * digits) | v >> (6 - 2 * digits)));
      left = v;
      digits = (digits + 1) % 4;
    }
    if (digits != 0) throw_corrupt("the padding of base64 is missing");
  }
};

}  // namespace

CodecPtr make_base64(const CodecSpec& spec, const CodecSite&) {
  CodecConfig(spec).finish();
  return std::make_shared<Base64>();
}

}  // namespace headrace
