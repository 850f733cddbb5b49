// reshape: array -> array, another shape for the same elements in the same order.
// `shape` has for each dimension of the encoded array its extent, -1 for what is left over, or the
// dimensions of the decoded one that it joins.
// Compatibility: zarrs.
// Spec: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/reshape
// {"name": "reshape", "configuration": {"shape": [[0, 1], -1, 3]}}

#include <cstring>
#include <iterator>

#include "base/checked.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/sizes.h"
#include "format/codec_specs.h"
#include "format/json.h"

namespace headrace {
namespace {

std::int64_t product(const Shape& shape, std::size_t begin, std::size_t end) {
  std::int64_t n = 1;
  for (std::size_t d = begin; d < end; ++d) n = checked_mul(n, shape[d], "reshape");
  return n;
}

class Reshape final : public Codec {
 public:
  explicit Reshape(Shape shape) : shape_(std::move(shape)) {}

  CodecKind kind() const override { return CodecKind::array_to_array; }
  std::string_view name() const override { return "reshape"; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override { return EncodedNbytes::exactly(n); }
  Transform transform() const override { return Transform::identity; }
  std::optional<DeviceStage> device_stage() const override {
    return DeviceStage{DeviceStage::Kind::none};
  }

  ChunkSpec encoded_spec(const ChunkSpec& in) const override {
    ChunkSpec out = in;
    out.shape = shape_;
    return out;
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    check_decoded_size(dst.size(), src.size());
    if (!src.empty()) std::memcpy(dst.data(), src.data(), src.size());
  }
  void encode(ConstBytes src, Buffer& dst) const override { dst.assign(src); }

 private:
  Shape shape_;
};

// A dimension of the encoded array that joins dimensions [begin, end) of the decoded one.
struct Joined {
  std::size_t at, begin, end;
};

}  // namespace

CodecPtr make_reshape(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  const std::string text = config.json("shape");
  config.finish();
  if (text.empty()) config.fail("shape", "is missing");
  const Shape& in = site.in.shape;
  const auto fail = [&](const std::string& problem) {
    config.fail("shape", problem + ", got " + text + " for the shape " + shape_to_json(in));
  };

  Shape out;
  std::vector<Joined> joined;
  std::optional<std::size_t> rest;  // where -1 stands
  std::int64_t next = 0;            // the lowest dimension that may still be joined
  for (const Json& item : Json::parse(text, "reshape").items()) {
    std::int64_t extent = 1;
    if (item.is_array()) {
      const std::vector<Json> dims = item.items();
      for (const Json& dim : dims) {
        const std::int64_t d = dim.integer();
        if (d < next || d >= std::ssize(in)) fail("must name dimensions in rising order");
        extent = checked_mul(extent, in[static_cast<std::size_t>(d)], "reshape");
        next = d + 1;
      }
      if (!dims.empty()) {
        const auto begin = static_cast<std::size_t>(dims.front().integer());
        joined.push_back({out.size(), begin, static_cast<std::size_t>(next)});
      }
    } else if (item.integer() == -1) {
      if (rest) fail("must hold -1 only once");
      rest = out.size();
    } else {
      extent = item.integer();
      if (extent < 1) fail("must hold positive extents");
    }
    out.push_back(extent);
  }

  const std::int64_t wanted = product(in, 0, in.size());
  const std::int64_t known = product(out, 0, out.size());
  if (rest && wanted % known == 0) out[*rest] = wanted / known;
  if (product(out, 0, out.size()) != wanted) fail("must have as many elements as the chunk");
  for (const Joined& j : joined) {
    if (product(out, 0, j.at) != product(in, 0, j.begin) ||
        product(out, j.at + 1, out.size()) != product(in, j.end, in.size())) {
      fail("joins dimensions that do not come to lie where it says");
    }
  }
  return std::make_shared<Reshape>(std::move(out));
}

}  // namespace headrace
