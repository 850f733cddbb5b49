#include "store/cloud/option_names.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "headrace/error.h"

namespace headrace {

std::optional<std::string> take_text(OptionReader& options,
                                     std::initializer_list<std::string_view> names) {
  std::optional<std::string> value = options.take_any(names);
  if (value && (value->empty() || *value == "null")) return std::nullopt;
  return value;
}

std::optional<bool> take_flag(OptionReader& options,
                              std::initializer_list<std::string_view> names) {
  const std::optional<std::string> value = take_text(options, names);
  if (!value) return std::nullopt;
  if (*value == "true" || *value == "True" || *value == "1") return true;
  if (*value == "false" || *value == "False" || *value == "0") return false;
  options.refuse("option " + std::string(*names.begin()) +
                 ": wanted \"true\" or \"false\", got something else");
}

std::optional<OptionReader> take_nested(OptionReader& options, std::string_view name) {
  const std::optional<std::string> text = take_text(options, {name});
  if (!text) return std::nullopt;
  const nlohmann::json document = nlohmann::json::parse(*text, nullptr, false);
  if (!document.is_object()) {
    options.refuse("option " + std::string(name) + ": wanted a dict, or its JSON");
  }
  StorageOptions nested;
  for (const auto& [key, value] : document.items()) {
    nested[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return OptionReader(nested, options.place() + ", " + std::string(name));
}

std::string check_endpoint(const OptionReader& options, std::string endpoint) {
  const bool http = endpoint.starts_with("http://") || endpoint.starts_with("https://");
  const std::size_t host = http ? endpoint.find("://") + 3 : 0;
  // Not the text: it may hold a password.
  if (!http || host >= endpoint.size() || endpoint.find_first_of("@?# ") != std::string::npos) {
    options.refuse("the endpoint is no URL as in https://host:port, without user and query");
  }
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint;
}

}  // namespace headrace
