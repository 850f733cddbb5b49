// zstd: bytes -> bytes, Zstandard frames (RFC 8878).
// Compatibility: frames without content size, several frames, skippable frames and checksums are
// read; level 0 is libzstd's default, as in zarr-python.
// Spec: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/zstd
// {"name": "zstd", "configuration": {"level": 3, "checksum": false}}

#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_decompressContinue
#define ZSTD_DISABLE_DEPRECATE_WARNINGS
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <limits>

#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/contexts.h"
#include "codec/scratch.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

std::size_t check(std::size_t result, std::size_t wanted) {
  if (!ZSTD_isError(result)) return result;
  switch (ZSTD_getErrorCode(result)) {
    case ZSTD_error_dstSize_tooSmall:
      throw_corrupt("expected " + std::to_string(wanted) + " bytes, got more");
    case ZSTD_error_memory_allocation:
      throw Error(ErrorCode::out_of_memory, ZSTD_getErrorName(result));
    default:
      throw_corrupt(ZSTD_getErrorName(result));
  }
}

class Zstd final : public Codec, public PieceDecoder {
 public:
  Zstd(EncoderLevel level, bool checksum) : level_(std::move(level)), checksum_(checksum) {}

  CodecKind kind() const override { return CodecKind::bytes_to_bytes; }
  std::string_view name() const override { return "zstd"; }
  std::string_view implementation() const override { return "libzstd"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::at_most(n + n / 128 + 1024);
  }
  PartialDecoder partial_decoder() const override { return this; }
  std::optional<DeviceStage> device_stage() const override {
    // Kernels make chunks as small as level 1 does; levels up to the default ask for speed.
    DeviceStage stage{DeviceStage::Kind::zstd};
    stage.encoding = {.thorough = level_.value > ZSTD_CLEVEL_DEFAULT, .checksum = checksum_};
    return stage;
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    const std::size_t n =
        check(ZSTD_decompressDCtx(
                  &zstd_decompress_context(), dst.data(), dst.size(), src.data(), src.size()),
              dst.size());
    check_decoded_size(dst.size(), n);
  }

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override;
  std::optional<std::size_t> said_nbytes(ConstBytes src) const override;
  void encode(ConstBytes src, Buffer& dst) const override;
  void check_encodes() const override { level_.check(); }
  void decode_pieces(ConstBytes src,
                     std::size_t decoded_nbytes,
                     PieceSink& sink,
                     const DecodeContext& context) const override;

 private:
  const EncoderLevel level_;
  bool checksum_;
};

void Zstd::decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const {
  // The frames' own word, when they give it, bounds the memory asked for; it may be a lie.
  const unsigned long long said = ZSTD_findDecompressedSize(src.data(), src.size());
  decode_growing(src, max_nbytes, [&](std::size_t bound) {
    dst.resize(said < bound ? static_cast<std::size_t>(said) : bound);
    const std::size_t n =
        check(ZSTD_decompressDCtx(
                  &zstd_decompress_context(), dst.data(), dst.size(), src.data(), src.size()),
              dst.size());
    dst.resize_keep(n);
  });
}

std::optional<std::size_t> Zstd::said_nbytes(ConstBytes src) const {
  const unsigned long long said = ZSTD_findDecompressedSize(src.data(), src.size());
  // Unknown, or an error: more than anything decodes to.
  return said_unless_lie(said, src);
}

void Zstd::encode(ConstBytes src, Buffer& dst) const {
  check_encodes();
  ZSTD_CCtx& context = zstd_compress_context();
  ZSTD_CCtx_reset(&context, ZSTD_reset_session_and_parameters);
  ZSTD_CCtx_setParameter(&context, ZSTD_c_compressionLevel, level_.value);
  ZSTD_CCtx_setParameter(&context, ZSTD_c_checksumFlag, checksum_ ? 1 : 0);
  dst.resize(ZSTD_compressBound(src.size()));
  const std::size_t n = ZSTD_compress2(&context, dst.data(), dst.size(), src.data(), src.size());
  if (ZSTD_isError(n)) {
    const bool memory = ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation;
    throw Error(memory ? ErrorCode::out_of_memory : ErrorCode::invalid_argument,
                std::string("encode: ") + ZSTD_getErrorName(n));
  }
  dst.resize_keep(n);
}

