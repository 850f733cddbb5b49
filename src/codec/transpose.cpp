// transpose: array -> array, dimension i of the encoded array is dimension order[i] of the chunk.
// Compatibility: "C" and "F" of early v3 drafts are read too.
// Spec: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/transpose/index.html
// {"name": "transpose", "configuration": {"order": [1, 0, 2]}}

#include <algorithm>
#include <cstring>
#include <numeric>

#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

// One dimension of a copy: extent and the strides, in bytes, on both sides.
struct CopyDim {
  std::size_t extent;
  std::size_t src_stride;
  std::size_t dst_stride;
};

// A copy between two dense arrays that differ in the order of dimensions, by descending dst stride,
// with dimensions that are neighbours on both sides made one.
std::vector<CopyDim> plan_copy(const Shape& dst_shape,
                               const std::vector<std::size_t>& src_position,
                               std::size_t itemsize) {
  const std::size_t ndim = dst_shape.size();
  std::vector<std::size_t> src_extent(ndim);
  for (std::size_t d = 0; d < ndim; ++d) {
    src_extent[src_position[d]] = static_cast<std::size_t>(dst_shape[d]);
  }
  std::vector<std::size_t> src_strides(ndim);
  std::size_t stride = itemsize;
  for (std::size_t d = ndim; d-- > 0;) {
    src_strides[d] = stride;
    stride *= src_extent[d];
  }
  std::vector<CopyDim> dims;  // innermost first
  std::size_t dst_stride = itemsize;
  for (std::size_t d = ndim; d-- > 0;) {
    const auto extent = static_cast<std::size_t>(dst_shape[d]);
    const std::size_t src_stride = src_strides[src_position[d]];
    if (extent != 1) {
      if (!dims.empty() && src_stride == dims.back().src_stride * dims.back().extent) {
        dims.back().extent *= extent;
      } else {
        dims.push_back({extent, src_stride, dst_stride});
      }
    }
    dst_stride *= extent;
  }
  std::reverse(dims.begin(), dims.end());
  return dims;
}

template <std::size_t N>
void copy_items(const std::byte* src,
                std::byte* dst,
                std::size_t n,
                std::size_t src_stride,
                std::size_t dst_stride) {
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(dst + i * dst_stride, src + i * src_stride, N);
  }
}

using CopyItems = void (*)(const std::byte*, std::byte*, std::size_t, std::size_t, std::size_t);

CopyItems copy_items_of(std::size_t itemsize) {
  switch (itemsize) {
    case 1:
      return copy_items<1>;
    case 2:
      return copy_items<2>;
    case 4:
      return copy_items<4>;
    case 8:
      return copy_items<8>;
    case 16:
      return copy_items<16>;
    default:
      return nullptr;
  }
}

class Copier {
 public:
  Copier(const std::vector<CopyDim>& dims, std::size_t itemsize)
      : dims_(dims), itemsize_(itemsize), copy_items_(copy_items_of(itemsize)) {
    // The dimension that is innermost in src: with dst's it forms tiles whose lines on both sides
    // stay in the L1 cache.
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      if (dims_[d].src_stride == itemsize) src_inner_ = d;
    }
  }

  void run(const std::byte* src, std::byte* dst) const {
    if (dims_.empty()) {
      std::memcpy(dst, src, itemsize_);
    } else {
      outer(0, src, dst);
    }
  }

 private:
  void outer(std::size_t d, const std::byte* src, std::byte* dst) const {
    const std::size_t last = dims_.size() - 1;
    if (src_inner_ == last) {
      if (d == last) {
        std::memcpy(dst, src, dims_[last].extent * itemsize_);
        return;
      }
    } else if (d == src_inner_) {
      return outer(d + 1, src, dst);
    } else if (d == last) {
      return tiles(src, dst);
    }
    for (std::size_t i = 0; i < dims_[d].extent; ++i) {
      outer(d + 1, src + i * dims_[d].src_stride, dst + i * dims_[d].dst_stride);
    }
  }

  void tiles(const std::byte* src, std::byte* dst) const {
    const std::size_t side = std::max<std::size_t>(8, 128 / itemsize_);
    const CopyDim& row = dims_[src_inner_];
    const CopyDim& column = dims_.back();
    for (std::size_t r0 = 0; r0 < row.extent; r0 += side) {
      const std::size_t r1 = std::min(row.extent, r0 + side);
      for (std::size_t c0 = 0; c0 < column.extent; c0 += side) {
        const std::size_t n = std::min(column.extent - c0, side);
        for (std::size_t r = r0; r < r1; ++r) {
          line(src + r * row.src_stride + c0 * column.src_stride,
               dst + r * row.dst_stride + c0 * column.dst_stride,
               n,
               column);
        }
      }
    }
  }

  void line(const std::byte* src, std::byte* dst, std::size_t n, const CopyDim& dim) const {
    if (copy_items_ != nullptr) {
      copy_items_(src, dst, n, dim.src_stride, dim.dst_stride);
      return;
    }
    for (std::size_t i = 0; i < n; ++i) {
      std::memcpy(dst + i * dim.dst_stride, src + i * dim.src_stride, itemsize_);
    }
  }

  const std::vector<CopyDim>& dims_;
  std::size_t itemsize_;
  CopyItems copy_items_;
  std::size_t src_inner_ = 0;
};

