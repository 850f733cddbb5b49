// hdf5_nbit: bytes -> bytes, HDF5's filter 5: of each element only the bits that its type has.
// Compatibility: HDF5's decoder and the conversion to a whole integer behind it: what comes out is
// shifted to bit 0, with its sign. `cd_values` are those of the file: their number, whether the
// type has all its bits, elements of a chunk, then the type, of which numbers are known (1, size,
// order of bytes, precision, offset). `dtype` is what comes out. Spec:
// https://docs.hdfgroup.org/documentation/hdf5/latest/group___d_c_p_l.html (H5Pset_nbit); what
//       the bytes mean is told by H5Znbit.c alone.
// {"id": "hdf5_nbit", "cd_values": [8, 0, 24, 1, 2, 0, 13, 3], "dtype": "<i2"}

#include "base/checked.h"
#include "codec/bit_reader.h"
#include "codec/byteswap.h"
#include "codec/codecs.h"
#include "codec/decode_only.h"
#include "codec/hdf5.h"

namespace headrace {
namespace {

enum Field { kCount, kWhole, kElements, kClass, kSize, kOrder, kPrecision, kOffset, kFields };
constexpr std::uint32_t kNumber = 1;

class NBit final : public DecodeOnly {
 public:
  // A precision of 0: the elements are as they were.
  NBit(ElementType type, std::size_t elements, unsigned precision)
      : type_(type),
        elements_(elements),
        precision_(precision),
        nbytes_(checked_mul(elements, type.size, "hdf5_nbit")) {}

  std::string_view name() const override { return "hdf5_nbit"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::at_most(n + 1);
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(dst.size(), nbytes_);
    if (precision_ == 0) {
      check_decoded_size(dst.size(), src.size());
      if (!src.empty()) std::memcpy(dst.data(), src.data(), src.size());
      return;
    }
    visit_element(type_, [&](auto element) {
      using T = decltype(element);
      if constexpr (std::is_integral_v<T>) {
        unpack<T>(src, dst.data());
      } else if constexpr (sizeof(T) == 2) {
        unpack<std::uint16_t>(src, dst.data());
      } else if constexpr (sizeof(T) == 4) {
        unpack<std::uint32_t>(src, dst.data());
      } else {
        unpack<std::uint64_t>(src, dst.data());
      }
    });
    if (type_.swapped) swap_bytes(type_.size, dst.data(), dst.data(), elements_);
  }

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    resize_said(dst, nbytes_, src, max_nbytes);
    decode(src, dst.bytes(), {});
  }

 private:
  template <typename T>
  void unpack(ConstBytes src, std::byte* dst) const {
    BitReader bits(src);
    const std::uint64_t sign =
        std::is_signed_v<T> ? std::uint64_t{1} << (precision_ - 1) : std::uint64_t{0};
    for (std::size_t i = 0; i < elements_; ++i) {
      const std::uint64_t v = bits.read(precision_);
      store_element(dst + i * sizeof(T), static_cast<T>((v ^ sign) - sign));
    }
  }

  const ElementType type_;
  const std::size_t elements_;
  const unsigned precision_;
  const std::size_t nbytes_;
};

}  // namespace

CodecPtr make_hdf5_nbit(const CodecSpec& spec, const CodecSite&) {
  CodecConfig config(spec);
  const std::vector<std::uint32_t> values = client_data(config, kSize + 1);
  const std::string text = config.string("dtype");
  config.finish();
  const std::optional<ElementType> type = ElementType::parse(text);
  if (!type || type->kind == ElementType::Kind::boolean) {
    config.fail("dtype", "names no type of numbers: \"" + text + "\"");
  }
  if (values[kWhole] != 0) {
    return std::make_shared<NBit>(*type, values[kElements], 0U);
  }
  if (values[kClass] != kNumber || values.size() < kFields) {
    throw Error(ErrorCode::unsupported, "codec " + spec.name + ": takes numbers only");
  }
  const std::uint32_t precision = values[kPrecision];
  const std::size_t nbits = 8 * type->size;
  if (values[kSize] != type->size || precision == 0 || precision > nbits ||
      values[kOffset] > nbits - precision) {
    config.fail("cd_values", "does not describe elements of \"" + text + "\"");
  }
  if (type->is_floating() && precision != nbits) {
    throw Error(ErrorCode::unsupported,
                "codec " + spec.name + ": takes floats of IEEE 754 only, not of " +
                    std::to_string(precision) + " bits");
  }
  return std::make_shared<NBit>(*type, values[kElements], precision);
}

}  // namespace headrace
