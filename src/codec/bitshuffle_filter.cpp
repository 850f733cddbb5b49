// bitshuffle: bytes -> bytes, the bits of the elements of a block by significance. Blocks have 8
// KiB unless `blocksize` says how many elements; the last one is shorter, and what is left of it
// over a multiple of 8 elements stays as it is. Compatibility: imagecodecs'
// "imagecodecs_bitshuffle", and so the bitshuffle library. Spec:
// https://github.com/kiyo-masui/bitshuffle
// {"name": "numcodecs.imagecodecs_bitshuffle", "configuration": {"itemsize": 4, "blocksize": 0}}

#include <algorithm>
#include <cstring>

#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/shuffle.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

std::size_t default_block_elements(std::size_t itemsize) {
  constexpr std::size_t kTargetNbytes = 8192;
  constexpr std::size_t kMinElements = 128;
  return std::max(kTargetNbytes / itemsize / 8 * 8, kMinElements);
}

class BitshuffleFilter final : public Codec {
 public:
  BitshuffleFilter(std::size_t itemsize, std::size_t block_elements)
      : itemsize_(itemsize), block_elements_(block_elements) {}

  CodecKind kind() const override { return CodecKind::bytes_to_bytes; }
  std::string_view name() const override { return "bitshuffle"; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override { return EncodedNbytes::exactly(n); }

  std::optional<DeviceStage> device_stage() const override {
    return DeviceStage{
        DeviceStage::Kind::bit_unshuffle, static_cast<std::uint32_t>(itemsize_), block_elements_};
  }

  ChunkSpec encoded_spec(const ChunkSpec& in) const override {
    return {DType::uint8, {static_cast<std::int64_t>(in.nbytes())}, {}};
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(dst.size(), src.size());
    for_each_block(src, dst.data(), [&](const std::byte* from, std::byte* to, std::size_t n) {
      bit_unshuffle(from, itemsize_, n, 0, n, to);
    });
  }

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    resize_decoded(dst, src.size(), max_nbytes);
    decode(src, dst.bytes(), {});
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    dst.resize(src.size());
    for_each_block(src, dst.data(), [&](const std::byte* from, std::byte* to, std::size_t n) {
      bit_shuffle(from, itemsize_, n, to);
    });
  }

 private:
  template <typename Transpose>
  void for_each_block(ConstBytes src, std::byte* dst, Transpose transpose) const {
    std::size_t left = src.size() / itemsize_ / 8 * 8;
    std::size_t done = 0;
    while (left > 0) {
      const std::size_t n = std::min(left, block_elements_);
      transpose(src.data() + done, dst + done, n);
      done += n * itemsize_;
      left -= n;
    }
    if (done < src.size()) std::memcpy(dst + done, src.data() + done, src.size() - done);
  }

  std::size_t itemsize_;
  std::size_t block_elements_;
};

}  // namespace

CodecPtr make_bitshuffle(const CodecSpec& spec, const CodecSite&) {
  constexpr std::int64_t kMaxItemsize = 255;
  constexpr std::int64_t kMaxBlock = 1 << 28;
  CodecConfig config(spec);
  const auto itemsize = static_cast<std::size_t>(config.integer("itemsize", 1, kMaxItemsize, 1));
  auto block = static_cast<std::size_t>(config.integer("blocksize", 0, kMaxBlock, 0));
  if (block % 8 != 0) config.fail("blocksize", "must be a multiple of 8");
  config.finish();
  if (block == 0) block = default_block_elements(itemsize);
  return std::make_shared<BitshuffleFilter>(itemsize, block);
}

}  // namespace headrace
