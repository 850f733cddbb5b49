#include "codec/config.h"

#include <nlohmann/json.hpp>
#include <set>

#include "headrace/error.h"

namespace headrace {

namespace {
constexpr int kMaxDepth = 100;

std::string about(std::string_view field) { return "field '" + std::string(field) + "' "; }
}  // namespace

struct CodecConfig::Impl {
  std::string codec;
  nlohmann::json json = nlohmann::json::object();
  std::set<std::string, std::less<>> known{"id"};

  const nlohmann::json* find(std::string_view field) {
    known.emplace(field);
    const auto it = json.find(field);
    return it == json.end() || it->is_null() ? nullptr : &*it;
  }
};

CodecConfig::CodecConfig(const CodecSpec& spec) : impl_(std::make_unique<Impl>()) {
  impl_->codec = spec.name;
  if (spec.configuration.empty()) return;
  const auto shallow = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    // Printing and destroying JSON recurses; shards within shards do not go this deep.
    if (depth > kMaxDepth)
      throw Error(ErrorCode::unsupported, "a codec configuration nests too deep");
    return true;
  };
  impl_->json = nlohmann::json::parse(spec.configuration, shallow, /*allow_exceptions=*/false);
  if (!impl_->json.is_object()) {
    throw Error(ErrorCode::invalid_argument,
                "codec " + spec.name + ": the configuration is no JSON object");
  }
}

CodecConfig::~CodecConfig() = default;

void CodecConfig::fail(std::string_view field, const std::string& problem) const {
  throw Error(ErrorCode::invalid_argument, "codec " + impl_->codec + ": " + about(field) + problem);
}

void CodecConfig::refuse(std::string_view field, const std::string& problem) const {
  throw Error(ErrorCode::unsupported, "codec " + impl_->codec + ": " + about(field) + problem);
}

bool CodecConfig::has(std::string_view field) { return impl_->find(field) != nullptr; }

bool CodecConfig::is_string(std::string_view field) {
  const nlohmann::json* value = impl_->find(field);
  return value != nullptr && value->is_string();
}

std::string CodecConfig::problem_of(std::string_view field, std::int64_t min, std::int64_t max) {
  const nlohmann::json* value = impl_->find(field);
  if (value == nullptr) return "is missing";
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() &&
                      value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX));
  if (!fits) return "must be an integer, got " + value->dump();
  const auto v = value->get<std::int64_t>();
  if (v >= min && v <= max) return "";
  return "must be between " + std::to_string(min) + " and " + std::to_string(max) + ", got " +
         std::to_string(v);
}

std::int64_t CodecConfig::integer(std::string_view field, std::int64_t min, std::int64_t max) {
  if (const std::string problem = problem_of(field, min, max); !problem.empty())
    fail(field, problem);
  return impl_->find(field)->get<std::int64_t>();
}

std::int64_t CodecConfig::integer(std::string_view field,
                                  std::int64_t min,
                                  std::int64_t max,
                                  std::int64_t fallback) {
  return has(field) ? integer(field, min, max) : fallback;
}

void EncoderLevel::check() const {
  if (!problem.empty()) throw Error(ErrorCode::invalid_argument, problem);
}

EncoderLevel CodecConfig::level(
    std::string_view field, int min, int max, int fallback, BeyondRange beyond) {
  const nlohmann::json* value = impl_->find(field);
  if (value == nullptr) return {fallback, {}};
  if (beyond == BeyondRange::clamped && value->is_number_integer()) {
    if (value->is_number_unsigned())
      return {
          static_cast<int>(std::min(value->get<std::uint64_t>(), static_cast<std::uint64_t>(max))),
          {}};
    return {static_cast<int>(std::clamp<std::int64_t>(value->get<std::int64_t>(), min, max)), {}};
  }
  const std::string problem = problem_of(field, min, max);
  if (problem.empty()) return {static_cast<int>(value->get<std::int64_t>()), {}};
  return {fallback, about(field) + problem};
}

double CodecConfig::number(std::string_view field) {
  const nlohmann::json* value = impl_->find(field);
  if (value == nullptr) fail(field, "is missing");
  if (!value->is_number()) fail(field, "must be a number, got " + value->dump());
  return value->get<double>();
}

bool CodecConfig::boolean(std::string_view field, bool fallback) {
  const nlohmann::json* value = impl_->find(field);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(field, "must be true or false, got " + value->dump());
  return value->get<bool>();
}

std::string CodecConfig::string(std::string_view field) {
  const nlohmann::json* value = impl_->find(field);
  if (value == nullptr) fail(field, "is missing");
  if (!value->is_string()) fail(field, "must be a string, got " + value->dump());
  return value->get<std::string>();
}

std::string CodecConfig::string(std::string_view field, std::string_view fallback) {
  return has(field) ? string(field) : std::string(fallback);
}

std::vector<std::int64_t> CodecConfig::integers(std::string_view field) {
  const nlohmann::json* value = impl_->find(field);
  if (value == nullptr) fail(field, "is missing");
  if (!value->is_array()) fail(field, "must be a list of integers, got " + value->dump());
  std::vector<std::int64_t> out;
  for (const nlohmann::json& item : *value) {
    if (!item.is_number_integer()) fail(field, "must be a list of integers, got " + value->dump());
    out.push_back(item.get<std::int64_t>());
  }
  return out;
}

std::vector<CodecSpec> CodecConfig::codecs(std::string_view field) {
  const nlohmann::json* value = impl_->find(field);
  if (value == nullptr) fail(field, "is missing");
  if (!value->is_array()) fail(field, "must be a list of codecs, got " + value->dump());
  std::vector<CodecSpec> out;
  for (const nlohmann::json& item : *value) {
    if (item.is_string()) {
      out.push_back({item.get<std::string>(), {}});
      continue;
    }
    const auto name = item.is_object() ? item.find("name") : item.end();
    if (!item.is_object() || name == item.end() || !name->is_string()) {
      fail(field, "holds an entry without a name: " + item.dump());
    }
    const auto configuration = item.find("configuration");
    const bool none = configuration == item.end() || configuration->is_null();
    out.push_back({name->get<std::string>(), none ? std::string() : configuration->dump()});
  }
  return out;
}

std::vector<CodecSpec> CodecConfig::objects(std::string_view field) {
  const nlohmann::json* value = impl_->find(field);
  std::vector<CodecSpec> out;
  if (value == nullptr) return out;
  if (!value->is_array()) fail(field, "must be a list of objects, got " + value->dump());
  for (const nlohmann::json& item : *value) {
    if (!item.is_object()) fail(field, "must be a list of objects, got " + value->dump());
    out.push_back({impl_->codec, item.dump()});
  }
  return out;
}

std::string CodecConfig::json(std::string_view field) {
  const nlohmann::json* value = impl_->find(field);
  return value == nullptr ? std::string() : value->dump();
}

void CodecConfig::ignore(std::string_view field) { impl_->known.emplace(field); }

void CodecConfig::finish() const {
  for (const auto& [field, value] : impl_->json.items()) {
    if (!impl_->known.contains(field)) fail(field, "is unknown");
  }
}

}  // namespace headrace
