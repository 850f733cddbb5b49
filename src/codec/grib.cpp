// grib: bytes -> bytes, a whole GRIB 2 message with one field, decoded to its values: kerchunk's
// codec. Missing values are 9999, as eccodes gives them.
// Compatibility: eccodes, bit for bit: simple packing (template 5.0), complex packing without and
// with spatial differences (5.2, 5.3), IEEE floats (5.4), CCSDS (5.42, by libaec), and bitmaps.
// What else a message may have, and `var` "latitude" and "longitude", another provider of the codec
// decodes where there is one: kerchunk's, in Python.
// Spec: WMO No. 306, Manual on Codes, volume I.2, part B, FM 92 GRIB
// {"id": "grib", "var": "t2m", "dtype": "float64"}

#include <array>
#include <cmath>

#include "base/checked.h"
#include "codec/aec.h"
#include "codec/bit_reader.h"
#include "codec/byteswap.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/custom.h"
#include "codec/decode_only.h"
#include "codec/elements.h"
#include "codec/scratch.h"

namespace headrace {
namespace {

constexpr double kMissing = 9999;
constexpr std::size_t kIndicatorNbytes = 16, kEndNbytes = 4, kSectionHead = 5;

[[noreturn]] void throw_unsupported(const std::string& what) {
  throw Error(ErrorCode::unsupported, what);
}

// A part of a message, read by the numbers that the octets have in the manual, which begin at 1.
class Section {
 public:
  Section() = default;
  explicit Section(ConstBytes bytes) : bytes_(bytes) {}

  bool present() const { return !bytes_.empty(); }
  template <std::unsigned_integral T>
  T octets(std::size_t first) const {
    if (first + sizeof(T) - 1 > bytes_.size()) throw_corrupt("a section is cut short");
    return load_be<T>(bytes_.data() + first - 1);
  }
  unsigned octet(std::size_t first) const { return octets<std::uint8_t>(first); }
  // The first bit is the sign.
  int signed_octets(std::size_t first) const {
    const int v = octets<std::uint16_t>(first);
    return v < 0x8000 ? v : 0x8000 - v;
  }
  ConstBytes from(std::size_t first) const {
    if (first - 1 > bytes_.size()) throw_corrupt("a section is cut short");
    return bytes_.subspan(first - 1);
  }

 private:
  ConstBytes bytes_;
};

struct Message {
  Section grid, representation, bitmap, data;
};

Message read_message(ConstBytes src) {
  if (src.size() < kIndicatorNbytes || text_of(src.first(4)) != "GRIB") {
    throw_corrupt("this is no GRIB message");
  }
  const unsigned edition = std::to_integer<unsigned>(src[7]);
  if (edition != 2) throw_unsupported("GRIB edition " + std::to_string(edition));
  const auto nbytes = load_be<std::uint64_t>(src.data() + 8);
  if (nbytes > src.size()) throw_corrupt("the message is cut short");
  src = src.first(static_cast<std::size_t>(nbytes));
  Message message;
  Section* const kept[] = {
      &message.grid, nullptr, &message.representation, &message.bitmap, &message.data};
  std::size_t at = kIndicatorNbytes;
  while (true) {
    if (at > src.size() || src.size() - at < kEndNbytes) throw_corrupt("sections are missing");
    if (text_of(src.subspan(at, kEndNbytes)) == "7777") break;
    if (src.size() - at < kSectionHead) throw_corrupt("sections are missing");
    const std::size_t n = load_be<std::uint32_t>(src.data() + at);
    if (n < kSectionHead || n > src.size() - at) throw_corrupt("a section has an impossible size");
    const unsigned number = std::to_integer<unsigned>(src[at + 4]);
    if (message.data.present()) throw_unsupported("a message with several fields");
    if (number >= 3 && number <= 7 && kept[number - 3]) {
      *kept[number - 3] = Section(src.subspan(at, n));
    }
    at += n;
  }
  for (const Section* const section : kept) {
    if (section && !section->present()) throw_corrupt("sections are missing");
  }
  return message;
}

// Values come one by one, those that the bitmap has.
template <typename T>
class Points {
 public:
  Points(const Section& bitmap, MutableBytes dst) : dst_(dst), count_(dst.size() / sizeof(T)) {
    const unsigned indicator = bitmap.octet(6);
    if (indicator == 255) return;
    if (indicator != 0) throw_unsupported("a bitmap that is not in the message");
    bitmap_ = bitmap.from(7);
    if (bitmap_.size() < (count_ + 7) / 8) throw_corrupt("the bitmap is cut short");
    has_bitmap_ = true;
  }

