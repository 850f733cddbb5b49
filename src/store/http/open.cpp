#include "store/http/open.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "store/http/checksums.h"
#include "store/http/driver.h"
#include "store/http/plain.h"
#include "store/url.h"

namespace headrace {

namespace {

constexpr char kWantedHeaders[] =
    "option headers: wanted lines of \"Name: value\", or a dict of texts";

bool is_header_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

// {"Name": "value"}, as Python's dicts come.
std::vector<HttpHeader> headers_of_json(const std::string& text, const OptionReader& options) {
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
  if (!document.is_object()) options.refuse(kWantedHeaders);
  std::vector<HttpHeader> headers;
  for (const auto& [name, value] : document.items()) {
    if (!value.is_string() || !is_header_name(name)) options.refuse(kWantedHeaders);
    headers.push_back({name, value.get<std::string>()});
  }
  return headers;
}

// Lines "Name: value", or the same as a dict.
std::vector<HttpHeader> take_headers(OptionReader& options) {
  std::vector<HttpHeader> headers;
  const std::string text = options.take_any({"headers", "default_headers"}).value_or("");
  if (text.starts_with('{')) return headers_of_json(text, options);
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t colon = line.find(':');
    if (colon == line.npos || !is_header_name(line.substr(0, colon))) {
      options.refuse(kWantedHeaders);  // and not what came: a value may be secret
    }
    std::string_view value = line.substr(colon + 1);
    while (value.starts_with(' ')) value.remove_prefix(1);
    headers.push_back({std::string(line.substr(0, colon)), std::string(value)});
  }
  return headers;
}

std::string basic(const std::string& user, const std::string& password) {
  return "Basic " + base64(bytes_of(user + ":" + password));
}

}  // namespace

std::optional<RemoteParts> http_parts(std::string_view scheme,
                                      std::string_view place,
                                      OptionReader& options,
                                      const HttpAdjustment& adjust) {
  if (scheme != "http" && scheme != "https") return std::nullopt;
  // "http://user:password@host/": they are sent as a header, and shown nowhere.
  std::string url(scheme);
  url += place.substr(scheme.size());
  const std::size_t begin = url.find("://") + 3;
  const std::size_t end = std::min(url.find_first_of("/?#", begin), url.size());
  std::string user;
  std::string password;
  const std::size_t at = url.substr(0, end).rfind('@');
  if (at != std::string::npos && at >= begin) {
    const std::string info = url.substr(begin, at - begin);
    const std::size_t colon = info.find(':');
    user = percent_decode(info.substr(0, colon));
    if (colon != info.npos) password = percent_decode(info.substr(colon + 1));
    url.erase(begin, at + 1 - begin);
  }
  if (url.size() == begin || url[begin] == '/' || url[begin] == '?') {
    options.refuse("names no host, as in https://host/a.zarr");
  }

  // A query may be a signature: apart from the URL, it is left out where the URL is named.
  if (auto query = options.take("query"); query && !query->empty()) {
    while (query->starts_with('?')) query->erase(0, 1);
    url.resize(std::min(url.find('#'), url.size()));
    if (url.find('?') != url.npos) options.refuse("has a query, and the option query another one");
    url += "?" + *query;
  }

  RemoteParts parts;
  parts.http = take_http_options(options);
  if (adjust) adjust(parts.http);
  std::vector<HttpHeader> headers = take_headers(options);
  const std::vector<HttpHeader> of_options = headers;
  if (auto given = options.take_any({"user", "username"})) user = std::move(*given);
  if (auto given = options.take("password")) password = std::move(*given);
  const auto token = options.take_any({"bearer_token", "token"});
  if (token && !user.empty()) options.refuse("wants a user or a bearer_token, not both");
  if (token) headers.push_back({"Authorization", "Bearer " + *token});
  if (!user.empty()) headers.push_back({"Authorization", basic(user, password)});
  options.finish("an HTTP");
  if (headers.size() > of_options.size()) parts.anonymous = make_plain_protocol(url, of_options);
  parts.protocol = make_plain_protocol(url, std::move(headers));
  return parts;
}

HttpOptions take_http_options(OptionReader& options) {
  HttpOptions http;
  if (const auto n = options.take_number("max_concurrency", 1, 4096)) {
    http.max_in_flight = static_cast<int>(*n);
  }
  if (const auto n = options.take_number("max_retries", 0, 1000)) {
    http.max_attempts = static_cast<int>(*n) + 1;
  }
  if (const auto t = options.take_duration({"connect_timeout"})) http.connect_timeout = *t;
  if (const auto t = options.take_duration({"read_timeout", "idle_timeout"}))
    http.idle_timeout = *t;
  if (const auto t = options.take_duration({"timeout", "retry_timeout"})) http.timeout = *t;
  if (const auto t = options.take_duration({"init_backoff"})) http.backoff = *t;
  if (const auto t = options.take_duration({"max_backoff"})) http.max_backoff = *t;
  http.max_backoff = std::max(http.max_backoff, http.backoff);
  http.hedge = options.take_bool("hedge");
  http.proxy = options.take_any({"proxy_url", "proxy"}).value_or("");
  http.no_proxy = options.take_any({"proxy_excludes", "no_proxy"}).value_or("");
  http.user_agent = options.take("user_agent").value_or("");
  http.ca_bundle = options.take("ca_bundle").value_or("");
  // As requests and boto3 have it: whether to verify, or by which bundle.
  if (auto verify = options.take("verify")) {
    if (*verify == "false" || *verify == "False" || *verify == "0") {
      http.verify_tls = false;
    } else if (*verify != "true" && *verify != "True" && *verify != "1") {
      if (!http.ca_bundle.empty()) options.refuse("options verify and ca_bundle: give one of them");
      http.ca_bundle = std::move(*verify);
    }
  }
  if (options.take_bool("allow_invalid_certificates")) http.verify_tls = false;
  return http;
}

std::shared_ptr<StoreDriver> open_http(std::string_view scheme,
                                       std::string_view place,
                                       StoreMode mode,
                                       OptionReader& options) {
  std::optional<RemoteParts> parts = http_parts(scheme, place, options);
  if (!parts) return nullptr;
  if (mode != StoreMode::read) {
    refuse_place(ErrorCode::unsupported,
                 options.place(),
                 "is read only: a web server takes no objects (mode r)");
  }
  return make_http_driver(
      std::move(parts->protocol), make_http_client(parts->http), HttpAccess::read_only);
}

}  // namespace headrace
