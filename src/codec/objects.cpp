// json2, msgpack2: array -> bytes, one list of the elements, nested as the shape says, then NumPy's
// type string and the shape. Mostly of objects; of numbers and strings of one size it is bytes ->
// bytes, by the type string, as numcodecs is used on them in v2. An object in memory is the JSON
// text of its value; msgpack is turned into JSON and back, so that only what JSON can say is read:
// no binary values, no other keys than strings. Written lists are flat: readers give them the
// chunk's shape. Compatibility: numcodecs, in Zarr v2. Spec:
// https://numcodecs.readthedocs.io/en/stable/other/json.html
//       https://numcodecs.readthedocs.io/en/stable/other/msgpacks.html
// {"name": "numcodecs.json2", "configuration": {"encoding": "utf-8"}}

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/function_ref.h"
#include "base/utf8.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/sizes.h"
#include "codec/vlen.h"
#include "format/codec_specs.h"
#include "format/fill_value.h"
#include "format/json.h"
#include "format/metadata.h"
#include "format/numpy_str.h"

namespace headrace {
namespace {

constexpr std::size_t kMaxNesting = 100;

// What an encoder wrote: the values, the type that NumPy says they had, the shape.
class List {
 public:
  explicit List(const Json& list) : items_(list.items()) {
    if (items_.size() < 2) throw_corrupt("a list without type and shape");
    shape_ = shape_from_json(items_.back(), 0);
    if (shape_.empty()) shape_ = {1};
    for (const std::int64_t extent : shape_) {
      if (__builtin_mul_overflow(count_, static_cast<std::size_t>(extent), &count_))
        throw_corrupt("a list of shape " + shape_to_json(shape_));
    }
  }

  std::size_t count() const { return count_; }
  const Shape& shape() const { return shape_; }
  const Json& type() const { return items_[items_.size() - 2]; }

  // Calls take(value) in C order; once for each of count() if no error is thrown.
  void each(FunctionRef<void(const Json&)> take) const {
    take_nested(0, std::span(items_).first(items_.size() - 2), take);
  }

 private:
  void take_nested(std::size_t depth,
                   std::span<const Json> values,
                   FunctionRef<void(const Json&)> take) const {
    if (values.size() != static_cast<std::size_t>(shape_[depth])) {
      throw_corrupt("a list of " + std::to_string(values.size()) + " values, its shape says " +
                    std::to_string(shape_[depth]));
    }
    for (const Json& value : values) {
      if (depth + 1 < shape_.size()) {
        take_nested(depth + 1, value.items(), take);
      } else {
        take(value);
      }
    }
  }

  std::vector<Json> items_;
  Shape shape_;
  std::size_t count_ = 1;
};

void decode_list(const List& list, std::span<VlenElement> elements) {
  if (list.count() != elements.size()) {
    throw_corrupt("expected " + std::to_string(elements.size()) + " elements, got shape " +
                  shape_to_json(list.shape()));
  }
  std::size_t next = 0;
  list.each([&](const Json& value) { elements[next++] = vlen_element(value.text()); });
}

// Checks an element that is to be written.
Json parse_element(const VlenElement& element) {
  try {
    return Json::parse(element.text(), "element");
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, error.what());
  }
}

// What becomes of a binary value, which JSON has none of.
enum class Binary : std::uint8_t { refused, list_of_bytes };

// The JSON text of msgpack, as its events come.
class JsonWriter final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonWriter(Binary binary) : binary_(binary) {}

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
  bool binary(nlohmann::json::binary_t& v) override {
    if (binary_ == Binary::refused)
      throw Error(ErrorCode::unsupported, "a binary value, which JSON has none of");
    std::string list = "[";
    for (const std::uint8_t b : v) list += (list.size() > 1 ? "," : "") + std::to_string(b);
    return value(list + ']');
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

  const Binary binary_;
  std::string text_;
  std::size_t depth_ = 0;
  bool separate_ = false;  // a value stands before the next one
};

std::string json_of_msgpack(ConstBytes src, Binary binary) {
  JsonWriter writer(binary);
  const auto* const begin = reinterpret_cast<const char*>(src.data());
  nlohmann::json::sax_parse(
      begin, begin + src.size(), &writer, nlohmann::json::input_format_t::msgpack);
  return writer.text();
}

[[noreturn]] void throw_unpackable(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "encode: msgpack has no " + what);
}

// JSON says half of a pair of surrogates by an escape, UTF-8 has none. Escapes are in strings only.
void check_surrogates(std::string_view json) {
  bool high = false;  // before this character
  for (std::size_t at = 0; at < json.size();) {
    std::uint32_t unit = 0;
    std::size_t n = 1;
    if (json[at] == '\\') {
      n = json[at + 1] == 'u' ? 6 : 2;
      if (n == 6) std::from_chars(json.data() + at + 2, json.data() + at + n, unit, 16);
    }
    const bool low = unit >= 0xdc00 && unit <= 0xdfff;
    if (low != high) throw_unpackable("strings with half of a pair of surrogates");
    high = unit >= 0xd800 && unit <= 0xdbff;
    at += n;
  }
}

