// imagecodecs_packbits: bytes -> bytes, TIFF's compression 32773: runs of bytes, Macintosh's
// PackBits. Compatibility: libtiff, imagecodecs Spec: TIFF 6.0, section 9
// {"id": "imagecodecs_packbits"}

#include "codec/bit_reader.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/decode_only.h"

namespace headrace {
namespace {

// Gives how many bytes came out; `corrupt` when they are more than dst has.
std::size_t decode_runs(ConstBytes src, MutableBytes dst) {
  constexpr std::size_t kNothing = 128;
  std::size_t out = 0;
  for (std::size_t at = 0; at < src.size();) {
    const auto control = std::to_integer<std::size_t>(src[at++]);
    if (control == kNothing) continue;
    const bool literal = control < kNothing;
    const std::size_t n = literal ? control + 1 : 257 - control;
    const std::size_t used = literal ? n : 1;
    if (used > src.size() - at) throw_corrupt("the stream is cut short");
    if (n > dst.size() - out) throw_corrupt("more bytes than expected");
    if (literal) {
      std::memcpy(dst.data() + out, src.data() + at, n);
    } else {
      std::memset(dst.data() + out, std::to_integer<int>(src[at]), n);
    }
    at += used;
    out += n;
  }
  return out;
}

class Runs final : public DecodeOnly {
 public:
  std::string_view name() const override { return "imagecodecs_packbits"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::at_most(2 * n + 8);  // each row begins a run of its own
  }
  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(dst.size(), decode_runs(src, dst));
  }
  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    decode_growing(src, max_nbytes, [&](std::size_t bound) {
      dst.resize(bound);
      dst.resize_keep(decode_runs(src, dst.bytes()));
    });
  }
};

}  // namespace

CodecPtr make_tiff_packbits(const CodecSpec& spec, const CodecSite&) {
  CodecConfig config(spec);
  config.ignore("axis");
  config.finish();
  return std::make_shared<Runs>();
}

}  // namespace headrace