// The frames' own word, where they give it, costs less than to find out by decoding.
void check_said_size(ConstBytes src, std::size_t decoded_nbytes) {
  unsigned long long said = ZSTD_getFrameContentSize(src.data(), src.size());
  if (said == decoded_nbytes) return;
  said = ZSTD_findDecompressedSize(src.data(), src.size());  // of all frames
  if (said == ZSTD_CONTENTSIZE_ERROR) throw_corrupt("a frame is malformed or cut short");
  if (said != ZSTD_CONTENTSIZE_UNKNOWN) check_decoded_size(decoded_nbytes, said);
}

bool has_checksum(ConstBytes frame) {
  ZSTD_frameHeader header;
  return ZSTD_getFrameHeader(&header, frame.data(), frame.size()) == 0 && header.checksumFlag != 0;
}

// Block by block (128 KiB at most) and no further than the last byte wanted, or to the end of a
// frame that has a checksum: they are rare, and who wrote one wants it looked at. A block refers to
// the bytes before it, so all go to one place: the destination when the sink has the whole chunk in
// one piece, otherwise scratch, from where pieces leave while they are in the cache.
void Zstd::decode_pieces(ConstBytes src,
                         std::size_t decoded_nbytes,
                         PieceSink& sink,
                         const DecodeContext& context) const {
  const std::size_t end = std::min(sink.end(), decoded_nbytes);
  std::byte* const direct = sink.direct(0, decoded_nbytes);
  if (direct != nullptr && end == decoded_nbytes) {
    decode(src, {direct, decoded_nbytes}, context);
    return;
  }
  check_said_size(src, decoded_nbytes);
  std::optional<Scratch> scratch;
  if (direct == nullptr) scratch.emplace(decoded_nbytes);
  std::byte* const base = direct != nullptr ? direct : scratch->data();

  ZSTD_DCtx& dctx = zstd_decompress_context();
  std::size_t done = 0;
  while (done < end) {
    if (src.empty()) check_decoded_size(decoded_nbytes, done);
    check(ZSTD_decompressBegin(&dctx), decoded_nbytes);
    const bool checked = has_checksum(src);
    for (;;) {
      const std::size_t need = ZSTD_nextSrcSizeToDecompress(&dctx);
      if (need == 0) break;  // the frame's end
      if (need > src.size()) throw_corrupt("the frame is cut short");
      const std::size_t n = check(
          ZSTD_decompressContinue(&dctx, base + done, decoded_nbytes - done, src.data(), need),
          decoded_nbytes);
      src = src.subspan(need);
      if (direct == nullptr && n > 0 && sink.wants(done, n)) sink.put(done, {base + done, n});
      done += n;
      if (done >= end && end < decoded_nbytes && !checked) return;
    }
  }
  if (end < decoded_nbytes) return;
  // The whole was asked for: the rest may hold skippable and empty frames only.
  if (!src.empty()) {
    std::byte none;
    const std::size_t n =
        check(ZSTD_decompressDCtx(&dctx, &none, 0, src.data(), src.size()), decoded_nbytes);
    check_decoded_size(decoded_nbytes, done + n);
  }
}

}  // namespace

CodecPtr make_zstd(const CodecSpec& spec, const CodecSite&) {
  CodecConfig config(spec);
  // As numcodecs and libzstd do: the strongest there is, or the fastest.
  const EncoderLevel level =
      config.level("level", ZSTD_minCLevel(), ZSTD_maxCLevel(), 0, BeyondRange::clamped);
  const bool checksum = config.boolean("checksum", false);
  config.finish();
  return std::make_shared<Zstd>(level, checksum);
}

}  // namespace headrace
