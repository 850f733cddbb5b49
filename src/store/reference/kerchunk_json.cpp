#include "store/reference/kerchunk_json.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "headrace/error.h"

namespace headrace {
namespace {

// As the table and its builder have them, at most.
constexpr std::uint64_t kReferenceNbytes = 64;
constexpr std::uint64_t kUrlNbytes = 96;

using Builder = ReferenceTable::Builder;

void read_reference(JsonWindow& json, const std::string& key, Builder& into) {
  switch (json.peek()) {
    case '"': {
      const std::string_view text = json.string();
      constexpr std::string_view kBase64 = "base64:";
      if (!text.starts_with(kBase64)) return into.add_bytes(key, bytes_of(text));
      const auto bytes = base64_decode(text.substr(kBase64.size()));
      if (!bytes) json.fail("\"" + key.substr(0, 200) + "\" is no base64");
      return into.add_bytes(key, *bytes);
    }
    case '{':
      return into.add_bytes(key, bytes_of(json.raw_value()));
    case '[':
      break;
    default:
      json.fail("\"" + key.substr(0, 200) +
                "\": wanted text, an object, [url] or [url, offset, length]");
  }
  json.take('[');
  std::string url;
  if (json.peek() == 'n') {
    if (json.raw_value() != "null") json.fail("wanted a URL");
  } else {
    url = json.string();
  }
  std::uint64_t offset = 0;
  std::uint64_t nbytes = ObjectRange::kWhole;
  if (json.next_element(']', false)) {
    offset = json.number();
    json.take(',');
    nbytes = json.number();
    json.take(']');
    if (nbytes > UINT64_MAX / 2 || offset > UINT64_MAX / 2) json.fail("a range past 2^63");
  }
  into.add_range(key, url, offset, nbytes);
}

// A list of values, or start, start + step, ...
struct Dimension {
  std::string name;
  std::vector<TemplateValue> values{};
  std::int64_t start = 0;
  std::int64_t step = 0;  // 0: a list
  std::uint64_t count = 0;

  TemplateValue value(std::uint64_t i) const {
    return step == 0 ? values[i] : TemplateValue(start + static_cast<std::int64_t>(i) * step);
  }
};

std::int64_t read_signed(JsonWindow& json) {
  const std::string_view text = json.raw_value();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    json.fail("wanted a whole number, found " + std::string(text.substr(0, 100)));
  }
  return value;
}

Dimension read_dimension(JsonWindow& json, std::string name) {
  Dimension dimension{std::move(name)};
  if (json.peek() == '[') {
    json.take('[');
    for (bool first = true; json.next_element(']', first); first = false) {
      if (json.peek() == '"') {
        dimension.values.emplace_back(std::string(json.string()));
      } else {
        dimension.values.emplace_back(read_signed(json));
      }
    }
    dimension.count = dimension.values.size();
    return dimension;
  }
  std::optional<std::int64_t> stop;
  dimension.step = 1;
  json.take('{');
  for (bool first = true; json.next_element('}', first); first = false) {
    const std::string field(json.string());
    json.take(':');
    if (field == "start") {
      dimension.start = read_signed(json);
    } else if (field == "stop") {
      stop = read_signed(json);
    } else if (field == "step") {
      dimension.step = read_signed(json);
    } else {
      json.fail("a dimension has no \"" + field + "\"");
    }
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 62;  // differences stay within 64 bits
  const std::int64_t step = dimension.step;
  if (!stop || step == 0) json.fail("a dimension wants a stop, and a step that is not 0");
  for (const std::int64_t each : {dimension.start, *stop, step}) {
    if (each > kMost || each < -kMost) json.fail("a dimension past 2^62");
  }
  const std::int64_t distance = step > 0 ? *stop - dimension.start : dimension.start - *stop;
  const std::int64_t stride = step > 0 ? step : -step;
  if (distance > 0) dimension.count = static_cast<std::uint64_t>((distance - 1) / stride + 1);
  return dimension;
}

struct Generator {
  std::optional<std::string> key, url, offset, length;
  std::vector<Dimension> dimensions;
};

Generator read_generator(JsonWindow& json) {
  Generator made;
  json.take('{');
  for (bool first = true; json.next_element('}', first); first = false) {
    const std::string field(json.string());
    json.take(':');
    if (field == "dimensions") {
      json.take('{');
      for (bool first_one = true; json.next_element('}', first_one); first_one = false) {
        std::string name(json.string());
        json.take(':');
        made.dimensions.push_back(read_dimension(json, std::move(name)));
      }
      continue;
    }
    std::optional<std::string>* const slot = field == "key"      ? &made.key
                                             : field == "url"    ? &made.url
                                             : field == "offset" ? &made.offset
                                             : field == "length" ? &made.length
                                                                 : nullptr;
    if (slot == nullptr) json.fail("a generator has no \"" + field + "\"");
    *slot = json.peek() == '"' ? std::string(json.string()) : std::to_string(json.number());
  }
  if (!made.key || !made.url) json.fail("a generator wants a key and a url");
  if (made.offset.has_value() != made.length.has_value()) {
    json.fail("a generator wants both of offset and length, or none");
  }
  return made;
}

std::uint64_t rendered_number(const std::string& text,
                              const Templates& templates,
                              const TemplateValues& variables,
                              TemplateWork& work) {
  std::string number = render_template(text, templates, variables, work);
  std::erase(number, ' ');
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size() || value > UINT64_MAX / 2) {
    throw Error(ErrorCode::corrupt,
                "generator: \"" + text + "\" gives \"" + number.substr(0, 100) +
                    "\", wanted a whole number that is not negative");
  }
  return value;
}

// What is left of the bounds.
class Bounds {
 public:
  explicit Bounds(const GeneratorLimits& limits) : work(limits.work), limits_(limits) {}

