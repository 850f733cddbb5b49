// shuffle: bytes -> bytes, the bytes of all elements by significance.
// Compatibility: numcodecs; bytes after the last whole element stay at the end, as in HDF5.
// Spec: https://numcodecs.readthedocs.io/en/stable/filter/shuffle.html
// {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}

#include <algorithm>
#include <cstring>

#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/shuffle.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

class ShuffleFilter final : public Codec {
 public:
  // `chunk_nbytes`: 0 where it is not known.
  ShuffleFilter(std::size_t elementsize, std::size_t chunk_nbytes)
      : elementsize_(elementsize), chunk_nbytes_(chunk_nbytes) {}

  CodecKind kind() const override { return CodecKind::bytes_to_bytes; }
  std::string_view name() const override { return "shuffle"; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override { return EncodedNbytes::exactly(n); }
  Transform transform() const override {
    return elementsize_ == 1 ? Transform::identity : Transform::out_of_place;
  }
  std::optional<DeviceStage> device_stage() const override {
    if (elementsize_ > 255) return std::nullopt;
    return DeviceStage{DeviceStage::Kind::unshuffle, static_cast<std::uint32_t>(elementsize_)};
  }

  ChunkSpec encoded_spec(const ChunkSpec& in) const override {
    return {DType::uint8, {static_cast<std::int64_t>(in.nbytes())}, {}};
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(dst.size(), src.size());
    const std::size_t n = src.size() / elementsize_;
    std::vector<const std::byte*> planes(elementsize_);
    for (std::size_t j = 0; j < elementsize_; ++j) planes[j] = src.data() + j * n;
    unshuffle(planes.data(), elementsize_, n, dst.data());
    copy_rest(src, dst.data());
  }

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    resize_decoded(dst, src.size(), max_nbytes);
    decode(src, dst.bytes(), {});
  }

  // numcodecs does not read what has a rest.
  void check_encodes() const override {
    if (chunk_nbytes_ % elementsize_ == 0) return;
    throw Error(ErrorCode::invalid_argument,
                "shuffle: a chunk of " + std::to_string(chunk_nbytes_) +
                    " bytes is no multiple of the elementsize of " + std::to_string(elementsize_));
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    check_encodes();
    dst.resize(src.size());
    const std::size_t n = src.size() / elementsize_;
    std::vector<std::byte*> planes(elementsize_);
    for (std::size_t j = 0; j < elementsize_; ++j) planes[j] = dst.data() + j * n;
    shuffle(src.data(), elementsize_, n, planes.data());
    copy_rest(src, dst.data());
  }

 private:
  void copy_rest(ConstBytes src, std::byte* dst) const {
    const std::size_t done = src.size() / elementsize_ * elementsize_;
    if (done < src.size()) std::memcpy(dst + done, src.data() + done, src.size() - done);
  }

  std::size_t elementsize_, chunk_nbytes_;
};

}  // namespace

CodecPtr make_shuffle(const CodecSpec& spec, const CodecSite& site) {
  constexpr std::int64_t kMaxElementsize = 1 << 16;
  CodecConfig config(spec);
  const auto size = static_cast<std::size_t>(config.integer("elementsize", 0, kMaxElementsize, 4));
  config.finish();
  // numcodecs shuffles nothing then; netCDF-C's arrays say the size by now
  // (format/metadata_v2.cpp).
  return std::make_shared<ShuffleFilter>(std::max<std::size_t>(size, 1), site.in.nbytes());
}

}  // namespace headrace
