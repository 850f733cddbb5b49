// packbits of the extension registry: array -> bytes, of each element only bits `first_bit` to
// `last_bit`, one after the other from the lowest bit of the first byte.
// `padding_encoding` says where the number of bits that fill up the last byte stands: "none" (the
// default), "first_byte" or "last_byte".
// Compatibility: zarrs. numcodecs' "packbits" is packbits.cpp.
// Spec: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/packbits
// {"name": "packbits", "configuration": {"padding_encoding": "none", "last_bit": 11}}

#include <algorithm>
#include <cstring>

#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/sizes.h"
#include "format/small_float.h"

namespace headrace {
namespace {

enum class Padding : std::uint8_t { none, first_byte, last_byte };

// What elements consist of: of complex numbers, two components.
struct Component {
  std::size_t nbytes = 1;
  unsigned bits = 8;
  bool is_signed = false;
};

std::optional<Component> component_of(const DType& dtype) {
  const std::string name = dtype.name();
  Component c{dtype.itemsize(), static_cast<unsigned>(8 * dtype.itemsize()), false};
  switch (dtype.kind()) {
    case DType::Kind::boolean:
      c.bits = 1;
      return c;
    case DType::Kind::signed_integer:
    case DType::Kind::unsigned_integer:
      if (name.ends_with("int2")) c.bits = 2;
      if (name.ends_with("int4")) c.bits = 4;
      c.is_signed = dtype.kind() == DType::Kind::signed_integer;
      return c;
    case DType::Kind::floating:
    case DType::Kind::ml_floating:
      c.bits = static_cast<unsigned>(float_layout(dtype).bits);
      return c;
    case DType::Kind::datetime:
    case DType::Kind::timedelta:
      c.is_signed = true;  // counts of 64 bits, as integers are packed
      return c;
    case DType::Kind::complex:
      return Component{c.nbytes / 2, c.bits / 2, false};
    default:
      return std::nullopt;
  }
}

std::uint64_t mask(unsigned bits) { return ~std::uint64_t{0} >> (64 - bits); }

std::uint64_t load_component(const std::byte* p, std::size_t nbytes) {
  std::uint64_t v = 0;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&v, p, nbytes);
  } else {
    std::memcpy(reinterpret_cast<std::byte*>(&v) + 8 - nbytes, p, nbytes);
  }
  return v;
}

void store_component(std::byte* p, std::uint64_t v, std::size_t nbytes) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&v);
  std::memcpy(p, std::endian::native == std::endian::little ? bytes : bytes + 8 - nbytes, nbytes);
}

class PackBitsArray final : public Codec {
 public:
  // Bits [first, first + bits) of each component.
  PackBitsArray(Component component, unsigned first, unsigned bits, Padding padding)
      : component_(component), first_(first), bits_(bits), padding_(padding) {}

  CodecKind kind() const override { return CodecKind::array_to_bytes; }
  std::string_view name() const override { return "packbits"; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::exactly(nbytes_of(n));
  }
  ChunkSpec encoded_spec(const ChunkSpec& in) const override {
    return {DType::uint8, {static_cast<std::int64_t>(nbytes_of(in.nbytes()))}, {}};
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override;
  void encode(ConstBytes src, Buffer& dst) const override;

 private:
  std::size_t count(std::size_t decoded_nbytes) const { return decoded_nbytes / component_.nbytes; }
  std::size_t packed_nbytes(std::size_t n) const { return (count(n) * bits_ + 7) / 8; }
  std::size_t nbytes_of(std::size_t n) const {
    return packed_nbytes(n) + (padding_ == Padding::none ? 0 : 1);
  }
  std::byte padding(std::size_t n) const {
    return static_cast<std::byte>(8 * packed_nbytes(n) - count(n) * bits_);
  }

  Component component_;
  unsigned first_, bits_;
  Padding padding_;
};

void PackBitsArray::decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const {
  check_decoded_size(nbytes_of(dst.size()), src.size());
  if (padding_ != Padding::none) {
    const bool first = padding_ == Padding::first_byte;
    const std::byte said = first ? src.front() : src.back();
    if (said != padding(dst.size())) {
      throw_corrupt("expected " + std::to_string(std::to_integer<int>(padding(dst.size()))) +
                    " bits of padding, got " + std::to_string(std::to_integer<int>(said)));
    }
    src = src.subspan(first ? 1 : 0, src.size() - 1);
  }
  const unsigned last = first_ + bits_ - 1;
  const std::uint64_t above = component_.is_signed ? ~mask(last + 1) : 0;
  std::size_t at = 0;  // bits
  for (std::size_t i = 0; i < count(dst.size()); ++i) {
    std::uint64_t v = 0;
    for (unsigned done = 0; done < bits_;) {
      const unsigned within = at % 8;
      const unsigned n = std::min(8 - within, bits_ - done);
      v |= (std::to_integer<std::uint64_t>(src[at / 8]) >> within & mask(n)) << done;
      done += n;
      at += n;
    }
    v <<= first_;
    if ((v >> last & 1) != 0) v |= above;
    store_component(dst.data() + i * component_.nbytes, v, component_.nbytes);
  }
}

void PackBitsArray::encode(ConstBytes src, Buffer& dst) const {
  dst.resize(nbytes_of(src.size()));
  std::byte* packed = dst.data();
  if (padding_ == Padding::first_byte) *packed++ = padding(src.size());
  if (padding_ == Padding::last_byte) packed[packed_nbytes(src.size())] = padding(src.size());
  std::fill_n(packed, packed_nbytes(src.size()), std::byte{0});
  std::size_t at = 0;  // bits
  for (std::size_t i = 0; i < count(src.size()); ++i) {
    std::uint64_t v =
        load_component(src.data() + i * component_.nbytes, component_.nbytes) >> first_;
    for (unsigned done = 0; done < bits_;) {
      const unsigned within = at % 8;
      const unsigned n = std::min(8 - within, bits_ - done);
      packed[at / 8] |= static_cast<std::byte>((v & mask(n)) << within);
      v >>= n;
      done += n;
      at += n;
    }
  }
}

Padding read_padding(CodecConfig& config) {
  const std::string text = config.string("padding_encoding", "none");
  if (text == "none") return Padding::none;
  if (text == "first_byte") return Padding::first_byte;
  if (text == "last_byte") return Padding::last_byte;
  config.fail("padding_encoding",
              "must be \"none\", \"first_byte\" or \"last_byte\", got \"" + text + '"');
}

}  // namespace

CodecPtr make_pack_bits_array(const CodecSpec& spec, const CodecSite& site) {
  const std::optional<Component> component = component_of(site.in.dtype);
  if (!component) {
    throw Error(ErrorCode::unsupported,
                "codec packbits: packs numbers and booleans, not " + site.in.dtype.to_string());
  }
  CodecConfig config(spec);
  const Padding padding = read_padding(config);
  const std::int64_t highest = component->bits - 1;
  const std::int64_t first = config.integer("first_bit", 0, highest, 0);
  const std::int64_t last = config.integer("last_bit", first, highest, highest);
  config.finish();
  return std::make_shared<PackBitsArray>(
      *component, static_cast<unsigned>(first), static_cast<unsigned>(last - first + 1), padding);
}

}  // namespace headrace
