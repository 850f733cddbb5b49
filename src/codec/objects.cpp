// json2, msgpack2: array -> bytes, one list of the elements, nested as the shape says, then NumPy's
// type string and the shape. An element in memory is the JSON text of its value; msgpack is turned
// into JSON and back, so that only what JSON can say is read: no binary values, no other keys than
// strings. Written lists are flat: readers give them the chunk's shape.
// Compatibility: numcodecs, in Zarr v2.
// Spec: https://numcodecs.readthedocs.io/en/stable/other/json.html
//       https://numcodecs.readthedocs.io/en/stable/other/msgpacks.html
// {"name": "numcodecs.json2", "configuration": {"encoding": "utf-8"}}

#include <charconv>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/sizes.h"
#include "codec/vlen.h"
#include "format/codec_specs.h"
#include "format/json.h"

namespace headrace {
namespace {

constexpr std::size_t kMaxNesting = 100;

// Takes the values of a list nested as `shape` says in C order.
class Flattener {
 public:
  Flattener(const Shape& shape, std::span<VlenElement> elements)
      : shape_(shape), elements_(elements) {}

  void take(std::size_t depth, std::span<const Json> values) {
    if (values.size() != static_cast<std::size_t>(shape_[depth])) {
      throw_corrupt("a list of " + std::to_string(values.size()) + " values, its shape says " +
                    std::to_string(shape_[depth]));
    }
    for (const Json& value : values) {
      if (depth + 1 < shape_.size()) {
        take(depth + 1, value.items());
      } else {
        elements_[next_++] = vlen_element(value.text());
      }
    }
  }

 private:
  const Shape& shape_;
  const std::span<VlenElement> elements_;
  std::size_t next_ = 0;
};

void decode_list(const Json& list, std::span<VlenElement> elements) {
  const std::vector<Json> items = list.items();
  if (items.size() < 2) throw_corrupt("a list without type and shape");
  Shape shape = shape_from_json(items.back(), 0);
  if (shape.empty()) shape = {1};
  std::size_t count = 1;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(extent), &count)) count = SIZE_MAX;
  }
  if (count != elements.size()) {
    throw_corrupt("expected " + std::to_string(elements.size()) + " elements, got shape " +
                  shape_to_json(shape));
  }
  Flattener(shape, elements).take(0, std::span(items).first(items.size() - 2));
}

// Checks an element that is to be written.
Json parse_element(const VlenElement& element) {
  try {
    return Json::parse(element.text(), "element");
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, error.what());
  }
}

// The JSON text of msgpack, as its events come.
class JsonWriter final : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::string& text() const { return text_; }

  bool null() override { return value("null"); }
  bool boolean(bool v) override { return value(v ? "true" : "false"); }
  bool number_integer(std::int64_t v) override { return value(std::to_string(v)); }
  bool number_unsigned(std::uint64_t v) override { return value(std::to_string(v)); }
  bool number_float(double v, const std::string&) override {
    if (std::isnan(v)) return value("NaN");
    if (std::isinf(v)) return value(v > 0 ? "Infinity" : "-Infinity");
    char digits[40];
    const auto result = std::to_chars(digits, digits + sizeof digits, v);
    std::string shown(digits, result.ptr);
    if (shown.find_first_of(".e") == std::string::npos) shown += ".0";
    return value(shown);
  }
  bool string(std::string& v) override { return value(quoted(v)); }
  bool binary(nlohmann::json::binary_t&) override {
    throw Error(ErrorCode::unsupported, "a binary value, which JSON has none of");
  }
  bool start_object(std::size_t) override { return open('{'); }
  bool key(std::string& v) override {
    value(quoted(v));
    text_ += ':';
    separate_ = false;
    return true;
  }
  bool end_object() override { return close('}'); }
  bool start_array(std::size_t) override { return open('['); }
  bool end_array() override { return close(']'); }
  bool parse_error(std::size_t,
                   const std::string&,
                   const nlohmann::json::exception& error) override {
    throw_corrupt(error.what());
  }

 private:
  static std::string quoted(const std::string& text) {
    if (!is_utf8(text)) throw_corrupt("a string that is not UTF-8");
    return json_quote(text);
  }

  bool value(std::string_view shown) {
    if (separate_) text_ += ',';
    text_ += shown;
    separate_ = true;
    return true;
  }

  bool open(char bracket) {
    if (++depth_ > kMaxNesting) throw_corrupt("values nested too deep");
    if (separate_) text_ += ',';
    text_ += bracket;
    separate_ = false;
    return true;
  }

  bool close(char bracket) {
    --depth_;
    text_ += bracket;
    separate_ = true;
    return true;
  }

  std::string text_;
  std::size_t depth_ = 0;
  bool separate_ = false;  // a value stands before the next one
};