using OrderedJson = nlohmann::ordered_json;

OrderedJson number_to_msgpack(const Json& json) {
  const std::string_view text = json.text();
  const char* const end = text.data() + text.size();
  std::int64_t integer = 0;
  std::uint64_t natural = 0;
  const auto is_whole = [&](const std::from_chars_result& result) {
    return result.ptr == end && result.ec == std::errc{};
  };
  if (is_whole(std::from_chars(text.data(), end, integer))) return integer;
  if (is_whole(std::from_chars(text.data(), end, natural))) return natural;
  if (text.find_first_not_of("-0123456789") == std::string_view::npos)
    throw_unpackable("integers beyond 64 bits");
  return json.number();
}

OrderedJson to_msgpack(const Json& json) {
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
      auto list = OrderedJson::array();
      for (const Json& item : json.items()) list.push_back(to_msgpack(item));
      return list;
    }
    case Json::Kind::object:
      break;
  }
  OrderedJson::object_t object;  // its operator[] looks at all keys before
  for (const auto& [key, value] : json.members()) object.emplace_back(key, to_msgpack(value));
  return object;
}

OrderedJson checked_to_msgpack(const Json& json) {
  check_surrogates(json.text());
  return to_msgpack(json);
}

void pack_msgpack(const OrderedJson& list, Buffer& dst) {
  const std::vector<std::uint8_t> packed = OrderedJson::to_msgpack(list);
  dst.assign(std::as_bytes(std::span(packed)));
}

class Objects : public Codec {
 public:
  CodecKind kind() const override { return CodecKind::array_to_bytes; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t) const override {
    return EncodedNbytes::at_most(kAnyNbytes);
  }

 protected:
  // `text` is kept as long as the elements.
  static void decode_text(ConstBytes text, MutableBytes dst) {
    const VlenElement document{text.data(), text.size()};
    decode_list(List(Json::parse(document.text(), "elements")), vlen_elements(dst));
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
    const std::string text = json_of_msgpack(src, Binary::refused);
    decode_text(vlen_arena(context).keep(bytes_of(text)), dst);
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    auto list = OrderedJson::array();
    const auto elements = vlen_elements(src);
    for (const VlenElement& element : elements)
      list.push_back(checked_to_msgpack(parse_element(element)));
    list.push_back("|O");
    list.push_back({elements.size()});
    pack_msgpack(list, dst);
  }
};

bool is_foreign(const NumpyType& type) {
  return type.order != ByteOrder::none && type.order != native_order() &&
         type.dtype.swap_size() > 1;
}

void reverse_units(const DType& dtype, MutableBytes element) {
  const auto unit = static_cast<std::ptrdiff_t>(dtype.swap_size());
  for (auto at = element.begin(); at != element.end(); at += unit) std::reverse(at, at + unit);
}

// Elements of one size, by the type that stands in the list: in v2 behind `bytes`, where the bytes
// are as that type says, as NumPy's view of them; in front of it native.
class Values : public Codec {
 public:
  Values(std::string_view name, const CodecSite& site)
      : name_(name),
        kind_(site.position == CodecPosition::before_bytes ? CodecKind::array_to_bytes
                                                           : CodecKind::bytes_to_bytes) {
    const bool big = (native_order() == ByteOrder::big) != site.in.swapped;
    type_ = {site.in.dtype, big ? ByteOrder::big : ByteOrder::little};
  }

