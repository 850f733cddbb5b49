#include "store/http/redirect.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>

#include "headrace/error.h"
#include "store/http/content_range.h"

namespace headrace {

namespace {

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, FreeUrl>;

// Null for what is none.
Url parse(const std::string& text) {
  Url url(curl_url());
  if (!url) throw std::bad_alloc();
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), CURLU_PATH_AS_IS) != CURLUE_OK) {
    return nullptr;
  }
  return url;
}

std::string part(const Url& url, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), which, &text, flags) != CURLUE_OK) return "";
  std::string value = text;
  curl_free(text);
  return value;
}

[[noreturn]] void refuse(const std::string& from, const char* why) {
  throw Error(ErrorCode::io, without_secrets(from) + ": redirected to " + why);
}

}  // namespace

std::string redirect_target(const std::string& from, const std::string& location) {
  const Url url = parse(from);
  if (!url) refuse(from, "somewhere from a URL that cannot be read");
  const std::string before = part(url, CURLUPART_SCHEME);
  if (curl_url_set(url.get(), CURLUPART_URL, location.c_str(), CURLU_PATH_AS_IS) != CURLUE_OK) {
    refuse(from, "what is no URL");
  }
  const std::string scheme = part(url, CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") refuse(from, "another scheme than http and https");
  if (before == "https" && scheme == "http") refuse(from, "http, from https");
  // Names and passwords that a server makes up are not ours to send.
  curl_url_set(url.get(), CURLUPART_USER, nullptr, 0);
  curl_url_set(url.get(), CURLUPART_PASSWORD, nullptr, 0);
  curl_url_set(url.get(), CURLUPART_FRAGMENT, nullptr, 0);
  return part(url, CURLUPART_URL);
}

bool same_origin(const std::string& url, const std::string& other) {
  const Url a = parse(url);
  const Url b = parse(other);
  if (!a || !b) return false;
  return part(a, CURLUPART_SCHEME) == part(b, CURLUPART_SCHEME) &&
         same_name(part(a, CURLUPART_HOST), part(b, CURLUPART_HOST)) &&
         part(a, CURLUPART_PORT, CURLU_DEFAULT_PORT) == part(b, CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

void keep_harmless(std::vector<HttpHeader>& headers) {
  static constexpr std::array<std::string_view, 7> kHarmless = {"Range",
                                                                "If-Match",
                                                                "If-None-Match",
                                                                "If-Range",
                                                                "If-Unmodified-Since",
                                                                "Accept",
                                                                "Accept-Encoding"};
  std::erase_if(headers, [](const HttpHeader& header) {
    return std::none_of(kHarmless.begin(), kHarmless.end(), [&](std::string_view name) {
      return same_name(name, header.name);
    });
  });
}

}  // namespace headrace