  void put(double value) {
    pass_missing();
    if (at_ == count_) throw_corrupt("more values than points");
    store(value);
  }
  void finish() {
    pass_missing();
    if (at_ != count_) throw_corrupt("fewer values than points");
  }

 private:
  void pass_missing() {
    if (!has_bitmap_) return;
    while (at_ < count_ && (bitmap_[at_ / 8] >> (7 - at_ % 8) & std::byte{1}) == std::byte{0}) {
      store(kMissing);
    }
  }
  void store(double value) {
    store_element(dst_.data() + at_ * sizeof(T), static_cast<T>(value));
    ++at_;
  }

  MutableBytes dst_;
  std::size_t count_;
  std::size_t at_ = 0;
  ConstBytes bitmap_;
  bool has_bitmap_ = false;
};

// One multiplication or division a power: so round eccodes' scales.
double power(double base, int exponent) {
  double v = 1;
  for (; exponent < 0; ++exponent) v /= base;
  for (; exponent > 0; --exponent) v *= base;
  return v;
}

// What the templates 5.0, 5.2, 5.3 and 5.42 begin with.
struct Scale {
  double reference, binary, decimal;
  unsigned nbits;

  explicit Scale(const Section& r)
      : reference(std::bit_cast<float>(r.octets<std::uint32_t>(12))),
        binary(power(2, r.signed_octets(16))),
        decimal(power(10, -r.signed_octets(18))),
        nbits(r.octet(20)) {
    if (nbits > 64) throw_corrupt("values of " + std::to_string(nbits) + " bits");
  }
  double operator()(double v) const { return (v * binary + reference) * decimal; }
};

template <typename Put>
void unpack_simple(const Message& message, std::size_t n, Put put) {
  const Scale scale(message.representation);
  BitReader bits(message.data.from(6));
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t v = bits.read(scale.nbits);
    put(scale.nbits == 0 ? scale.reference : scale(static_cast<double>(v)));
  }
}

template <typename Put>
void unpack_ccsds(const Message& message, std::size_t n, Put put) {
  const Section& r = message.representation;
  const Scale scale(r);
  if (scale.nbits == 0) {
    for (std::size_t i = 0; i < n; ++i) put(scale.reference);
    return;
  }
  const unsigned flags = r.octet(22);
  AecStream stream;
  stream.bits_per_sample = scale.nbits;
  stream.block_size = r.octet(23);
  stream.rsi = r.octets<std::uint16_t>(24);
  stream.msb = true;
  stream.preprocessed = (flags & 8) != 0;
  stream.restricted = (flags & 16) != 0;
  stream.padded = (flags & 32) != 0;
  if ((flags & 1) != 0 || scale.nbits > 32) throw_unsupported("CCSDS packing of signed values");
  const std::size_t size = aec_sample_nbytes(scale.nbits);
  Scratch samples(checked_mul(n, size, "values"));
  decode_aec(stream, message.data.from(6), samples.bytes());
  for (std::size_t i = 0; i < n; ++i) {
    const std::byte* const p = samples.data() + i * size;
    const std::uint32_t v = size == 1   ? std::to_integer<std::uint32_t>(*p)
                            : size == 2 ? load_be<std::uint16_t>(p)
                                        : load_be<std::uint32_t>(p);
    put(scale(v));
  }
}

template <typename Put>
void unpack_ieee(const Message& message, std::size_t n, Put put) {
  const unsigned precision = message.representation.octet(12);
  if (precision != 1 && precision != 2) throw_unsupported("floats of 128 bits");
  const std::size_t size = precision == 1 ? 4 : 8;
  const ConstBytes data = message.data.from(6);
  if (data.size() / size < n) throw_corrupt("the values are cut short");
  for (std::size_t i = 0; i < n; ++i) {
    const std::byte* const p = data.data() + i * size;
    put(size == 4 ? static_cast<double>(std::bit_cast<float>(load_be<std::uint32_t>(p)))
                  : std::bit_cast<double>(load_be<std::uint64_t>(p)));
  }
}

struct Group {
  std::uint64_t reference = 0;
  std::uint64_t length = 0;
  unsigned width = 0;
};

std::vector<Group> read_groups(const Section& r, unsigned nbits, std::size_t n, BitReader& bits) {
  const std::size_t count = r.octets<std::uint32_t>(32);
  if (count == 0 || count > n) throw_corrupt("more groups than values");
  const unsigned width_bits = r.octet(37), length_bits = r.octet(47);
  if (width_bits > 32 || length_bits > 32) throw_corrupt("groups beyond any size");
  std::vector<Group> groups(count);
  for (Group& g : groups) g.reference = bits.read(nbits);
  bits.to_next_byte();
  for (Group& g : groups) {
    const std::uint64_t width = r.octet(36) + bits.read(width_bits);
    if (width > 63) throw_corrupt("values of " + std::to_string(width) + " bits");
    g.width = static_cast<unsigned>(width);
  }
  bits.to_next_byte();
  const std::uint64_t least = r.octets<std::uint32_t>(38), step = r.octet(42);
  for (Group& g : groups) g.length = least + bits.read(length_bits) * step;
  bits.to_next_byte();
  groups.back().length = r.octets<std::uint32_t>(43);
  std::uint64_t left = n;
  for (const Group& g : groups) {
    if (g.length > left) throw_corrupt("groups hold more values than there are");
    left -= g.length;
  }
  if (left != 0) throw_corrupt("groups hold fewer values than there are");
  return groups;
}

// The first values, and the least difference, of spatial differencing.
struct Differencing {
  unsigned order = 0;
  std::array<std::uint64_t, 2> first{};
  std::uint64_t least = 0;
};

Differencing read_differencing(const Section& r, BitReader& bits) {
  Differencing d;
  d.order = r.octet(48);
  const unsigned nbytes = r.octet(49);
  if (d.order < 1 || d.order > 2 || nbytes > 8) throw_corrupt("differences of an unknown order");
  for (unsigned i = 0; i < d.order; ++i) d.first[i] = bits.read(8 * nbytes);
  if (nbytes > 0) {
    const bool negative = bits.read(1) != 0;
    const std::uint64_t magnitude = bits.read(8 * nbytes - 1);
    d.least = negative ? 0 - magnitude : magnitude;
  }
  return d;
}

// Sums wrap: a message may say anything.
class Integrator {
 public:
  explicit Integrator(const Differencing& differencing) : d_(differencing) {}

