#include "store/http/open.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "store/http/checksums.h"
#include "store/http/driver.h"
#include "store/http/plain.h"
#include "store/url.h"

namespace headrace {

namespace {

// Lines "Name: value".
std::vector<HttpHeader> take_headers(OptionReader& options) {
  std::vector<HttpHeader> headers;
  const std::string text = options.take_any({"headers", "default_headers"}).value_or("");
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t colon = line.find(':');
    if (colon == 0 || colon == line.npos) {
      options.refuse("option headers: wanted lines of \"Name: value\"");  // a value may be secret
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

std::shared_ptr<StoreDriver> open_plain(std::string_view scheme,
                                        std::string_view place,
                                        StoreMode mode,
                                        OptionReader& options) {
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

  const HttpOptions http = take_http_options(options);
  std::vector<HttpHeader> headers = take_headers(options);
  if (auto given = options.take_any({"user", "username"})) user = std::move(*given);
  if (auto given = options.take("password")) password = std::move(*given);
  const auto token = options.take_any({"bearer_token", "token"});
  if (token && !user.empty()) options.refuse("wants a user or a bearer_token, not both");
  if (token) headers.push_back({"Authorization", "Bearer " + *token});
  if (!user.empty()) headers.push_back({"Authorization", basic(user, password)});
  options.finish("an HTTP");
  if (mode != StoreMode::read) {
    refuse_place(ErrorCode::unsupported,
                 options.place(),
                 "is read only: a web server takes no objects (mode r)");
  }
  return make_http_driver(
      make_plain_protocol(url, std::move(headers)), make_http_client(http), HttpAccess::read_only);
}

}  // namespace

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
  if (scheme == "http" || scheme == "https") return open_plain(scheme, place, mode, options);
  return nullptr;
}

}  // namespace headrace
