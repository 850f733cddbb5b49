// hdf5_scaleoffset: bytes -> bytes, HDF5's filter 6: the least value of a chunk, and what the
// others have beyond it in as few bits as that takes; floats are rounded to decimal digits before.
// Compatibility: HDF5's decoder, bit for bit. `cd_values` are those of the file: method (0: floats
// by decimal digits, 2: integers), digits, elements of a chunk, class (0: integer, 1: float), size,
// sign, order of bytes (0: little), whether there is a fill value, and its bytes.
// Spec: https://docs.hdfgroup.org/documentation/hdf5/latest/group___d_c_p_l.html
// (H5Pset_scaleoffset);
//       what the bytes mean is told by H5Zscaleoffset.c alone.
// {"id": "hdf5_scaleoffset", "cd_values": [2, 0, 24, 0, 4, 1, 0, 1, 0, ...]}

#include <cmath>
#include <limits>

#include "base/checked.h"
#include "codec/bit_reader.h"
#include "codec/byteswap.h"
#include "codec/codecs.h"
#include "codec/decode_only.h"
#include "codec/hdf5.h"

namespace headrace {
namespace {

enum Field { kMethod, kDigits, kElements, kClass, kSize, kSign, kOrder, kHasFill, kFill };
constexpr std::size_t kHeaderNbytes = 21;

struct Packing {
  std::size_t elements = 0;
  std::size_t size = 1;
  bool floating = false;
  bool swapped = false;
  std::int32_t digits = 0;
  bool plain = false;  // integers with all their bits: HDF5 leaves the chunk as it is
  std::optional<std::uint64_t> fill;
};

// How the elements of one chunk are packed.
struct Chunk {
  unsigned width;  // bits an element
  std::uint64_t least;
  ConstBytes packed;
};

Chunk read_chunk(ConstBytes src, std::size_t size) {
  if (src.size() < kHeaderNbytes) throw_corrupt("the header is cut short");
  const auto width = load_le<std::uint32_t>(src.data());
  if (width > 8 * size) {
    throw_corrupt("elements of " + std::to_string(size) + " bytes have no " +
                  std::to_string(width) + " bits");
  }
  std::uint64_t least = 0;
  const std::size_t n = std::min<std::size_t>(8, std::to_integer<std::size_t>(src[4]));
  for (std::size_t i = 0; i < n; ++i) least |= std::to_integer<std::uint64_t>(src[5 + i]) << 8 * i;
  return {width, least, src.subspan(kHeaderNbytes)};
}

template <typename T>
void unpack_integers(const Chunk& chunk, const Packing& packing, std::byte* dst) {
  BitReader bits(chunk.packed);
  const std::uint64_t marks_fill = low_bits(chunk.width);
  for (std::size_t i = 0; i < packing.elements; ++i) {
    const std::uint64_t v = bits.read(chunk.width);
    const bool fill = packing.fill && v == marks_fill;
    store_element(dst + i * sizeof(T), static_cast<T>(fill ? *packing.fill : v + chunk.least));
  }
}

template <typename T, typename Bits, typename Signed>
void unpack_floats(const Chunk& chunk, const Packing& packing, std::byte* dst) {
  BitReader bits(chunk.packed);
  const std::uint64_t marks_fill = low_bits(chunk.width);
  const T power = static_cast<T>(std::pow(10.0, static_cast<double>(packing.digits)));
  const T least = std::bit_cast<T>(static_cast<Bits>(chunk.least));
  for (std::size_t i = 0; i < packing.elements; ++i) {
    const std::uint64_t v = bits.read(chunk.width);
    T value = static_cast<T>(static_cast<Signed>(static_cast<Bits>(v))) / power + least;
    if (packing.fill && v == marks_fill) value = std::bit_cast<T>(static_cast<Bits>(*packing.fill));
    store_element(dst + i * sizeof(T), value);
  }
}

class ScaleOffsetOfHdf5 final : public DecodeOnly {
 public:
  explicit ScaleOffsetOfHdf5(const Packing& packing)
      : packing_(packing),
        nbytes_(checked_mul(packing.elements, packing.size, "hdf5_scaleoffset")) {}

  std::string_view name() const override { return "hdf5_scaleoffset"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::at_most(n + kHeaderNbytes + 1);
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(dst.size(), nbytes_);
    if (packing_.plain) {
      check_decoded_size(src.size(), nbytes_);
      if (nbytes_ > 0) std::memcpy(dst.data(), src.data(), nbytes_);
      return;
    }
    const Chunk chunk = read_chunk(src, packing_.size);
    if (chunk.width == 8 * packing_.size) {  // as they were
      if (chunk.packed.size() < nbytes_) throw_corrupt("the elements are cut short");
      if (nbytes_ > 0) std::memcpy(dst.data(), chunk.packed.data(), nbytes_);
    } else {
      unpack(chunk, dst.data());
    }
    if (packing_.swapped) {
      swap_bytes(packing_.size, dst.data(), dst.data(), packing_.elements);
    }
  }

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    resize_said(dst, nbytes_, src, max_nbytes);
    decode(src, dst.bytes(), {});
  }

 private:
  void unpack(const Chunk& chunk, std::byte* dst) const {
    if (packing_.floating && packing_.size == 4) {
      return unpack_floats<float, std::uint32_t, std::int32_t>(chunk, packing_, dst);
    }
    if (packing_.floating) {
      return unpack_floats<double, std::uint64_t, std::int64_t>(chunk, packing_, dst);
    }
    switch (packing_.size) {
      case 1:
        return unpack_integers<std::uint8_t>(chunk, packing_, dst);
      case 2:
        return unpack_integers<std::uint16_t>(chunk, packing_, dst);
      case 4:
        return unpack_integers<std::uint32_t>(chunk, packing_, dst);
      default:
        return unpack_integers<std::uint64_t>(chunk, packing_, dst);
    }
  }

  const Packing packing_;
  const std::size_t nbytes_;
};

}  // namespace

CodecPtr make_hdf5_scaleoffset(const CodecSpec& spec, const CodecSite&) {
  CodecConfig config(spec);
  const std::vector<std::uint32_t> values = client_data(config, kHasFill + 1);
  config.finish();
  Packing packing;
  packing.elements = values[kElements];
  packing.size = values[kSize];
  packing.floating = values[kClass] == 1;
  packing.digits = static_cast<std::int32_t>(values[kDigits]);
  packing.plain = !packing.floating && values[kDigits] == 8 * packing.size;
  packing.swapped = values[kOrder] != (std::endian::native == std::endian::little ? 0U : 1U);
  const std::size_t size = packing.size;
  const bool size_is_known =
      size == 4 || size == 8 || (!packing.floating && (size == 1 || size == 2));
  if (!size_is_known || values[kClass] > 1 || values[kOrder] > 1 || values[kHasFill] > 1) {
    config.fail("cd_values", "describes no type that HDF5 packs");
  }
  if (values[kMethod] != (packing.floating ? 0U : 2U)) {
    throw Error(ErrorCode::unsupported,
                "codec " + spec.name + ": method " + std::to_string(values[kMethod]) +
                    ", which HDF5 does not have for this type");
  }
  if (values[kHasFill] == 1) {
    if (values.size() < kFill + (size + 3) / 4) config.fail("cd_values", "lacks the fill value");
    std::uint64_t fill = values[kFill];
    if (size == 8) fill |= std::uint64_t{values[kFill + 1]} << 32;
    packing.fill = fill;
  }
  return std::make_shared<ScaleOffsetOfHdf5>(packing);
}

}  // namespace headrace