  CodecKind kind() const override { return kind_; }
  std::string_view name() const override { return name_; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t) const override {
    return EncodedNbytes::at_most(kAnyNbytes);
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    const std::string text = json_text(src);
    const List list(Json::parse(text, "elements"));
    const NumpyType type = type_of(list);
    check_decoded_size(dst.size(), nbytes_of(list, type));
    put_elements(list, type, dst);
  }

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    const std::string text = json_text(src);
    const List list(Json::parse(text, "elements"));
    const NumpyType type = type_of(list);
    const std::size_t nbytes = nbytes_of(list, type);
    resize_said(dst, nbytes, src, max_nbytes);
    put_elements(list, type, dst.bytes());
  }

  void check_encodes() const override {
    switch (type_.dtype.kind()) {
      case DType::Kind::boolean:
      case DType::Kind::signed_integer:
      case DType::Kind::unsigned_integer:
      case DType::Kind::floating:
      case DType::Kind::datetime:
      case DType::Kind::timedelta:
      case DType::Kind::fixed_utf32:
        if (!to_numpy_str(type_.dtype, type_.order).empty()) return;
        break;
      default:
        break;
    }
    throw Error(ErrorCode::unsupported, "writes no lists of " + type_.dtype.to_string());
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    check_encodes();
    const std::size_t item = type_.dtype.itemsize();
    std::string text = "[";
    std::vector<std::byte> element(item);
    for (std::size_t at = 0; at + item <= src.size(); at += item) {
      std::copy_n(src.begin() + static_cast<std::ptrdiff_t>(at), item, element.begin());
      if (kind_ == CodecKind::bytes_to_bytes && is_foreign(type_))
        reverse_units(type_.dtype, element);
      text += value_text(element) + ",";
    }
    const ByteOrder order = kind_ == CodecKind::bytes_to_bytes ? type_.order : native_order();
    text += json_quote(to_numpy_str(type_.dtype, order)) + ",[" +
            std::to_string(src.size() / item) + "]]";
    pack(std::move(text), dst);
  }

 protected:
  virtual std::string json_text(ConstBytes src) const = 0;
  virtual void pack(std::string json, Buffer& dst) const = 0;

 private:
  NumpyType type_of(const List& list) const {
    const std::string text = list.type().string();
    if (text == "|O") return type_;
    try {
      NumpyType type = parse_numpy_str(text);
      if (!type.dtype.variable_length() && type.dtype.itemsize() > 0) return type;
    } catch (const Error& e) {
      throw_corrupt(e.what());
    }
    throw_corrupt("elements of type " + text);
  }

  static std::size_t nbytes_of(const List& list, const NumpyType& type) {
    std::size_t nbytes = 0;
    if (__builtin_mul_overflow(list.count(), type.dtype.itemsize(), &nbytes))
      throw_corrupt("a list of shape " + shape_to_json(list.shape()));
    return nbytes;
  }

  void put_elements(const List& list, const NumpyType& type, MutableBytes dst) const {
    const std::size_t item = type.dtype.itemsize();
    const bool foreign = kind_ == CodecKind::bytes_to_bytes && is_foreign(type);
    list.each([&](const Json& value) {
      const MutableBytes place = dst.first(item);
      dst = dst.subspan(item);
      put_value(type.dtype, value, place);
      if (foreign) reverse_units(type.dtype, place);
    });
  }

  static void put_value(const DType& dtype, const Json& value, MutableBytes place) {
    if (dtype.kind() == DType::Kind::fixed_bytes) return put_bytes(dtype, value, place);
    const auto element = fill_value_from_json(dtype, value);
    if (!element) throw_corrupt("a null among elements of " + dtype.to_string());
    std::copy(element->begin(), element->end(), place.begin());
  }

  // msgpack's binary values, as lists, or its old strings.
  static void put_bytes(const DType& dtype, const Json& value, MutableBytes place) {
    std::fill(place.begin(), place.end(), std::byte{0});
    std::vector<std::byte> bytes;
    if (value.is_array()) {
      for (const Json& item : value.items())
        bytes.push_back(static_cast<std::byte>(item.integer()));
    } else {
      const std::string text = value.string();
      const ConstBytes view = bytes_of(text);
      bytes.assign(view.begin(), view.end());
    }
    if (bytes.size() > place.size()) throw_corrupt("too many bytes for " + dtype.to_string());
    std::copy(bytes.begin(), bytes.end(), place.begin());
  }

  std::string value_text(const std::vector<std::byte>& element) const {
    std::string text = fill_value_to_json(type_.dtype, element, 3);
    if (type_.dtype.kind() != DType::Kind::floating || text[0] != '"') return text;
    // Python's JSON has names for what is no number; of NaN there is one.
    if (text == "\"Infinity\"" || text == "\"-Infinity\"") return text.substr(1, text.size() - 2);
    return "NaN";
  }

  const std::string_view name_;
  const CodecKind kind_;
  NumpyType type_;
};

class JsonValues final : public Values {
 public:
  explicit JsonValues(const CodecSite& site) : Values("json2", site) {}

 private:
  std::string json_text(ConstBytes src) const override { return std::string(text_of(src)); }
  void pack(std::string json, Buffer& dst) const override { dst.assign(bytes_of(json)); }
};

class MsgpackValues final : public Values {
 public:
  explicit MsgpackValues(const CodecSite& site) : Values("msgpack2", site) {}

 private:
  std::string json_text(ConstBytes src) const override {
    return json_of_msgpack(src, Binary::list_of_bytes);
  }
  void pack(std::string json, Buffer& dst) const override {
    pack_msgpack(checked_to_msgpack(Json::parse(json, "elements")), dst);
  }
};

// Objects in front of `bytes`, elements of one size anywhere.
bool takes_objects(const CodecSpec& spec, const CodecSite& site) {
  const DType& dtype = site.in.dtype;
  if (!dtype.variable_length()) return false;
  if (site.position == CodecPosition::before_bytes && dtype.kind() == DType::Kind::object)
    return true;
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
  if (!takes_objects(spec, site)) return std::make_shared<JsonValues>(site);
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
  if (!takes_objects(spec, site)) return std::make_shared<MsgpackValues>(site);
  return std::make_shared<MsgpackObjects>();
}

}  // namespace headrace
