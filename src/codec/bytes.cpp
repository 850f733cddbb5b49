// bytes: array -> bytes, elements in C order and the byte order of `endian`.
// Compatibility: every Zarr implementation; "endian" may be missing for one-byte types.
// Spec: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/bytes/index.html
// {"name": "bytes", "configuration": {"endian": "little"}}

#include <algorithm>
#include <cstring>

#include "codec/byteswap.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

// Swaps pieces on their way to another sink.
class SwapSink final : public PieceSink {
 public:
  SwapSink(std::size_t unit, PieceSink& to) : unit_(unit), to_(to) {}

  std::size_t begin() const override { return round_down(to_.begin()); }
  std::size_t end() const override { return round_up(to_.end()); }
  bool wants(std::size_t offset, std::size_t nbytes) const override {
    const std::size_t first = round_down(offset);
    return to_.wants(first, round_up(offset + nbytes) - first);
  }
  std::byte* direct(std::size_t, std::size_t) override { return nullptr; }

  void put(std::size_t offset, ConstBytes piece) override {
    const std::size_t head = std::min(round_up(offset) - offset, piece.size());
    const std::size_t tail = head + round_down(piece.size() - head);
    put_parts(offset, piece.first(head));
    std::byte tile[kTile];
    for (std::size_t at = head; at < tail; at += kTile) {
      const std::size_t n = std::min(kTile, tail - at);
      if (!to_.wants(offset + at, n)) continue;
      std::byte* const direct = to_.direct(offset + at, n);
      swap_bytes(unit_, piece.data() + at, direct ? direct : tile, n / unit_);
      if (!direct) to_.put(offset + at, {tile, n});
    }
    put_parts(offset + tail, piece.subspan(tail));
  }

 private:
  static constexpr std::size_t kTile = 16 * 1024;  // stays in the L1 cache

  std::size_t round_down(std::size_t n) const { return n / unit_ * unit_; }
  std::size_t round_up(std::size_t n) const { return round_down(n + unit_ - 1); }

  // Bytes of a unit that another piece has the rest of.
  void put_parts(std::size_t offset, ConstBytes bytes) {
    for (const std::byte& b : bytes) {
      const std::size_t within = offset % unit_;
      to_.put(offset - within + unit_ - 1 - within, {&b, 1});
      ++offset;
    }
  }

  const std::size_t unit_;
  PieceSink& to_;
};

class Bytes final : public Codec, public PieceFilter {
 public:
  explicit Bytes(std::size_t swap_unit) : swap_unit_(swap_unit) {}

  CodecKind kind() const override { return CodecKind::array_to_bytes; }
  std::string_view name() const override { return "bytes"; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override { return EncodedNbytes::exactly(n); }
  Transform transform() const override {
    return swap_unit_ == 1 ? Transform::identity : Transform::in_place;
  }
  std::optional<DeviceStage> device_stage() const override {
    return DeviceStage{DeviceStage::Kind::swap, static_cast<std::uint32_t>(swap_unit_)};
  }
  PartialDecoder partial_decoder() const override {
    if (swap_unit_ > 1) return this;
    return {};
  }
  std::unique_ptr<PieceSink> filter(PieceSink& decoded) const override {
    return std::make_unique<SwapSink>(swap_unit_, decoded);
  }

  ChunkSpec encoded_spec(const ChunkSpec& in) const override {
    ChunkSpec out = in;
    out.swapped = swap_unit_ > 1;
    return out;
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(dst.size(), src.size());
    swap(src, dst.data());
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    dst.resize(src.size());
    swap(src, dst.data());
  }

 private:
  void swap(ConstBytes src, std::byte* dst) const {
    if (src.size() % swap_unit_ != 0) {
      throw_corrupt(std::to_string(src.size()) + " bytes are no multiple of " +
                    std::to_string(swap_unit_));
    }
    if (swap_unit_ > 1) {
      swap_bytes(swap_unit_, src.data(), dst, src.size() / swap_unit_);
    } else if (dst != src.data() && !src.empty()) {
      std::memcpy(dst, src.data(), src.size());
    }
  }

  std::size_t swap_unit_;
};

}  // namespace

CodecPtr make_bytes(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  const std::size_t unit = site.in.dtype.swap_size();
  if (site.in.dtype.variable_length()) {
    throw Error(ErrorCode::unsupported,
                "codec bytes: elements of " + site.in.dtype.to_string() + " have no fixed size");
  }
  bool swap = false;
  if (config.has("endian")) {
    const std::string endian = config.string("endian");
    if (endian != "little" && endian != "big") {
      config.fail("endian", "must be \"little\" or \"big\", got \"" + endian + "\"");
    }
    swap = (endian == "little") != (std::endian::native == std::endian::little);
  } else if (unit > 1) {
    config.fail("endian", "is missing for elements of " + site.in.dtype.to_string());
  }
  config.finish();
  return std::make_shared<Bytes>(swap ? unit : 1);
}

}  // namespace headrace