  TemplateWork work;

  void check_count(std::uint64_t count) const {
    if (count <= limits_.references) return;
    throw Error(ErrorCode::corrupt,
                "generators make more than " + std::to_string(limits_.references) + " references");
  }
  void take(std::uint64_t nbytes) {
    taken_ += nbytes;
    if (taken_ <= limits_.nbytes) return;
    throw Error(ErrorCode::corrupt,
                "templates and generators make references of more than " +
                    std::to_string(limits_.nbytes) + " bytes");
  }

 private:
  const GeneratorLimits limits_;
  std::uint64_t taken_ = 0;
};

void generate(const Generator& generator,
              const Templates& templates,
              Bounds& bounds,
              Builder& into) {
  std::uint64_t count = 1;
  for (const Dimension& dimension : generator.dimensions) {
    if (__builtin_mul_overflow(count, dimension.count, &count)) count = UINT64_MAX;
  }
  bounds.check_count(count);
  bounds.check_count(into.size() + count);
  for (std::uint64_t i = 0; i < count; ++i) {
    TemplateValues variables;
    std::uint64_t rest = i;
    for (auto at = generator.dimensions.rbegin(); at != generator.dimensions.rend(); ++at) {
      variables[at->name] = at->value(rest % at->count);
      rest /= at->count;
    }
    const std::string url = render_template(*generator.url, templates, variables, bounds.work);
    std::uint64_t offset = 0;
    std::uint64_t nbytes = ObjectRange::kWhole;
    if (generator.offset) {
      offset = rendered_number(*generator.offset, templates, variables, bounds.work);
      nbytes = rendered_number(*generator.length, templates, variables, bounds.work);
    }
    const std::string key = render_template(*generator.key, templates, variables, bounds.work);
    bounds.take(kReferenceNbytes + key.size());
    const std::size_t urls = into.url_count();
    into.add_range(key, url, offset, nbytes);
    if (into.url_count() > urls) bounds.take(kUrlNbytes + url.size());
  }
}

class Reader {
 public:
  Reader(JsonWindow json, std::string name) : json_(std::move(json)), name_(std::move(name)) {}

  std::shared_ptr<const ReferenceTable> read(const Templates& overrides,
                                             const GeneratorLimits& limits) {
    json_.take('{');
    for (bool first = true; json_.next_element('}', first); first = false) read_member();
    if (json_.peek() != '\0') json_.fail("something follows the object");
    if (!version_ && !has_refs_) return flat_.finish();
    for (const auto& [name, text] : overrides) templates_[name] = text;
    Bounds bounds(limits);
    if (!templates_.empty()) {
      refs_.rewrite_urls([&](const std::string& url) {
        if (url.find("{{") == std::string::npos) return url;
        std::string rendered = render_template(url, templates_, {}, bounds.work);
        bounds.take(rendered.size());
        return rendered;
      });
    }
    JsonWindow generators(source_of(generators_), name_);
    generators.take('[');
    for (bool first = true; generators.next_element(']', first); first = false) {
      generate(read_generator(generators), templates_, bounds, refs_);
    }
    return refs_.finish();
  }

 private:
  void read_member() {
    key_ = json_.string();
    json_.take(':');
    const char c = json_.peek();
    if (key_ == "version" && c >= '0' && c <= '9') {
      version_ = json_.number();
      if (*version_ != 1) {
        throw Error(
            ErrorCode::unsupported,
            name_ + ": references of version " + std::to_string(*version_) + "; known are 0 and 1");
      }
    } else if (key_ == "refs" && c == '{') {
      has_refs_ = true;
      json_.take('{');
      for (bool first = true; json_.next_element('}', first); first = false) {
        key_ = json_.string();
        json_.take(':');
        read_reference(json_, key_, refs_);
      }
    } else if (key_ == "templates" && c == '{') {
      templates_ = read_templates(json_);
    } else if (key_ == "gen" && c == '[') {
      generators_ = json_.raw_value();
    } else if (version_) {
      json_.raw_value();  // others have put something of theirs there
    } else {
      read_reference(json_, key_, flat_);
    }
  }

  JsonWindow json_;
  std::string name_;
  std::string key_;
  std::optional<std::uint64_t> version_;
  bool has_refs_ = false;
  Builder flat_;  // of version 0, which has the references on top
  Builder refs_;
  Templates templates_;
  std::string generators_ = "[]";
};

}  // namespace

JsonWindow::Source source_of(std::string_view text) {
  return [text](MutableBytes into) mutable {
    const std::size_t n = std::min(into.size(), text.size());
    if (n > 0) std::memcpy(into.data(), text.data(), n);
    text.remove_prefix(n);
    return n;
  };
}

Templates read_templates(JsonWindow& json) {
  Templates templates;
  json.take('{');
  for (bool first = true; json.next_element('}', first); first = false) {
    std::string name(json.string());
    json.take(':');
    templates[std::move(name)] = json.string();
  }
  return templates;
}

std::shared_ptr<const ReferenceTable> read_kerchunk_json(JsonWindow::Source source,
                                                         const std::string& name,
                                                         const Templates& overrides,
                                                         const GeneratorLimits& limits) {
  try {
    return Reader(JsonWindow(std::move(source), name), name).read(overrides, limits);
  } catch (const Error& error) {
    // Sums that overflow are the file's fault here.
    if (error.code() == ErrorCode::invalid_argument) {
      throw Error(ErrorCode::corrupt, name + ": " + error.what());
    }
    throw;
  }
}

}  // namespace headrace
