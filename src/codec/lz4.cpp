// lz4: bytes -> bytes, numcodecs' framing: the decoded size in 4 bytes, little-endian, and one raw
// LZ4 block.
// Spec: https://numcodecs.readthedocs.io/en/stable/compression/lz4.html
// {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}

#include <lz4.h>

#include <algorithm>
#include <limits>

#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/lz4_block.h"
#include "codec/scratch.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

// The block and the size said before it.
ConstBytes split_frame(ConstBytes src, std::size_t& said) {
  if (src.size() < kLz4SizeNbytes) {
    throw_corrupt("a size of 4 bytes does not fit into " + std::to_string(src.size()));
  }
  said = load_le<std::uint32_t>(src.data());
  const ConstBytes block = src.subspan(kLz4SizeNbytes);
  if (said > LZ4_MAX_INPUT_SIZE) throw_corrupt("the size " + std::to_string(said) + " is absurd");
  return block;
}

[[noreturn]] void throw_malformed(std::size_t nbytes) {
  throw_corrupt("the block is malformed or does not decode to " + std::to_string(nbytes) +
                " bytes");
}

class Lz4 final : public Codec, public PieceDecoder {
 public:
  explicit Lz4(EncoderLevel acceleration) : acceleration_(std::move(acceleration)) {}

  CodecKind kind() const override { return CodecKind::bytes_to_bytes; }
  std::string_view name() const override { return "lz4"; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::at_most(n + n / 255 + 16 + 4);
  }
  PartialDecoder partial_decoder() const override { return this; }
  std::optional<DeviceStage> device_stage() const override {
    DeviceStage stage{DeviceStage::Kind::lz4};
    stage.encoding = {.max_nbytes = LZ4_MAX_INPUT_SIZE};
    return stage;
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    std::size_t said = 0;
    const ConstBytes block = split_frame(src, said);
    check_decoded_size(dst.size(), said);
    if (!lz4_decode_block(block, dst)) throw_malformed(dst.size());
  }

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    std::size_t said = 0;
    split_frame(src, said);
    resize_said(dst, said, src, max_nbytes);
    decode(src, dst.bytes(), {});
  }

  std::optional<std::size_t> said_nbytes(ConstBytes src) const override {
    std::size_t said = 0;
    split_frame(src, said);
    return said_unless_lie(said, src);
  }

  // As far as the last byte wanted.
  void decode_pieces(ConstBytes src,
                     std::size_t decoded_nbytes,
                     PieceSink& sink,
                     const DecodeContext& context) const override {
    const std::size_t end = std::min(sink.end(), decoded_nbytes);
    if (end == decoded_nbytes) return decode_whole(src, decoded_nbytes, sink, context);
    std::size_t said = 0;
    const ConstBytes block = split_frame(src, said);
    check_decoded_size(decoded_nbytes, said);
    if (sink.begin() >= end) return;
    Scratch scratch(end);
    if (!lz4_decode_prefix(block, scratch.bytes())) throw_malformed(end);
    sink.put(sink.begin(), {scratch.data() + sink.begin(), end - sink.begin()});
  }

  void check_encodes() const override { acceleration_.check(); }
  void encode(ConstBytes src, Buffer& dst) const override {
    check_encodes();
    if (src.size() > LZ4_MAX_INPUT_SIZE) {
      throw Error(ErrorCode::invalid_argument,
                  "encode: " + std::to_string(src.size()) + " bytes; lz4 takes at most " +
                      std::to_string(LZ4_MAX_INPUT_SIZE));
    }
    const int bound = LZ4_compressBound(static_cast<int>(src.size()));
    dst.resize(kLz4SizeNbytes + static_cast<std::size_t>(bound));
    store_le(dst.data(), static_cast<std::uint32_t>(src.size()));
    const int n = LZ4_compress_fast(as_chars(src),
                                    as_chars(dst.bytes()) + kLz4SizeNbytes,
                                    static_cast<int>(src.size()),
                                    bound,
                                    acceleration_.value);
    if (n <= 0) throw Error(ErrorCode::out_of_memory, "encode: liblz4 needs more than its bound");
    dst.resize_keep(kLz4SizeNbytes + static_cast<std::size_t>(n));
  }

 private:
  void decode_whole(ConstBytes src,
                    std::size_t decoded_nbytes,
                    PieceSink& sink,
                    const DecodeContext& context) const {
    if (std::byte* const direct = sink.direct(0, decoded_nbytes))
      return decode(src, {direct, decoded_nbytes}, context);
    Scratch scratch(decoded_nbytes);
    decode(src, scratch.bytes(), context);
    sink.put(0, scratch.bytes());
  }

  const EncoderLevel acceleration_;
};

}  // namespace

CodecPtr make_lz4(const CodecSpec& spec, const CodecSite&) {
  CodecConfig config(spec);
  // liblz4 itself takes what is too little or too much for the nearest it has.
  const EncoderLevel acceleration = config.level("acceleration",
                                                 std::numeric_limits<int>::min(),
                                                 std::numeric_limits<int>::max(),
                                                 1,
                                                 BeyondRange::clamped);
  config.finish();
  return std::make_shared<Lz4>(acceleration);
}

}  // namespace headrace