  std::uint64_t operator()(std::uint64_t v) {
    if (d_.order == 0) return v;
    if (seen_ < d_.order) {
      v = d_.first[seen_++];
    } else {
      v += d_.least + (d_.order == 1 ? last_ : 2 * last_ - before_);
    }
    before_ = last_;
    last_ = v;
    return v;
  }

 private:
  const Differencing d_;
  unsigned seen_ = 0;
  std::uint64_t last_ = 0, before_ = 0;
};

template <typename Put>
void unpack_complex(const Message& message, std::size_t n, bool differences, Put put) {
  const Section& r = message.representation;
  const Scale scale(r);
  const unsigned missing_kinds = r.octet(23);
  if (missing_kinds > 2) throw_corrupt("missing values of an unknown kind");
  BitReader bits(message.data.from(6));
  Integrator integrate(differences ? read_differencing(r, bits) : Differencing{});
  if (n == 0) return;
  for (const Group& g : read_groups(r, scale.nbits, n, bits)) {
    // The greatest values of a width mark what is missing; of none, those of the references.
    const std::uint64_t most = low_bits(g.width == 0 ? scale.nbits : g.width);
    for (std::uint64_t i = 0; i < g.length; ++i) {
      const std::uint64_t packed = g.width == 0 ? g.reference : bits.read(g.width);
      if (missing_kinds > 0 && packed <= most && most - packed < missing_kinds) {
        put(kMissing);
        continue;
      }
      const std::uint64_t v = integrate(g.width == 0 ? packed : g.reference + packed);
      put(scale(static_cast<double>(static_cast<std::int64_t>(v))));
    }
  }
}

template <typename T>
void unpack(ConstBytes src, MutableBytes dst) {
  const Message message = read_message(src);
  const std::size_t points = message.grid.octets<std::uint32_t>(7);
  check_decoded_size(dst.size(), checked_mul(points, sizeof(T), "points"));
  const std::size_t n = message.representation.octets<std::uint32_t>(6);
  if (n > points) throw_corrupt("more values than points");
  Points<T> out(message.bitmap, dst);
  const auto put = [&](double v) { out.put(v); };
  const unsigned packing = message.representation.octets<std::uint16_t>(10);
  switch (packing) {
    case 0:
      unpack_simple(message, n, put);
      break;
    case 2:
    case 3:
      unpack_complex(message, n, packing == 3, put);
      break;
    case 4:
      unpack_ieee(message, n, put);
      break;
    case 42:
      unpack_ccsds(message, n, put);
      break;
    default:
      throw_unsupported("packing by template 5." + std::to_string(packing));
  }
  out.finish();
}

class Grib final : public DecodeOnly {
 public:
  // `other` may be null.
  Grib(ElementType type, CodecPtr other) : type_(type), other_(std::move(other)) {}

