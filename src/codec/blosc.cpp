// blosc: bytes -> bytes, shuffle and compression in blocks (the container of blosc 1).
// Compatibility: every inner codec of c-blosc 1.21; "shuffle" as a word (v3) or a number (v2).
// Spec: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/blosc/index.html
// {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle",
//  "typesize": 4, "blocksize": 0}}

#include <blosc.h>

#include <algorithm>
#include <limits>

#include "base/thread_pool.h"
#include "codec/blosc_frame.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

// Below this a second thread costs more than it brings.
constexpr std::size_t kMinParallelNbytes = 512 * 1024;
// A piece is unshuffled and handed on while it is in the L1 cache.
constexpr std::size_t kPieceNbytes = 16 * 1024;

struct BloscParameters {
  std::string cname;
  EncoderLevel clevel;
  int shuffle;
  std::size_t typesize;
  std::size_t blocksize;
};

// What both decoders of the container share.
class BloscCodec : public Codec {
 public:
  explicit BloscCodec(BloscParameters parameters) : parameters_(std::move(parameters)) {}

  CodecKind kind() const override { return CodecKind::bytes_to_bytes; }
  std::string_view name() const override { return "blosc"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::at_most(n + BLOSC_MAX_OVERHEAD);
  }
  std::optional<DeviceStage> device_stage() const override;

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override;
  std::optional<std::size_t> said_nbytes(ConstBytes src) const override {
    return said_unless_lie(BloscFrame(src).nbytes(), src);
  }
  void encode(ConstBytes src, Buffer& dst) const override;
  void check_encodes() const override { parameters_.clevel.check(); }

 private:
  BloscParameters parameters_;
};

class Blosc final : public BloscCodec, public PieceDecoder {
 public:
  using BloscCodec::BloscCodec;

  std::string_view implementation() const override { return "headrace"; }
  PartialDecoder partial_decoder() const override { return this; }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext& context) const override;
  void decode_pieces(ConstBytes src,
                     std::size_t decoded_nbytes,
                     PieceSink& sink,
                     const DecodeContext& context) const override;
};

int threads_for(std::size_t nbytes, const DecodeContext& context) {
  return nbytes >= kMinParallelNbytes ? std::max(context.threads, 1) : 1;
}

std::optional<DeviceStage> BloscCodec::device_stage() const {
  DeviceStage stage{DeviceStage::Kind::blosc};
  stage.itemsize = static_cast<std::uint32_t>(parameters_.typesize);
  const bool zstd = parameters_.cname == "zstd";
  // c-blosc's clevel 2 is zstd's level 3: see Zstd::device_stage().
  if (zstd || parameters_.cname == "lz4")
    stage.encoding = {.max_nbytes = BLOSC_MAX_BUFFERSIZE,
                      .thorough = zstd && parameters_.clevel.value > 2,
                      .zstd_inside = zstd,
                      .clevel = parameters_.clevel.value,
                      .shuffle = parameters_.shuffle,
                      .blocksize = parameters_.blocksize};
  return stage;
}

void Blosc::decode(ConstBytes src, MutableBytes dst, const DecodeContext& context) const {
  const BloscFrame frame(src);
  check_decoded_size(dst.size(), frame.nbytes());
  if (frame.nbytes() == 0) return;
  if (frame.is_copy()) {
    std::memcpy(dst.data(), frame.copy().data(), dst.size());
    return;
  }
  parallel_for(
      frame.n_blocks(),
      [&](std::size_t b) {
        std::byte* const target = dst.data() + frame.block_offset(b);
        BloscBlock(frame, b, target).write(0, frame.block_nbytes(b), target);
      },
      threads_for(frame.nbytes(), context));
}

void BloscCodec::decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const {
  const BloscFrame frame(src);
  resize_said(dst, frame.nbytes(), src, max_nbytes);
  decode(src, dst.bytes(), {});
}

void put_block(const BloscFrame& frame, std::size_t b, PieceSink& sink) {
  const std::size_t offset = frame.block_offset(b);
  const std::size_t nbytes = frame.block_nbytes(b);
  if (!sink.wants(offset, nbytes)) return;
  if (std::byte* const direct = sink.direct(offset, nbytes)) {
    BloscBlock(frame, b, direct).write(0, nbytes, direct);
    return;
  }
  const BloscBlock block(frame, b, nullptr);
  const std::size_t step = std::max<std::size_t>(kPieceNbytes / block.unit(), 1) * block.unit();
  Scratch piece(std::min(step, nbytes));
  const std::size_t wanted_begin = std::max(sink.begin(), offset) - offset;
  const std::size_t wanted_end = std::min(sink.end(), offset + nbytes) - offset;
  for (std::size_t at = wanted_begin / step * step; at < wanted_end; at += step) {
    const std::size_t end = std::min(at + step, nbytes);
    if (!sink.wants(offset + at, end - at)) continue;
    if (std::byte* const direct = sink.direct(offset + at, end - at)) {
      block.write(at, end, direct);
    } else {
      block.write(at, end, piece.data());
      sink.put(offset + at, {piece.data(), end - at});
    }
  }
}

