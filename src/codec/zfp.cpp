// zfp, numbers in 1 to 4 dimensions with as much error as is asked for, or none: "zfpy" of
// numcodecs, with a header that says how to decode, and "zfp" of the extension registry, without.
// array -> bytes; numcodecs' in v2, bytes -> bytes.
// Compatibility: int32, int64, float32, float64. numcodecs counts modes: 2 is a fixed rate, 3 a
// fixed precision, 4 a fixed accuracy, and one without its parameter is reversible.
// Spec: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/zfp,
//       https://numcodecs.readthedocs.io/en/stable/compression/zfpy.html,
//       https://zfp.readthedocs.io
// {"name": "zfp", "configuration": {"mode": "fixed_accuracy", "tolerance": 0.05}}
// {"name": "numcodecs.zfpy", "configuration": {"mode": 4, "tolerance": 0.05}}

#include <zfp.h>
#include <zfp/bitstream.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "codec/codecs.h"
#include "codec/scratch.h"
#include "codec/sizes.h"
#include "codec/typed_filter.h"

namespace headrace {
namespace {

struct Mode {
  enum class Kind : std::uint8_t { reversible, rate, precision, accuracy, expert };
  Kind kind = Kind::reversible;
  double value = 0;  // rate, precision or accuracy
  unsigned min_bits = 0, max_bits = 0, max_precision = 0;
  int min_exponent = 0;
};

// libzfp's two handles on memory that it reads or writes by words.
class Stream {
 public:
  explicit Stream(MutableBytes memory)
      : bits_(stream_open(memory.data(), memory.size()), stream_close),
        zfp_(zfp_stream_open(bits_.get()), zfp_stream_close) {
    if (!bits_ || !zfp_) throw Error(ErrorCode::out_of_memory, "libzfp cannot allocate a stream");
  }
  operator zfp_stream*() const { return zfp_.get(); }
  std::size_t bits_read() const { return stream_rtell(bits_.get()); }

 private:
  std::unique_ptr<bitstream, void (*)(bitstream*)> bits_;
  std::unique_ptr<zfp_stream, void (*)(zfp_stream*)> zfp_;
};

bool set_mode(zfp_stream* stream, const Mode& mode, const zfp_field& field) {
  switch (mode.kind) {
    case Mode::Kind::reversible:
      zfp_stream_set_reversible(stream);
      return true;
    case Mode::Kind::rate:
      zfp_stream_set_rate(stream, mode.value, field.type, zfp_field_dimensionality(&field), 0);
      return true;
    case Mode::Kind::precision:
      zfp_stream_set_precision(stream, static_cast<unsigned>(mode.value));
      return true;
    case Mode::Kind::accuracy:
      zfp_stream_set_accuracy(stream, mode.value);
      return true;
    case Mode::Kind::expert:
      break;
  }
  return zfp_stream_set_params(
      stream, mode.min_bits, mode.max_bits, mode.max_precision, mode.min_exponent);
}

// Most builds of libzfp read and write words of 8 bytes, and past an end in the middle of one;
// Debian's takes bytes.
std::size_t whole_words(std::size_t nbytes) { return (nbytes + 7) / 8 * 8; }

// Blocks of 4 to the power of the dimensions.
std::size_t count_blocks(const zfp_field& field) {
  std::size_t n = 1;
  for (const std::size_t extent : {field.nx, field.ny, field.nz, field.nw}) {
    if (extent > 0) n = checked_mul(n, extent / 4 + (extent % 4 != 0 ? 1 : 0), "zfp");
  }
  return n;
}

enum class Header : std::uint8_t { none, full };  // before the stream

class Zfp final : public Codec {
 public:
  Zfp(const ChunkSpec& in, zfp_type type, const Mode& mode, Header header, CodecPosition position)
      : type_(type),
        nbytes_(in.nbytes()),
        shape_(in.shape),
        mode_(mode),
        header_(header == Header::full),
        position_(position) {
    if (shape_.empty()) shape_ = {1};
    const Stream stream({});
    if (!set_mode(stream, mode_, field(nullptr))) {
      throw Error(ErrorCode::invalid_argument, "codec zfp: libzfp does not take these parameters");
    }
  }

