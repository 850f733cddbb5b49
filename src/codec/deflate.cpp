// gzip and zlib: bytes -> bytes, Deflate (RFC 1951) with the frames of RFC 1952 and RFC 1950.
// Compatibility: gzip files of several members and with any header fields are read, zeros after the
// last member are ignored, as gzip does. Levels 0 to 9; numcodecs' -1 is 6.
// Spec: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/gzip/index.html
// {"name": "gzip", "configuration": {"level": 5}}

#include <isa-l/igzip_lib.h>
#include <libdeflate.h>

#include <algorithm>
#include <limits>

#include "codec/byte_stream.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/contexts.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

enum class Frame : std::uint8_t { gzip, zlib };

// Bytes after a frame: nothing when none follows, otherwise the next member of a gzip file.
ConstBytes next_member(Frame frame, ConstBytes rest) {
  if (rest.empty()) return rest;
  if (frame == Frame::zlib) {
    throw_corrupt(std::to_string(rest.size()) + " bytes follow the end of the stream");
  }
  const bool padding = std::ranges::all_of(rest, [](std::byte b) { return b == std::byte{0}; });
  return padding ? ConstBytes() : rest;
}

class Deflate : public Codec {
 public:
  Deflate(Frame frame, EncoderLevel level) : frame_(frame), level_(std::move(level)) {}

  CodecKind kind() const override { return CodecKind::bytes_to_bytes; }
  std::string_view name() const override { return frame_ == Frame::gzip ? "gzip" : "zlib"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::at_most(n + n / 1000 + 64);
  }
  std::optional<DeviceStage> device_stage() const override {
    return DeviceStage{frame_ == Frame::gzip ? DeviceStage::Kind::gzip : DeviceStage::Kind::zlib};
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(dst.size(), inflate(src, dst));
  }

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    decode_growing(src, max_nbytes, [&](std::size_t bound) {
      dst.resize(bound);
      dst.resize_keep(inflate(src, dst.bytes()));
    });
  }

  void check_encodes() const override { level_.check(); }
  // libdeflate writes faster than zlib and ISA-L, and smaller at equal levels.
  void encode(ConstBytes src, Buffer& dst) const override {
    check_encodes();
    libdeflate_compressor& compressor = deflate_compressor(level_.value);
    const bool gzip = frame_ == Frame::gzip;
    dst.resize(gzip ? libdeflate_gzip_compress_bound(&compressor, src.size())
                    : libdeflate_zlib_compress_bound(&compressor, src.size()));
    const auto compress = gzip ? libdeflate_gzip_compress : libdeflate_zlib_compress;
    const std::size_t n = compress(&compressor, src.data(), src.size(), dst.data(), dst.size());
    if (n == 0)
      throw Error(ErrorCode::out_of_memory, "encode: libdeflate needs more than its bound");
    dst.resize_keep(n);
  }

 protected:
  // All members to dst; gives the bytes written. `corrupt` when they do not fit.
  virtual std::size_t inflate(ConstBytes src, MutableBytes dst) const = 0;

  Frame frame_;
  const EncoderLevel level_;
};

class LibdeflateInflate final : public Deflate {
 public:
  using Deflate::Deflate;
  std::string_view implementation() const override { return "libdeflate"; }

 private:
  std::size_t inflate(ConstBytes src, MutableBytes dst) const override {
    const auto decompress =
        frame_ == Frame::gzip ? libdeflate_gzip_decompress_ex : libdeflate_zlib_decompress_ex;
    libdeflate_decompressor& decompressor = deflate_decompressor();
    std::size_t done = 0;
    do {
      std::size_t in = 0;
      std::size_t out = 0;
      const libdeflate_result result = decompress(
          &decompressor, src.data(), src.size(), dst.data() + done, dst.size() - done, &in, &out);
      if (result == LIBDEFLATE_INSUFFICIENT_SPACE) {
        throw_corrupt("expected " + std::to_string(dst.size()) + " bytes, got more");
      }
      if (result != LIBDEFLATE_SUCCESS) throw_corrupt("the stream is malformed or cut short");
      done += out;
      src = next_member(frame_, src.subspan(in));
    } while (!src.empty());
    return done;
  }
};