  std::string_view name() const override { return "grib"; }
  // A message describes its grid and its product besides, and may pack a value into any width.
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    constexpr std::size_t kSections = 1 << 20;
    return EncodedNbytes::at_most(
        checked_add(checked_mul<std::size_t>(n, 3, "grib"), kSections, "grib"));
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext& context) const override {
    try {
      type_.size == 4 ? unpack<float>(src, dst) : unpack<double>(src, dst);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported || !other_) throw;
      return other_->decode(src, dst, context);
    }
    if (type_.swapped) swap_bytes(type_.size, dst.data(), dst.data(), dst.size() / type_.size);
  }
  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    const std::size_t points = read_message(src).grid.octets<std::uint32_t>(7);
    resize_said(dst, points * type_.size, src, max_nbytes);
    decode(src, dst.bytes(), {});
  }

 private:
  const ElementType type_;
  const CodecPtr other_;
};

}  // namespace

CodecPtr make_grib(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  const std::string var = config.string("var", "values");
  const bool coordinates = var == "latitude" || var == "longitude";
  const std::string text = config.string("dtype", coordinates ? "float64" : "float32");
  config.finish();
  CodecPtr other = make_custom(spec, site);
  if (other && other->kind() != CodecKind::bytes_to_bytes) other = nullptr;
  const std::optional<ElementType> type = ElementType::parse(text);
  if (!coordinates && type && type->is_floating() && type->size >= 4) {
    return std::make_shared<Grib>(*type, std::move(other));
  }
  if (other) return other;
  throw Error(ErrorCode::unsupported,
              "codec " + spec.name + ": " + (coordinates ? var + " of a grid" : "as " + text) +
                  "; in Python, kerchunk has a decoder for it");
}

}  // namespace headrace