void Blosc::decode_pieces(ConstBytes src,
                          std::size_t decoded_nbytes,
                          PieceSink& sink,
                          const DecodeContext& context) const {
  const BloscFrame frame(src);
  check_decoded_size(decoded_nbytes, frame.nbytes());
  const std::size_t begin = sink.begin();
  const std::size_t end = std::min(sink.end(), decoded_nbytes);
  if (begin >= end) return;
  if (frame.is_copy()) {
    sink.put(begin, frame.copy().subspan(begin, end - begin));
    return;
  }
  const std::size_t first = frame.block_of(begin);
  const std::size_t last = frame.block_of(end - 1);
  parallel_for(
      last - first + 1,
      [&](std::size_t i) { put_block(frame, first + i, sink); },
      threads_for(end - begin, context));
}

void BloscCodec::encode(ConstBytes src, Buffer& dst) const {
  check_encodes();
  if (src.size() > BLOSC_MAX_BUFFERSIZE) {
    throw Error(ErrorCode::invalid_argument,
                "encode: " + std::to_string(src.size()) + " bytes; blosc takes at most " +
                    std::to_string(BLOSC_MAX_BUFFERSIZE));
  }
  dst.resize(src.size() + BLOSC_MAX_OVERHEAD);
  const int n = blosc_compress_ctx(parameters_.clevel.value,
                                   parameters_.shuffle,
                                   parameters_.typesize,
                                   src.size(),
                                   src.data(),
                                   dst.data(),
                                   dst.size(),
                                   parameters_.cname.c_str(),
                                   parameters_.blocksize,
                                   /*numinternalthreads=*/1);
  if (n <= 0) {
    throw Error(ErrorCode::out_of_memory, "encode: c-blosc failed with " + std::to_string(n));
  }
  dst.resize_keep(static_cast<std::size_t>(n));
}

// The same container decoded by its authors' library.
class CBlosc final : public BloscCodec {
 public:
  using BloscCodec::BloscCodec;

  std::string_view implementation() const override { return "c-blosc"; }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    std::size_t nbytes = 0;
    if (blosc_cbuffer_validate(src.data(), src.size(), &nbytes) < 0) {
      throw_corrupt("c-blosc rejects the header of " + std::to_string(src.size()) + " bytes");
    }
    check_decoded_size(dst.size(), nbytes);
    if (nbytes == 0) return;
    const int n =
        blosc_decompress_ctx(src.data(), dst.data(), dst.size(), /*numinternalthreads=*/1);
    if (n < 0) throw_corrupt("c-blosc fails with " + std::to_string(n));
    check_decoded_size(dst.size(), static_cast<std::size_t>(n));
  }
};

int shuffle_of(CodecConfig& config, std::size_t typesize) {
  if (!config.has("shuffle")) return BLOSC_SHUFFLE;
  if (config.is_string("shuffle")) {
    const std::string word = config.string("shuffle");
    if (word == "noshuffle") return BLOSC_NOSHUFFLE;
    if (word == "shuffle") return BLOSC_SHUFFLE;
    if (word == "bitshuffle") return BLOSC_BITSHUFFLE;
    config.fail("shuffle", "must be noshuffle, shuffle or bitshuffle, got \"" + word + "\"");
  }
  // -1 is numcodecs' AUTOSHUFFLE.
  const auto number = static_cast<int>(config.integer("shuffle", -1, 2));
  if (number >= 0) return number;
  return typesize == 1 ? BLOSC_BITSHUFFLE : BLOSC_SHUFFLE;
}

BloscParameters parse_blosc(const CodecSpec& spec, const CodecSite& site) {
  constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();
  CodecConfig config(spec);
  BloscParameters p;
  p.cname = config.string("cname", "lz4");
  constexpr std::string_view kNames[] = {"lz4", "lz4hc", "blosclz", "zstd", "zlib", "snappy"};
  if (std::ranges::find(kNames, p.cname) == std::end(kNames)) {
    config.fail("cname", "names no compressor of blosc: \"" + p.cname + "\"");
  }
  p.clevel = config.level("clevel", 0, 9, 5);
  const auto itemsize = static_cast<std::int64_t>(site.in.dtype.itemsize());
  // 0: the array's item size, as where v2 does not say.
  std::int64_t typesize = config.integer("typesize", 0, kMaxInt, 0);
  if (typesize == 0) typesize = std::max<std::int64_t>(itemsize, 1);
  p.typesize = typesize > BLOSC_MAX_TYPESIZE ? 1 : static_cast<std::size_t>(typesize);
  p.shuffle = shuffle_of(config, p.typesize);
  p.blocksize = static_cast<std::size_t>(config.integer("blocksize", 0, kMaxInt, 0));
  config.finish();
  return p;
}

}  // namespace

CodecPtr make_blosc(const CodecSpec& spec, const CodecSite& site) {
  return std::make_shared<Blosc>(parse_blosc(spec, site));
}

CodecPtr make_c_blosc(const CodecSpec& spec, const CodecSite& site) {
  return std::make_shared<CBlosc>(parse_blosc(spec, site));
}

}  // namespace headrace