// A stream that is taken in steps: ISA-L keeps the history itself.
class IsalStream final : public ByteStream {
 public:
  IsalStream(Frame frame, ConstBytes src) : frame_(frame), src_(src), state_(state()) { begin(); }

 private:
  static inflate_state& state() {
    thread_local std::unique_ptr<inflate_state> kept;
    if (!kept) kept.reset(new inflate_state);  // 90 KB: make_unique would clear it
    return *kept;
  }

  void begin() {
    isal_inflate_init(&state_);
    state_.crc_flag = frame_ == Frame::gzip ? ISAL_GZIP : ISAL_ZLIB;
  }

  std::size_t step(MutableBytes dst) override {
    constexpr std::size_t kMaxStep = std::size_t{1} << 30;
    const std::size_t n_in = std::min(src_.size(), kMaxStep);
    const std::size_t n_out = std::min(dst.size(), kMaxStep);
    // ISA-L takes pointers to what it only reads as mutable.
    state_.next_in = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(src_.data()));
    state_.avail_in = static_cast<std::uint32_t>(n_in);
    state_.next_out = reinterpret_cast<std::uint8_t*>(dst.data());
    state_.avail_out = static_cast<std::uint32_t>(n_out);
    const int result = isal_inflate(&state_);
    if (result < 0) {
      throw_corrupt(result == ISAL_INCORRECT_CHECKSUM ? "the checksum is wrong"
                                                      : "the stream is malformed");
    }
    const std::size_t taken = n_in - state_.avail_in;
    const std::size_t given = n_out - state_.avail_out;
    src_ = src_.subspan(taken);
    if (state_.block_state == ISAL_BLOCK_FINISH) {
      // Bytes it took ahead and had no use for.
      const auto unused = static_cast<std::size_t>(state_.read_in_length / 8);
      src_ = next_member(frame_, {src_.data() - unused, src_.size() + unused});
      at_end_ = src_.empty();
      if (!at_end_) begin();
    } else if (taken == 0 && given == 0) {
      throw_corrupt("the stream is cut short");
    }
    return given;
  }

  Frame frame_;
  ConstBytes src_;
  inflate_state& state_;
};

class IsalInflate final : public Deflate, public PieceDecoder {
 public:
  using Deflate::Deflate;
  std::string_view implementation() const override { return "isa-l"; }
  PartialDecoder partial_decoder() const override { return this; }

  void decode_pieces(ConstBytes src,
                     std::size_t decoded_nbytes,
                     PieceSink& sink,
                     const DecodeContext&) const override {
    IsalStream stream(frame_, src);
    headrace::decode_pieces(stream, decoded_nbytes, sink);
  }

 private:
  std::size_t inflate(ConstBytes src, MutableBytes dst) const override {
    IsalStream stream(frame_, src);
    return decode_all(stream, dst);
  }
};

template <typename Implementation>
CodecPtr make(const CodecSpec& spec, Frame frame) {
  CodecConfig config(spec);
  EncoderLevel level = config.level("level", -1, 9, frame == Frame::gzip ? 5 : 1);
  config.finish();
  if (level.value < 0) level.value = 6;
  return std::make_shared<Implementation>(frame, level);
}

}  // namespace

CodecPtr make_gzip_isal(const CodecSpec& spec, const CodecSite&) {
  return make<IsalInflate>(spec, Frame::gzip);
}
CodecPtr make_gzip_libdeflate(const CodecSpec& spec, const CodecSite&) {
  return make<LibdeflateInflate>(spec, Frame::gzip);
}
CodecPtr make_zlib_isal(const CodecSpec& spec, const CodecSite&) {
  return make<IsalInflate>(spec, Frame::zlib);
}
CodecPtr make_zlib_libdeflate(const CodecSpec& spec, const CodecSite&) {
  return make<LibdeflateInflate>(spec, Frame::zlib);
}

}  // namespace headrace
