// categorize: strings as numbers, 1 for the first label; 0, which reads as an empty string, for all
// that are no label. array -> bytes for strings of variable length, bytes -> bytes for others.
// Compatibility: numcodecs, in Zarr v2.
// Spec: https://numcodecs.readthedocs.io/en/stable/filter/categorize.html
// {"name": "numcodecs.categorize",
//  "configuration": {"labels": ["a", "b"], "dtype": "|O", "astype": "|u1"}}

#include <cstring>
#include <map>

#include "codec/byteswap.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/elements.h"
#include "codec/sizes.h"
#include "codec/vlen.h"
#include "format/fill_value.h"
#include "format/json.h"
#include "format/numpy_str.h"

namespace headrace {
namespace {

class Categorize final : public Codec {
 public:
  struct Parameters {
    DType dtype;
    bool swapped = false;  // decoded elements are in the other byte order
    ElementType astype;
    std::vector<std::string> labels;
  };

  explicit Categorize(Parameters parameters)
      : labels_(std::move(parameters.labels)),
        dtype_(std::move(parameters.dtype)),
        astype_(parameters.astype),
        decoded_((labels_.size() + 1) * dtype_.itemsize()) {
    put_element(0, "");
    for (std::size_t i = 0; i < labels_.size(); ++i) put_element(i + 1, labels_[i]);
    const std::size_t unit = dtype_.swap_size();
    if (parameters.swapped)
      swap_bytes(unit, decoded_.data(), decoded_.data(), decoded_.size() / unit);
    // Of labels that are alike the last one counts when numcodecs encodes.
    for (std::size_t i = 0; i <= labels_.size(); ++i) {
      if (i > 0) numbers_[content(decoded_.data() + i * dtype_.itemsize())] = i;
    }
  }

  CodecKind kind() const override {
    return dtype_.variable_length() ? CodecKind::array_to_bytes : CodecKind::bytes_to_bytes;
  }
  std::string_view name() const override { return "categorize"; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t decoded_nbytes) const override {
    return EncodedNbytes::exactly(decoded_nbytes / dtype_.itemsize() * astype_.size);
  }
  ChunkSpec encoded_spec(const ChunkSpec& in) const override {
    return {astype_.dtype(), in.shape, nullptr, astype_.swapped};
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    const std::size_t itemsize = dtype_.itemsize();
    check_decoded_size(dst.size() / itemsize * astype_.size, src.size());
    for (std::size_t i = 0; i < dst.size() / itemsize; ++i) {
      const std::size_t number = load_number(src.data() + i * astype_.size);
      const std::size_t known = number <= labels_.size() ? number : 0;
      std::memcpy(dst.data() + i * itemsize, decoded_.data() + known * itemsize, itemsize);
    }
  }

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    const std::size_t nbytes = src.size() / astype_.size * dtype_.itemsize();
    resize_decoded(dst, nbytes, max_nbytes);
    decode(src, dst.bytes(), {});
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    const std::size_t itemsize = dtype_.itemsize();
    dst.resize(src.size() / itemsize * astype_.size);
    for (std::size_t i = 0; i < src.size() / itemsize; ++i) {
      const auto found = numbers_.find(content(src.data() + i * itemsize));
      const std::size_t number = found == numbers_.end() ? 0 : found->second;
      store_number(dst.data() + i * astype_.size, number);
    }
  }

 private:
  void put_element(std::size_t i, const std::string& label) {
    std::byte* const at = decoded_.data() + i * dtype_.itemsize();
    if (dtype_.variable_length()) {
      const VlenElement element = vlen_element(label);
      std::memcpy(at, &element, sizeof element);
    } else {
      const auto element = fill_value_from_json(dtype_, Json::parse(json_quote(label), "label"));
      std::memcpy(at, element->data(), element->size());
    }
  }

  // What tells elements apart.
  std::string_view content(const std::byte* element) const {
    if (dtype_.variable_length()) return load_element<VlenElement>(element).text();
    return {reinterpret_cast<const char*>(element), dtype_.itemsize()};
  }

  std::size_t load_number(const std::byte* p) const {
    std::byte native[8];
    std::memcpy(native, p, astype_.size);
    if (astype_.swapped) swap_bytes(astype_.size, native, native, 1);
    std::uint64_t number = 0;
    cast_elements(astype_.native(),
                  native,
                  {ElementType::Kind::natural, 8, false},
                  reinterpret_cast<std::byte*>(&number),
                  1);
    return number;
  }

  void store_number(std::byte* p, std::size_t number) const {
    const std::uint64_t value = number;
    cast_elements({ElementType::Kind::natural, 8, false},
                  reinterpret_cast<const std::byte*>(&value),
                  astype_.native(),
                  p,
                  1);
    if (astype_.swapped) swap_bytes(astype_.size, p, p, 1);
  }

  std::vector<std::string> labels_;
  DType dtype_;
  ElementType astype_;
  std::vector<std::byte> decoded_;  // what 0 and each label's number decode to
  std::map<std::string_view, std::size_t> numbers_;
};

}  // namespace

CodecPtr make_categorize(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  Categorize::Parameters parameters;
  config.ignore("labels");
  const std::string_view text = spec.configuration;
  const Json json = Json::parse(text.empty() ? "{}" : text, "codec \"" + spec.name + "\"");
  for (const Json& label : json.at("labels").items()) {
    parameters.labels.push_back(label.string());
  }
  const std::string dtype = config.string("dtype");
  const bool before_bytes = site.position == CodecPosition::before_bytes;
  if (dtype == "|O" && before_bytes && site.in.dtype.kind() == DType::Kind::string) {
    parameters.dtype = DType::string();
  } else if (!before_bytes && dtype.find('U') != std::string::npos) {
    const NumpyType type = parse_numpy_str(dtype);
    parameters.dtype = type.dtype;
    parameters.swapped = type.order != native_order();
  } else {
    config.fail("dtype", "\"" + dtype + "\" does not fit " + site.in.dtype.to_string());
  }
  const std::optional<ElementType> astype = ElementType::parse(config.string("astype", "|u1"));
  if (!astype || astype->is_floating()) config.fail("astype", "is no type of integers");
  parameters.astype = *astype;
  config.finish();
  return std::make_shared<Categorize>(std::move(parameters));
}

}  // namespace headrace