  CodecKind kind() const override {
    return position_ == CodecPosition::before_bytes ? CodecKind::array_to_bytes
                                                    : CodecKind::bytes_to_bytes;
  }
  std::string_view name() const override { return header_ ? "zfpy" : "zfp"; }
  std::string_view implementation() const override { return "libzfp"; }
  EncodedNbytes encoded_nbytes(std::size_t) const override {
    const zfp_field f = field(nullptr);
    const Stream stream({});
    set_mode(stream, mode_, f);
    return EncodedNbytes::at_most(whole_words(zfp_stream_maximum_size(stream, &f)));
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override;
  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    resize_decoded(dst, nbytes_, max_nbytes);
    decode(src, dst.bytes(), {});
  }
  void encode(ConstBytes src, Buffer& dst) const override;

 private:
  zfp_field field(std::byte* data) const;
  // The field that the header tells of, which must be as large as this one.
  zfp_field read_header(zfp_stream* stream) const;

  zfp_type type_;
  std::size_t nbytes_;
  Shape shape_;
  Mode mode_;
  bool header_;
  CodecPosition position_;
};

zfp_field Zfp::field(std::byte* data) const {
  zfp_field f{};
  f.type = type_;
  f.data = data;
  std::size_t* const extents[] = {&f.nx, &f.ny, &f.nz, &f.nw};
  for (std::size_t d = 0; d < shape_.size(); ++d) {
    *extents[shape_.size() - 1 - d] = static_cast<std::size_t>(shape_[d]);
  }
  return f;
}

zfp_field Zfp::read_header(zfp_stream* stream) const {
  zfp_field f{};
  if (zfp_read_header(stream, &f, ZFP_HEADER_FULL) == 0) throw_corrupt("the header is malformed");
  if (f.type != type_) throw_corrupt("the header says another type of numbers");
  std::size_t n = zfp_type_size(f.type);
  for (const std::size_t extent : {f.nx, f.ny, f.nz, f.nw}) {
    if (extent > 0 && __builtin_mul_overflow(n, extent, &n)) throw_corrupt("the header overflows");
  }
  check_decoded_size(nbytes_, f.nx == 0 ? 0 : n);
  return f;
}

// libzfp reads on past the end of what is cut short. So it gets a copy with zeros behind it, enough
// for all blocks: a block of zeros takes one bit a plane of bits at most, or the least that all
// blocks have, which is checked before.
void Zfp::decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const {
  check_decoded_size(dst.size(), nbytes_);
  if (nbytes_ == 0) return;
  zfp_field f = field(nullptr);
  if (header_) {
    alignas(8) std::array<std::byte, 32> start{};  // of which a header takes 19 at most
    std::copy_n(src.data(), std::min(src.size(), start.size()), start.data());
    f = read_header(Stream(start));
  }
  constexpr std::size_t kLargestBlock = 8192;
  constexpr std::size_t kBlockOfZeros = 16;
  const std::size_t blocks = count_blocks(f);
  Scratch copy(2 * src.size() + kLargestBlock + blocks * kBlockOfZeros);
  if (!src.empty()) std::memcpy(copy.data(), src.data(), src.size());
  std::memset(copy.data() + src.size(), 0, copy->size() - src.size());

  const Stream stream(copy.bytes());
  if (header_) {
    f = read_header(stream);
  } else {
    set_mode(stream, mode_, f);
  }
  f.data = dst.data();
  unsigned min_bits = 0;
  zfp_stream_params(stream, &min_bits, nullptr, nullptr, nullptr);
  const std::size_t bits = 8 * whole_words(src.size());
  if (blocks > bits / std::max(min_bits, 1U) || zfp_decompress(stream, &f) == 0 ||
      stream.bits_read() > bits) {
    throw_corrupt("the stream is cut short");
  }
}

void Zfp::encode(ConstBytes src, Buffer& dst) const {
  check_decoded_size(nbytes_, src.size());
  dst.resize(0);
  if (nbytes_ == 0) return;
  zfp_field f = field(const_cast<std::byte*>(src.data()));  // it only reads it
  dst.resize(encoded_nbytes(src.size()).most);
  const Stream stream(dst.bytes());
  set_mode(stream, mode_, f);
  const bool ready = !header_ || zfp_write_header(stream, &f, ZFP_HEADER_FULL) > 0;
  const std::size_t n = ready ? zfp_compress(stream, &f) : 0;
  if (n == 0) throw Error(ErrorCode::invalid_argument, "encode: libzfp does not take this");
  dst.resize_keep(whole_words(n));
  std::memset(dst.data() + n, 0, dst.size() - n);
}

zfp_type type_of(const CodecSpec& spec, const CodecSite& site) {
  const ElementType type = number_type(spec, site.in.dtype);
  const bool natural = type.kind == ElementType::Kind::natural;
  if (natural || type.size < 4 || site.in.swapped) {
    throw Error(ErrorCode::unsupported,
                "codec " + spec.name + ": takes int32, int64, float32 and float64 in native order");
  }
  if (site.in.shape.size() > 4) {
    throw Error(ErrorCode::unsupported, "codec " + spec.name + ": takes 4 dimensions at most");
  }
  if (type.is_floating()) return type.size == 4 ? zfp_type_float : zfp_type_double;
  return type.size == 4 ? zfp_type_int32 : zfp_type_int64;
}

constexpr double kMaxRate = 64;  // bits a number

double read_number(CodecConfig& config, const char* field, double max) {
  const double v = config.number(field);
  if (!(v >= 0 && v <= max)) config.fail(field, "is out of range: " + std::to_string(v));
  return v;
}

}  // namespace

CodecPtr make_zfp(const CodecSpec& spec, const CodecSite& site) {
  const zfp_type type = type_of(spec, site);
  CodecConfig config(spec);
  const std::string name = config.string("mode");
  Mode mode;
  if (name == "fixed_rate") {
    mode = {Mode::Kind::rate, read_number(config, "rate", kMaxRate)};
  } else if (name == "fixed_precision") {
    mode = {Mode::Kind::precision, static_cast<double>(config.integer("precision", 1, 64))};
  } else if (name == "fixed_accuracy") {
    mode = {Mode::Kind::accuracy, read_number(config, "tolerance", HUGE_VAL)};
  } else if (name == "expert") {
    mode.kind = Mode::Kind::expert;
    mode.min_bits = static_cast<unsigned>(config.integer("minbits", 0, ZFP_MAX_BITS));
    mode.max_bits = static_cast<unsigned>(config.integer("maxbits", 1, UINT16_MAX));
    mode.max_precision = static_cast<unsigned>(config.integer("maxprec", 1, ZFP_MAX_PREC));
    mode.min_exponent = static_cast<int>(config.integer("minexp", ZFP_MIN_EXP, INT16_MAX));
  } else if (name != "reversible") {
    config.fail("mode", "is unknown: \"" + name + '"');
  }
  config.finish();
  return std::make_shared<Zfp>(site.in, type, mode, Header::none, site.position);
}

CodecPtr make_zfpy(const CodecSpec& spec, const CodecSite& site) {
  const zfp_type type = type_of(spec, site);
  CodecConfig config(spec);
  const std::int64_t number = config.integer("mode", 0, 5, zfp_mode_fixed_accuracy);
  const bool has_rate = config.has("rate") && config.number("rate") >= 0;
  const double rate = has_rate ? read_number(config, "rate", kMaxRate) : -1;
  const double tolerance = config.has("tolerance") ? config.number("tolerance") : -1;
  const auto precision = static_cast<double>(config.integer("precision", -1, 64, -1));
  config.ignore("compression_kwargs");
  config.finish();
  Mode mode;
  if (number == zfp_mode_fixed_rate && rate >= 0) mode = {Mode::Kind::rate, rate};
  if (number == zfp_mode_fixed_precision && precision >= 0) {
    mode = {Mode::Kind::precision, precision};
  }
  if (number == zfp_mode_fixed_accuracy && tolerance >= 0) mode = {Mode::Kind::accuracy, tolerance};
  return std::make_shared<Zfp>(site.in, type, mode, Header::full, site.position);
}

}  // namespace headrace