class Transpose final : public Codec {
 public:
  Transpose(const ChunkSpec& in, std::vector<std::size_t> order)
      : itemsize_(in.dtype.itemsize()), nbytes_(in.nbytes()), order_(std::move(order)) {
    const std::size_t ndim = order_.size();
    std::vector<std::size_t> inverse(ndim);
    for (std::size_t i = 0; i < ndim; ++i) inverse[order_[i]] = i;
    encode_ = plan_copy(encoded_spec(in).shape, order_, itemsize_);
    decode_ = plan_copy(in.shape, inverse, itemsize_);
  }

  CodecKind kind() const override { return CodecKind::array_to_array; }
  std::string_view name() const override { return "transpose"; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override { return EncodedNbytes::exactly(n); }
  std::optional<DeviceStage> device_stage() const override {
    return DeviceStage{
        DeviceStage::Kind::transpose, static_cast<std::uint32_t>(itemsize_), 0, order_};
  }
  // Moving dimensions of extent 1 moves no byte.
  Transform transform() const override {
    return nbytes_ == 0 || decode_.size() <= 1 ? Transform::identity : Transform::out_of_place;
  }

  ChunkSpec encoded_spec(const ChunkSpec& in) const override {
    ChunkSpec out = in;
    for (std::size_t i = 0; i < order_.size(); ++i) out.shape[i] = in.shape[order_[i]];
    return out;
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(nbytes_, src.size());
    check_decoded_size(nbytes_, dst.size());
    if (nbytes_ > 0) Copier(decode_, itemsize_).run(src.data(), dst.data());
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    check_decoded_size(nbytes_, src.size());
    dst.resize(nbytes_);
    if (nbytes_ > 0) Copier(encode_, itemsize_).run(src.data(), dst.data());
  }

 private:
  std::size_t itemsize_;
  std::size_t nbytes_;
  std::vector<std::size_t> order_;
  std::vector<CopyDim> encode_, decode_;
};

}  // namespace

CodecPtr make_transpose(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  const std::size_t ndim = site.in.shape.size();
  std::vector<std::size_t> order(ndim);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (config.is_string("order")) {
    const std::string text = config.string("order");
    if (text != "C" && text != "F") config.fail("order", "must be a permutation, \"C\" or \"F\"");
    if (text == "F") std::reverse(order.begin(), order.end());
  } else {
    const std::vector<std::int64_t> given = config.integers("order");
    std::vector<bool> seen(ndim, false);
    bool good = given.size() == ndim;
    for (std::size_t i = 0; good && i < ndim; ++i) {
      good = given[i] >= 0 && static_cast<std::size_t>(given[i]) < ndim &&
             !seen[static_cast<std::size_t>(given[i])];
      if (!good) break;
      order[i] = static_cast<std::size_t>(given[i]);
      seen[order[i]] = true;
    }
    if (!good) {
      config.fail("order", "must be a permutation of " + std::to_string(ndim) + " dimensions");
    }
  }
  config.finish();
  return std::make_shared<Transpose>(site.in, std::move(order));
}

}  // namespace headrace