nlohmann::json number_to_msgpack(const Json& json) {
  const std::string_view text = json.text();
  const char* const end = text.data() + text.size();
  std::int64_t integer = 0;
  std::uint64_t natural = 0;
  const auto is_whole = [&](const std::from_chars_result& result) {
    return result.ptr == end && result.ec == std::errc{};
  };
  if (is_whole(std::from_chars(text.data(), end, integer))) return integer;
  if (is_whole(std::from_chars(text.data(), end, natural))) return natural;
  return json.number();
}

nlohmann::json to_msgpack(const Json& json) {
  switch (json.kind()) {
    case Json::Kind::null:
      return nullptr;
    case Json::Kind::boolean:
      return json.boolean();
    case Json::Kind::number:
      return number_to_msgpack(json);
    case Json::Kind::string:
      return json.string();
    case Json::Kind::array: {
      auto list = nlohmann::json::array();
      for (const Json& item : json.items()) list.push_back(to_msgpack(item));
      return list;
    }
    case Json::Kind::object:
      break;
  }
  auto object = nlohmann::json::object();
  for (const auto& [key, value] : json.members()) object[key] = to_msgpack(value);
  return object;
}

class Objects : public Codec {
 public:
  CodecKind kind() const override { return CodecKind::array_to_bytes; }
  std::string_view implementation() const override { return "headrace"; }
  std::optional<std::size_t> encoded_nbytes(std::size_t) const override { return std::nullopt; }
  std::size_t max_encoded_nbytes(std::size_t) const override { return kAnyNbytes; }
  // What is decoded has elements, so its size is known.
  void decode_unknown(ConstBytes, std::size_t, Buffer&) const override { vlen_arena({}); }

 protected:
  // `text` is kept as long as the elements.
  static void decode_text(ConstBytes text, MutableBytes dst) {
    const VlenElement document{text.data(), text.size()};
    decode_list(Json::parse(document.text(), "elements"), vlen_elements(dst));
  }
};

class JsonObjects final : public Objects {
 public:
  std::string_view name() const override { return "json2"; }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext& context) const override {
    decode_text(vlen_arena(context).keep(src), dst);
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    std::string text = "[";
    const auto elements = vlen_elements(src);
    for (const VlenElement& element : elements) text += parse_element(element).compact() + ",";
    text += R"("|O",[)" + std::to_string(elements.size()) + "]]";
    dst.assign(bytes_of(text));
  }
};

class MsgpackObjects final : public Objects {
 public:
  std::string_view name() const override { return "msgpack2"; }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext& context) const override {
    JsonWriter writer;
    const auto* const begin = reinterpret_cast<const std::uint8_t*>(src.data());
    nlohmann::json::sax_parse(
        begin, begin + src.size(), &writer, nlohmann::json::input_format_t::msgpack);
    decode_text(vlen_arena(context).keep(bytes_of(writer.text())), dst);
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    auto list = nlohmann::json::array();
    const auto elements = vlen_elements(src);
    for (const VlenElement& element : elements) list.push_back(to_msgpack(parse_element(element)));
    list.push_back("|O");
    list.push_back({elements.size()});
    const std::vector<std::uint8_t> packed = nlohmann::json::to_msgpack(list);
    dst.assign(std::as_bytes(std::span(packed)));
  }
};

void check_site(const CodecSpec& spec, const CodecSite& site) {
  const DType& dtype = site.in.dtype;
  if (site.position == CodecPosition::before_bytes && dtype.kind() == DType::Kind::object) return;
  throw Error(ErrorCode::invalid_argument,
              "codec " + spec.name + ": does not take " + dtype.to_string());
}

}  // namespace

CodecPtr make_json2(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  if (const std::string encoding = config.string("encoding", "utf-8");
      encoding != "utf-8" && encoding != "utf8" && encoding != "ascii") {
    throw Error(ErrorCode::unsupported, "codec " + spec.name + ": encoding " + encoding);
  }
  // How Python's encoder lays it out.
  for (const char* field : {"ensure_ascii",
                            "check_circular",
                            "allow_nan",
                            "indent",
                            "separators",
                            "skipkeys",
                            "sort_keys",
                            "strict"}) {
    config.ignore(field);
  }
  config.finish();
  check_site(spec, site);
  return std::make_shared<JsonObjects>();
}

CodecPtr make_msgpack2(const CodecSpec& spec, const CodecSite& site) {
  CodecConfig config(spec);
  if (config.boolean("raw", false)) {
    throw Error(ErrorCode::unsupported, "codec " + spec.name + ": strings as raw bytes");
  }
  config.ignore("use_single_float");
  config.ignore("use_bin_type");
  config.finish();
  check_site(spec, site);
  return std::make_shared<MsgpackObjects>();
}

}  // namespace headrace
