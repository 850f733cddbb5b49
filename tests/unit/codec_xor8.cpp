// xor8: bytes -> bytes, each byte combined with a key.
// Compatibility: here it says whose bytes are read, and what of theirs is not.
// Spec: here is the link to it.
// {"name": "xor8", "configuration": {"key": 90}}

#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

class Xor8 final : public Codec {
 public:
  explicit Xor8(std::byte key) : key_(key) {}

  CodecKind kind() const override { return CodecKind::bytes_to_bytes; }
  std::string_view name() const override { return "xor8"; }
  std::string_view implementation() const override { return "headrace"; }
  // The size does not depend on the bytes. A compressor says at_most.
  EncodedNbytes encoded_nbytes(std::size_t n) const override { return EncodedNbytes::exactly(n); }
  // src may be dst: bytes are read and written one by one.
  Transform transform() const override { return Transform::in_place; }

  // src is hostile; dst has the size that must come out, and every decode checks it.
  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(dst.size(), src.size());
    for (std::size_t i = 0; i < src.size(); ++i) dst[i] = src[i] ^ key_;
  }
  // Behind a compressor nobody knows the size before.
  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    resize_decoded(dst, src.size(), max_nbytes);
    decode(src, dst.bytes(), {});
  }
  void encode(ConstBytes src, Buffer& dst) const override {
    dst.resize(src.size());
    for (std::size_t i = 0; i < src.size(); ++i) dst.data()[i] = src[i] ^ key_;
  }

 private:
  const std::byte key_;
};

}  // namespace

CodecPtr make_xor8(const CodecSpec& spec, const CodecSite&) {
  CodecConfig config(spec);
  const auto key = static_cast<std::byte>(config.integer("key", 0, 255));
  config.finish();  // fields that nobody asked for are an error
  return std::make_shared<Xor8>(key);
}

}  // namespace headrace
