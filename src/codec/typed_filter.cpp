#include "codec/typed_filter.h"

#include "codec/byteswap.h"
#include "codec/scratch.h"
#include "codec/sizes.h"
#include "format/fill_value.h"

namespace headrace {
namespace {

std::size_t element_count(ConstBytes bytes, const ElementType& type) {
  if (bytes.size() % type.size != 0) {
    throw_corrupt(std::to_string(bytes.size()) + " bytes are no multiple of the element size " +
                  std::to_string(type.size));
  }
  return bytes.size() / type.size;
}

// Which numcodecs takes.
bool is_complex(std::string_view numpy) {
  const auto kind = numpy.find_first_not_of("<>|=");
  return kind != std::string_view::npos && numpy[kind] == 'c';
}

// The elements in native order: src itself, or a copy in scratch.
const std::byte* native_elements(const ElementType& type,
                                 ConstBytes src,
                                 std::optional<Scratch>& scratch) {
  if (!type.swapped) return src.data();
  scratch.emplace(src.size());
  swap_bytes(type.size, src.data(), scratch->data(), src.size() / type.size);
  return scratch->data();
}

}  // namespace

ChunkSpec TypedFilter::encoded_spec(const ChunkSpec& in) const {
  ChunkSpec out = in;
  if (encoded_.native() != decoded_.native()) out.dtype = encoded_.dtype();
  out.swapped = encoded_.swapped;
  if (in.fill && in.fill->size() == decoded_.size) {
    std::vector<std::byte> fill(encoded_.size);
    try {
      encode_elements(in.fill->data(), fill.data(), 1);
    } catch (const Error& e) {
      throw e.with_context("codec " + std::string(name()) + ": the fill value");
    }
    out.fill = std::make_shared<const std::vector<std::byte>>(std::move(fill));
  }
  return out;
}

void TypedFilter::decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const {
  const std::size_t n = element_count(src, encoded_);
  check_decoded_size(dst.size(), n * decoded_.size);
  std::optional<Scratch> scratch;
  decode_elements(native_elements(encoded_, src, scratch), dst.data(), n);
  if (decoded_.swapped) swap_bytes(decoded_.size, dst.data(), dst.data(), n);
}

void TypedFilter::decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const {
  const std::size_t nbytes = element_count(src, encoded_) * decoded_.size;
  resize_decoded(dst, nbytes, max_nbytes);
  decode(src, dst.bytes(), {});
}

void TypedFilter::encode(ConstBytes src, Buffer& dst) const {
  check_encodes();
  const std::size_t n = element_count(src, decoded_);
  dst.resize(n * encoded_.size);
  std::optional<Scratch> scratch;
  encode_elements(native_elements(decoded_, src, scratch), dst.data(), n);
  if (encoded_.swapped) swap_bytes(encoded_.size, dst.data(), dst.data(), n);
}

std::optional<ElementType> site_element_type(const CodecSite& site) {
  std::optional<ElementType> type = ElementType::of(site.in.dtype);
  if (type) type->swapped = site.in.swapped && type->size > 1;
  return type;
}

ElementType element_type(CodecConfig& config,
                         std::string_view field,
                         CodecPosition position,
                         std::optional<ElementType> fallback) {
  if (!config.has(field)) {
    if (!fallback) config.fail(field, "is missing");
    return *fallback;
  }
  const std::string text = config.string(field);
  const std::optional<ElementType> type = ElementType::parse(text);
  if (!type && is_complex(text)) config.refuse(field, "names complex numbers: \"" + text + "\"");
  if (!type) config.fail(field, "names no type of numbers: \"" + text + "\"");
  if (position == CodecPosition::before_bytes && type->swapped) {
    config.fail(field, "must be in native byte order in front of \"bytes\", got \"" + text + "\"");
  }
  return *type;
}

ElementType number_type(const CodecSpec& spec, const DType& dtype) {
  const std::optional<ElementType> type = ElementType::of(dtype);
  if (!type || type->kind == ElementType::Kind::boolean || type->dtype() != dtype) {
    throw Error(ErrorCode::unsupported,
                "codec " + spec.name + ": takes integers and floats of 8 to 64 bits, not " +
                    dtype.to_string());
  }
  return *type;
}

std::vector<std::byte> scalar(CodecConfig& config,
                              std::string_view field,
                              const DType& dtype,
                              std::string_view fallback) {
  const std::string text = config.has(field) ? config.json(field) : std::string(fallback);
  try {
    return fill_value_from_json(dtype, Json::parse(text, std::string(field))).value();
  } catch (const Error&) {
    config.fail(field, "must be a value of " + dtype.to_string() + ", got " + text);
  }
}

void check_site_type(const CodecConfig& config, const ElementType& type, const CodecSite& site) {
  const bool is_array = site.position == CodecPosition::before_bytes;
  if (!is_array || site.in.dtype.itemsize() == type.size) return;
  config.fail("dtype",
              "has elements of " + std::to_string(type.size) + " bytes, the array " +
                  site.in.dtype.to_string());
}

}  // namespace headrace
