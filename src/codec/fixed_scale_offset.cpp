// fixedscaleoffset: encoded = round((x - offset) * scale), decoded = encoded / scale + offset.
// bytes -> bytes in v2, array -> array in v3.
// Compatibility: numcodecs on NumPy 2: integers are computed with in float64, floats in their type.
// Spec: https://numcodecs.readthedocs.io/en/stable/filter/fixedscaleoffset.html
// {"name": "numcodecs.fixedscaleoffset",
//  "configuration": {"offset": 1000, "scale": 10, "dtype": "<f8", "astype": "|u1"}}

#include <algorithm>
#include <cmath>

#include "codec/codecs.h"
#include "codec/typed_filter.h"

namespace headrace {
namespace {

class FixedScaleOffset final : public TypedFilter {
 public:
  FixedScaleOffset(
      ElementType decoded, ElementType encoded, CodecPosition position, double scale, double offset)
      : TypedFilter(decoded, encoded, position), scale_(scale), offset_(offset) {}

  std::string_view name() const override { return "fixedscaleoffset"; }
  std::optional<DeviceStage> device_stage() const override {
    DeviceStage stage = number_stage(DeviceStage::Kind::fixed_scale_offset);
    stage.scale = scale_;
    stage.offset = offset_;
    return stage;
  }

 private:
  static ElementType work_type(const ElementType& type) {
    return type.is_floating() ? type.native() : ElementType{ElementType::Kind::floating, 8, false};
  }

  // Through tiles of the work type.
  template <typename Operation>
  static void in_tiles(const ElementType& from,
                       const std::byte* src,
                       const ElementType& to,
                       std::byte* dst,
                       std::size_t n,
                       Operation operation) {
    const ElementType work = work_type(from);
    visit_floating(work, [&](auto type) {
      using W = decltype(type);
      W tile[kFilterTile];
      auto* const bytes = reinterpret_cast<std::byte*>(tile);
      for (std::size_t at = 0; at < n; at += kFilterTile) {
        const std::size_t count = std::min(kFilterTile, n - at);
        cast_elements(from, src + at * from.size, work, bytes, count);
        for (std::size_t i = 0; i < count; ++i) tile[i] = operation(tile[i]);
        cast_elements(work, bytes, to, dst + at * to.size, count);
      }
    });
  }

  void decode_elements(const std::byte* src, std::byte* dst, std::size_t n) const override {
    in_tiles(encoded_, src, decoded_, dst, n, [&]<typename W>(W v) {
      return W(W(v / W(scale_)) + W(offset_));
    });
  }

  void encode_elements(const std::byte* src, std::byte* dst, std::size_t n) const override {
    in_tiles(decoded_, src, encoded_, dst, n, [&]<typename W>(W v) {
      return W(std::nearbyint(W(W(v - W(offset_)) * W(scale_))));
    });
  }

  double scale_;
  double offset_;
};

}  // namespace

CodecPtr make_fixed_scale_offset(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  const double offset = config.number("offset");
  const double scale = config.number("scale");
  const ElementType dtype = element_type(config, "dtype", site.position, site_element_type(site));
  const ElementType astype = element_type(config, "astype", site.position, dtype);
  config.finish();
  check_site_type(config, dtype, site);
  return std::make_shared<FixedScaleOffset>(dtype, astype, site.position, scale, offset);
}

}  // namespace headrace
