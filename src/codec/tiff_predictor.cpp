// imagecodecs_delta: differences of the elements of a row, TIFF's predictor 2.
// imagecodecs_floatpred: the bytes of a row of floats by significance, then differences of bytes,
// TIFF's predictor 3. Both bytes -> bytes in v2, array -> array in v3.
// Compatibility: imagecodecs, whose names tifffile, kerchunk and virtual-tiff write; libtiff. Sums
// of floats of the first are those of their bits.
// Spec: TIFF 6.0, section 14; Adobe Photoshop TIFF Technical Note 3
// {"id": "imagecodecs_delta", "axis": -1, "dist": 1, "shape": [32, 32], "dtype": "<u2"}

#include "base/checked.h"
#include "codec/byteswap.h"
#include "codec/codecs.h"
#include "codec/decode_only.h"
#include "codec/scratch.h"
#include "codec/shuffle.h"
#include "codec/sizes.h"
#include "codec/typed_filter.h"

namespace headrace {
namespace {

// Rows that were predicted by themselves.
struct Rows {
  ElementType type;
  std::size_t elements;  // of a row
  std::size_t stride;    // elements from one to the one that it was predicted from
  std::size_t nbytes;    // of all
  CodecPosition position;

  std::size_t row_nbytes() const { return elements * type.size; }
};

class Predictor : public DecodeOnly {
 public:
  explicit Predictor(const Rows& rows) : rows_(rows) {}

  CodecKind kind() const final {
    return rows_.position == CodecPosition::before_bytes ? CodecKind::array_to_array
                                                         : CodecKind::bytes_to_bytes;
  }
  EncodedNbytes encoded_nbytes(std::size_t n) const final { return EncodedNbytes::exactly(n); }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const final {
    check_decoded_size(dst.size(), src.size());
    check_decoded_size(rows_.nbytes, src.size());
    for (std::size_t at = 0; at < src.size(); at += rows_.row_nbytes()) {
      decode_row(src.data() + at, dst.data() + at);
    }
  }
  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const final {
    resize_decoded(dst, src.size(), max_nbytes);
    decode(src, dst.bytes(), {});
  }

 protected:
  virtual void decode_row(const std::byte* src, std::byte* dst) const = 0;

  const Rows rows_;
};

template <typename T>
void add_up(const std::byte* src, std::byte* dst, std::size_t n, std::size_t stride) {
  for (std::size_t i = 0; i < n; ++i) {
    T v = load_element<T>(src + i * sizeof(T));
    if (i >= stride) v = static_cast<T>(v + load_element<T>(dst + (i - stride) * sizeof(T)));
    store_element(dst + i * sizeof(T), v);
  }
}

class Differences final : public Predictor {
 public:
  using Predictor::Predictor;
  std::string_view name() const override { return "imagecodecs_delta"; }
  Transform transform() const override { return Transform::in_place; }

 private:
  void decode_row(const std::byte* src, std::byte* dst) const override {
    const std::size_t n = rows_.elements;
    if (rows_.type.swapped) {
      swap_bytes(rows_.type.size, src, dst, n);
      src = dst;
    }
    switch (rows_.type.size) {
      case 1:
        add_up<std::uint8_t>(src, dst, n, rows_.stride);
        break;
      case 2:
        add_up<std::uint16_t>(src, dst, n, rows_.stride);
        break;
      case 4:
        add_up<std::uint32_t>(src, dst, n, rows_.stride);
        break;
      default:
        add_up<std::uint64_t>(src, dst, n, rows_.stride);
    }
    if (rows_.type.swapped) swap_bytes(rows_.type.size, dst, dst, n);
  }
};

class FloatBytes final : public Predictor {
 public:
  using Predictor::Predictor;
  std::string_view name() const override { return "imagecodecs_floatpred"; }

 private:
  void decode_row(const std::byte* src, std::byte* dst) const override {
    const std::size_t n = rows_.elements, size = rows_.type.size;
    Scratch sums(rows_.row_nbytes());
    add_up<std::uint8_t>(src, sums.data(), rows_.row_nbytes(), rows_.stride);
    // The first plane has the most significant bytes.
    const bool big = rows_.type.swapped == (std::endian::native == std::endian::little);
    const std::byte* planes[sizeof(double)];
    for (std::size_t j = 0; j < size; ++j) planes[j] = sums.data() + (big ? j : size - 1 - j) * n;
    unshuffle(planes, size, n, dst);
  }
};

Rows read_rows(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  const ElementType type = element_type(config, "dtype", site.position, site_element_type(site));
  const bool is_array = site.position == CodecPosition::before_bytes;
  const Shape& own = is_array ? site.in.shape : site.chunk.shape;
  Shape shape = config.has("shape") ? config.integers("shape") : own;
  const std::int64_t dist = config.integer("dist", 1, 1 << 16, 1);
  const auto ndim = static_cast<std::int64_t>(shape.size());
  if (ndim == 0) config.fail("shape", "has no dimensions");
  std::int64_t axis = config.integer("axis", -ndim, ndim - 1, -1);
  if (axis < 0) axis += ndim;
  config.ignore("astype");
  config.finish();
  check_site_type(config, type, site);
  for (const std::int64_t n : shape) {
    if (n < 0) config.fail("shape", "holds a negative extent");
  }
  const auto begin = shape.begin() + axis;
  const char* const what = "shape of a predictor";
  Rows rows;
  rows.type = type;
  rows.position = site.position;
  rows.elements = checked_nbytes(Shape(begin, shape.end()), 1, what);
  rows.stride = checked_mul(
      static_cast<std::size_t>(dist), checked_nbytes(Shape(begin + 1, shape.end()), 1, what), what);
  rows.nbytes = checked_nbytes(shape, type.size, what);
  return rows;
}

}  // namespace

CodecPtr make_tiff_delta(const CodecSpec& spec, const CodecSite& site) {
  return std::make_shared<Differences>(read_rows(spec, site));
}

CodecPtr make_tiff_floatpred(const CodecSpec& spec, const CodecSite& site) {
  const Rows rows = read_rows(spec, site);
  if (!rows.type.is_floating()) {
    throw Error(ErrorCode::invalid_argument, "codec " + spec.name + ": takes floats");
  }
  return std::make_shared<FloatBytes>(rows);
}

}  // namespace headrace
