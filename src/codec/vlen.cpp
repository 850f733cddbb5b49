// vlen-utf8, vlen-bytes, vlen-array: array -> bytes, the number of elements, then the size and the
// bytes of each; numbers are little-endian uint32. vlen-array has the bytes of 1-D arrays.
// Compatibility: numcodecs, zarr-python, zarrs; vlen-array is Zarr v2's only.
// Spec: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/vlen-utf8
//       https://numcodecs.readthedocs.io/en/stable/other/vlen.html
// {"name": "vlen-utf8"}  {"name": "numcodecs.vlen-array", "configuration": {"dtype": "<i4"}}

#include "codec/vlen.h"

#include "base/checked.h"
#include "base/utf8.h"
#include "codec/byteswap.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/sizes.h"
#include "format/numpy_str.h"

namespace headrace {
namespace {

using Number = std::uint32_t;  // a count or a size

void append_number(Buffer& dst, std::size_t number, const char* what) {
  std::byte bytes[sizeof(Number)];
  store_le(bytes, checked_cast<Number>(number, what));
  dst.append(bytes);
}

class Vlen final : public Codec {
 public:
  // `swap_unit`: of the items of vlen-array that are stored in the other byte order, else 1.
  Vlen(std::string_view name, const DType& dtype, std::size_t swap_unit)
      : name_(name), dtype_(dtype), swap_unit_(swap_unit) {
    if (dtype.kind() == DType::Kind::array) unit_ = dtype.item().itemsize();
  }

  CodecKind kind() const override { return CodecKind::array_to_bytes; }
  std::string_view name() const override { return name_; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t) const override {
    return EncodedNbytes::at_most(kAnyNbytes);
  }

  std::optional<DeviceStage> device_stage() const override {
    if (swap_unit_ > 1) return std::nullopt;
    DeviceStage stage{DeviceStage::Kind::ragged, static_cast<std::uint32_t>(unit_)};
    stage.utf8 = dtype_.kind() == DType::Kind::string;
    return stage;
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext& context) const override {
    const std::span<VlenElement> elements = vlen_elements(dst);
    const std::size_t count = src.size() < sizeof(Number) ? 0 : load_le<Number>(src.data());
    if (src.size() < sizeof(Number) || count != elements.size()) {
      throw_corrupt("expected " + std::to_string(elements.size()) + " elements, got " +
                    std::to_string(count) + " in " + std::to_string(src.size()) + " bytes");
    }
    MutableBytes left = vlen_arena(context).keep(src).subspan(sizeof(Number));
    for (VlenElement& element : elements) {
      const auto i = static_cast<std::size_t>(&element - elements.data());
      if (left.size() < sizeof(Number)) throw_cut(i);
      const std::size_t nbytes = load_le<Number>(left.data());
      left = left.subspan(sizeof(Number));
      if (left.size() < nbytes) throw_cut(i);
      element = {left.data(), nbytes};
      check(element, i, ErrorCode::corrupt);
      if (swap_unit_ > 1) swap_bytes(swap_unit_, left.data(), left.data(), nbytes / swap_unit_);
      left = left.subspan(nbytes);
    }
    if (!left.empty())
      throw_corrupt(std::to_string(left.size()) + " bytes behind the last element");
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    const std::span<const VlenElement> elements = vlen_elements(src);
    std::size_t nbytes = sizeof(Number);
    for (const VlenElement& element : elements) nbytes += sizeof(Number) + element.nbytes;
    dst.resize(nbytes);
    dst.clear();
    append_number(dst, elements.size(), "elements of a chunk");
    for (const VlenElement& element : elements) {
      check(element,
            static_cast<std::size_t>(&element - elements.data()),
            ErrorCode::invalid_argument);
      append_number(dst, element.nbytes, "bytes of an element");
      dst.append({element.data, element.nbytes});
      std::byte* const stored = dst.data() + dst.size() - element.nbytes;
      if (swap_unit_ > 1) swap_bytes(swap_unit_, stored, stored, element.nbytes / swap_unit_);
    }
  }

 private:
  [[noreturn]] static void throw_cut(std::size_t i) {
    throw_corrupt("the bytes end within element " + std::to_string(i));
  }

  void check(const VlenElement& element, std::size_t i, ErrorCode code) const {
    if (dtype_.kind() == DType::Kind::string && !is_utf8(element.text())) {
      throw Error(code, "element " + std::to_string(i) + " is not UTF-8");
    }
    if (element.nbytes % unit_ != 0) {
      throw Error(code,
                  "element " + std::to_string(i) + " has " + std::to_string(element.nbytes) +
                      " bytes, items of " + dtype_.item().to_string() + " have " +
                      std::to_string(unit_));
    }
  }

  std::string_view name_;
  DType dtype_;
  std::size_t swap_unit_;
  std::size_t unit_ = 1;  // bytes that elements are multiples of
};

CodecPtr make_vlen(const CodecSpec& spec,
                   const CodecSite& site,
                   std::string_view name,
                   DType::Kind kind) {
  CodecConfig config(spec);
  std::size_t swap_unit = 1;
  const DType& dtype = site.in.dtype;
  if (site.position != CodecPosition::before_bytes || dtype.kind() != kind) {
    throw Error(ErrorCode::invalid_argument,
                "codec " + spec.name + ": does not take " + dtype.to_string());
  }
  if (kind == DType::Kind::array) {
    const NumpyType stored = parse_numpy_str(config.string("dtype"));
    if (stored.dtype != dtype.item()) config.fail("dtype", "is not " + dtype.item().to_string());
    const bool swapped = stored.order != ByteOrder::none && stored.order != native_order();
    if (swapped) swap_unit = stored.dtype.swap_size();
  }
  config.finish();
  return std::make_shared<Vlen>(name, dtype, swap_unit);
}

}  // namespace

CodecPtr make_vlen_utf8(const CodecSpec& spec, const CodecSite& site) {
  return make_vlen(spec, site, "vlen-utf8", DType::Kind::string);
}

CodecPtr make_vlen_bytes(const CodecSpec& spec, const CodecSite& site) {
  return make_vlen(spec, site, "vlen-bytes", DType::Kind::bytes);
}

CodecPtr make_vlen_array(const CodecSpec& spec, const CodecSite& site) {
  return make_vlen(spec, site, "vlen-array", DType::Kind::array);
}

}  // namespace headrace
