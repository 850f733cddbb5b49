// hdf5_szip: bytes -> bytes, HDF5's filter 4: adaptive entropy coding of samples of 1 to 64 bits.
// Compatibility: HDF5 with szip or libaec. `cd_values` are those of the file: options (4: entropy
// coding alone, 16: the most significant byte first, 32: differences before), samples a block, bits
// a sample, samples a line.
// Spec: https://docs.hdfgroup.org/documentation/hdf5/latest/group___d_c_p_l.html (H5Pset_szip),
//       CCSDS 121.0-B; four bytes in front have the decoded size. A chunk that has the decoded size
//       and another number in front is one that HDF5 stored without the filter, as it grew by it.
// {"id": "hdf5_szip", "cd_values": [141, 32, 32, 256]}

#include "codec/aec.h"
#include "codec/bit_reader.h"
#include "codec/codecs.h"
#include "codec/decode_only.h"
#include "codec/hdf5.h"
#include "codec/scratch.h"
#include "codec/shuffle.h"

namespace headrace {
namespace {

enum Field { kOptions, kBlock, kBits, kLine, kFields };
constexpr std::uint32_t kMsbFirst = 16, kDifferences = 32;
constexpr std::size_t kSizeNbytes = 4;
// H5Pset_szip takes no more; libaec keeps an interval of this many blocks.
constexpr std::uint32_t kMaxBlock = 32, kMaxBlocksOfLine = 4096;

class Szip final : public DecodeOnly {
 public:
  // `planes`: samples of so many bytes are coded a byte at a time, each plane of them together.
  Szip(const AecStream& stream, std::size_t line, std::size_t planes)
      : stream_(stream),
        sample_nbytes_(aec_sample_nbytes(stream.bits_per_sample)),
        line_nbytes_(line * sample_nbytes_),
        padded_line_nbytes_(std::size_t{stream.rsi} * stream.block_size * sample_nbytes_),
        planes_(planes) {}

  std::string_view name() const override { return "hdf5_szip"; }
  std::string_view implementation() const override { return "libaec"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::at_most(n + n / 8 + 64);
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    if (src.size() == dst.size() && (src.size() < kSizeNbytes || said(src) != dst.size())) {
      if (!src.empty()) std::memcpy(dst.data(), src.data(), src.size());
      return;
    }
    check_decoded_size(dst.size(), said(src));
    if (dst.size() % (sample_nbytes_ * planes_) != 0) {
      throw_corrupt(std::to_string(dst.size()) + " bytes are no whole samples");
    }
    src = src.subspan(kSizeNbytes);
    if (planes_ == 1) return decode_lines(src, dst);
    Scratch planes(dst.size());
    decode_lines(src, planes.bytes());
    const std::size_t n = dst.size() / planes_;
    std::vector<const std::byte*> starts(planes_);
    for (std::size_t j = 0; j < planes_; ++j) starts[j] = planes.data() + j * n;
    unshuffle(starts.data(), planes_, n, dst.data());
  }

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    resize_said(dst, said(src), src, max_nbytes);
    decode(src, dst.bytes(), {});
  }

 private:
  static std::size_t said(ConstBytes src) {
    if (src.size() < kSizeNbytes) throw_corrupt("the size in front is cut short");
    return load_le<std::uint32_t>(src.data());
  }

  // Blocks do not go beyond a line: the last one of each is filled up.
  void decode_lines(ConstBytes src, MutableBytes dst) const {
    if (line_nbytes_ == padded_line_nbytes_) return decode_aec(stream_, src, dst);
    const std::size_t lines = dst.size() / line_nbytes_;
    const std::size_t rest = dst.size() % line_nbytes_;
    Scratch padded(lines * padded_line_nbytes_ + rest);
    decode_aec(stream_, src, padded.bytes());
    for (std::size_t i = 0; i <= lines; ++i) {
      const std::size_t n = i < lines ? line_nbytes_ : rest;
      if (n > 0) {
        std::memcpy(dst.data() + i * line_nbytes_, padded.data() + i * padded_line_nbytes_, n);
      }
    }
  }

  const AecStream stream_;
  const std::size_t sample_nbytes_;
  const std::size_t line_nbytes_;
  const std::size_t padded_line_nbytes_;
  const std::size_t planes_;
};

}  // namespace

CodecPtr make_hdf5_szip(const CodecSpec& spec, const CodecSite&) {
  CodecConfig config(spec);
  const std::vector<std::uint32_t> values = client_data(config, kFields);
  config.finish();
  const std::uint32_t bits = values[kBits], block = values[kBlock], line = values[kLine];
  const bool planes = bits == 32 || bits == 64;
  if (bits == 0 || (bits > 24 && !planes) || block < 2 || block > kMaxBlock || block % 2 != 0 ||
      line < block || line > kMaxBlock * kMaxBlocksOfLine ||
      (line + block - 1) / block > kMaxBlocksOfLine) {
    config.fail("cd_values", "is none that szip takes");
  }
  AecStream stream;
  stream.bits_per_sample = planes ? 8 : bits;
  stream.block_size = block;
  stream.rsi = (line + block - 1) / block;
  stream.msb = (values[kOptions] & kMsbFirst) != 0;
  stream.preprocessed = (values[kOptions] & kDifferences) != 0;
  return std::make_shared<Szip>(stream, line, planes ? bits / 8 : 1);
}

}  // namespace headrace
