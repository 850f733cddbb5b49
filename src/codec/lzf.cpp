// lzf: bytes -> bytes, LibLZF's stream without its file header: HDF5's filter 32000, which h5py
// has. Compatibility: h5py, imagecodecs ("imagecodecs_lzf", the name that VirtualiZarr writes).
// Spec: http://oldhome.schmorp.de/marc/liblzf.html (the comments of lzf_d.c)
// {"id": "imagecodecs_lzf"}

#include "codec/bit_reader.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/decode_only.h"

namespace headrace {
namespace {

// Gives how many bytes came out; `corrupt` when they are more than dst has.
std::size_t decode_lzf(ConstBytes src, MutableBytes dst) {
  std::size_t at = 0;
  std::size_t out = 0;
  const auto next = [&] {
    if (at == src.size()) throw_corrupt("the stream is cut short");
    return std::to_integer<std::size_t>(src[at++]);
  };
  while (at < src.size()) {
    const std::size_t control = next();
    if (control < 32) {
      const std::size_t n = control + 1;
      if (n > src.size() - at) throw_corrupt("the stream is cut short");
      if (n > dst.size() - out) throw_corrupt("more bytes than expected");
      std::memcpy(dst.data() + out, src.data() + at, n);
      at += n;
      out += n;
      continue;
    }
    std::size_t n = control >> 5;
    if (n == 7) n += next();
    n += 2;
    const std::size_t distance = ((control & 31) << 8) + next() + 1;
    if (distance > out) throw_corrupt("a copy from before the chunk");
    if (n > dst.size() - out) throw_corrupt("more bytes than expected");
    for (std::size_t i = 0; i < n; ++i, ++out) dst[out] = dst[out - distance];  // may overlap
  }
  return out;
}

class Lzf final : public DecodeOnly {
 public:
  std::string_view name() const override { return "lzf"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::at_most(n + n / 32 + 1);
  }
  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(dst.size(), decode_lzf(src, dst));
  }
  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    decode_growing(src, max_nbytes, [&](std::size_t bound) {
      dst.resize(bound);
      dst.resize_keep(decode_lzf(src, dst.bytes()));
    });
  }
};

}  // namespace

CodecPtr make_lzf(const CodecSpec& spec, const CodecSite&) {
  CodecConfig config(spec);
  const bool header = config.boolean("header", false);
  config.ignore("level");
  config.finish();
  if (header) throw Error(ErrorCode::unsupported, "codec " + spec.name + ": with a header");
  return std::make_shared<Lzf>();
}

}  // namespace headrace
