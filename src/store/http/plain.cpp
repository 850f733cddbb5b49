#include "store/http/plain.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "headrace/error.h"
#include "store/http/body.h"
#include "store/http/checksums.h"
#include "store/http/content_range.h"
#include "store/http/redirect.h"
#include "store/store.h"

namespace headrace {

namespace {

// A version is an ETag, or where there is none, or a weak one that says nothing about bytes, what
// else may differ: "time <Last-Modified> weak <ETag> size <bytes>".
constexpr std::string_view kTime = "time ";
constexpr std::string_view kWeak = " weak ";
constexpr std::string_view kSize = " size ";

// All but the size; empty: it cannot tell.
std::string time_and_tag(const HttpResponse& response) {
  const std::string* const time = response.header("Last-Modified");
  if (time == nullptr) return "";
  std::string text = std::string(kTime) + *time;
  if (const std::string* const etag = response.header("ETag")) text.append(kWeak).append(*etag);
  return text;
}

// What headers say of who asks, and for what, in whatever order they are given. Of a user not the
// password: one that is short could be found by its hash.
std::string told_apart_by(const std::vector<HttpHeader>& headers) {
  constexpr std::string_view kBasic = "Basic ";
  std::vector<std::string> lines;
  for (const auto& [name, value] : headers) {
    std::string line;
    for (const char c : name) line += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (value.starts_with(kBasic)) {
      const std::string user = from_base64(value.substr(kBasic.size()));
      line += "=" + user.substr(0, user.find(':'));
    } else {
      line += ":" + value;
    }
    lines.push_back(std::move(line));
  }
  std::ranges::sort(lines);
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

// As browsers do it: spaces, and what else no URL has, become codes; what is encoded stays.
std::string encoded_url(std::string_view url) {
  const std::size_t colon = url.find("://");
  const std::size_t host = colon == url.npos ? 0 : colon + 3;
  const std::size_t path = std::min(url.find('/', host), url.size());
  std::string out(url.substr(0, path));
  for (const char c : url.substr(path)) {
    const bool is_graphic = c > ' ' && c < 0x7f;
    if (is_graphic && std::string_view("\"<>\\^`{|}").find(c) == std::string_view::npos) {
      out += c;
    } else {
      append_encoded(out, c);
    }
  }
  return out;
}

class PlainProtocol final : public ObjectProtocol {
 public:
  PlainProtocol(std::string_view given, std::vector<HttpHeader> headers)
      : headers_(std::move(headers)) {
    const std::string whole = encoded_url(given);
    std::string_view url = whole;
    url = url.substr(0, url.find('#'));
    const std::size_t query = url.find('?');
    if (query != url.npos) query_ = url.substr(query);
    url_ = url.substr(0, query);
    while (url_.ends_with('/')) url_.pop_back();
  }

  std::string url() const override { return without_secrets(url_); }
  std::string identity() const override {
    // Two signatures, or headers, may be of two users; as they are secrets, they are not kept in
    // names.
    std::string text = url_;
    const auto add = [&](char mark, const std::string& secret) {
      if (!secret.empty()) text += mark + std::to_string(std::hash<std::string>()(secret));
    };
    add('?', query_);
    add('#', told_apart_by(headers_));
    return text;
  }

  ProtocolAbilities abilities() const override {
    return {.lists = false, .writes = false, .conditional_writes = false};
  }

  HttpRequest read(std::string_view key,
                   const Extent& extent,
                   const std::string& if_version) override {
    HttpRequest request = request_of("GET", key);
    if (std::string range = range_header(extent); !range.empty()) {
      request.headers.push_back({"Range", std::move(range)});
    }
    if (if_version.starts_with('"')) {
      request.headers.push_back({"If-Match", if_version});
    } else if (if_version.starts_with(kTime)) {
      std::string_view time = std::string_view(if_version).substr(kTime.size());
      time = time.substr(0, std::min(time.find(kWeak), time.find(kSize)));
      request.headers.push_back({"If-Unmodified-Since", std::string(time)});
    }
    return request;
  }

  HttpRequest look_up(std::string_view key) override { return request_of("HEAD", key); }

  HttpRequest put(std::string_view, std::span<const ConstBytes>, const WriteCondition&) override {
    throw_read_only(url());
  }
  HttpRequest erase(std::span<const std::string>) override { throw_read_only(url()); }
  HttpRequest erase_if(std::string_view, const std::string&) override { throw_read_only(url()); }
  HttpRequest list(std::string_view, bool, const std::string&) override {
    throw Error(ErrorCode::unsupported,
                url() +
                    ": a web server does not say which objects it has. Of a group its consolidated "
                    "metadata do (zarr.consolidate_metadata); an array is opened by its own URL");
  }
  HttpRequest begin_upload(std::string_view) override { throw_read_only(url()); }
  std::string upload_of(const HttpResponse&) override { throw_read_only(url()); }
  HttpRequest put_part(std::string_view,
                       const std::string&,
                       int,
                       std::span<const ConstBytes>) override {
    throw_read_only(url());
  }
  std::string part_of(const HttpResponse&) override { throw_read_only(url()); }
  HttpRequest finish_upload(std::string_view,
                            const std::string&,
                            std::span<const std::string>,
                            const WriteCondition&) override {
    throw_read_only(url());
  }
  HttpRequest abort_upload(std::string_view, const std::string&) override {
    throw_read_only(url());
  }

  std::string version_of(const HttpResponse& response) const override {
    const std::string* etag = response.header("ETag");
    if (etag != nullptr && etag->starts_with('"')) return *etag;
    const std::string time = time_and_tag(response);
    if (time.empty()) return "";
    std::string size;
    if (const std::string* range = response.header("Content-Range")) {
      const auto parsed = parse_content_range(*range);
      if (parsed && parsed->object_nbytes) size = std::to_string(*parsed->object_nbytes);
    } else if (const std::string* length = response.header("Content-Length")) {
      size = *length;
    }
    if (size.empty()) return "";
    return time + std::string(kSize) + size;
  }

  bool is_of_version(const HttpResponse& response, const std::string& version) const override {
    const std::string told = version_of(response);
    if (!told.empty()) return told == version;
    // Of an answer that does not say how long the object is.
    const std::string time = time_and_tag(response);
    return !time.empty() && version.starts_with(time + std::string(kSize));
  }

  ListPage page_of(const HttpResponse&) const override { return {}; }
  void check_erased(const HttpResponse&) const override {}

  // A range of it would be one of other bytes.
  void check_answer(const HttpResponse& response) const override {
    const std::string* coding = response.header("Content-Encoding");
    if (coding == nullptr || coding->empty() || same_name(*coding, "identity")) return;
    throw Error(ErrorCode::unsupported,
                url() + ": the server sends an object as " + *coding +
                    " (Content-Encoding), though it was asked for it as it is");
  }

  Error error_of(const HttpRequest& request, const HttpResponse& response) const override {
    const std::string what = request.method + " " + without_secrets(request.url) + ": status " +
                             std::to_string(response.status) + origin_of(request, response);
    switch (response.status) {
      case 401:
        return {ErrorCode::permission_denied,
                what + without_query() +
                    ", the server wants to know who asks: by user and password in the URL or the "
                    "options, or by the options bearer_token or headers"};
      case 403:
        return {ErrorCode::permission_denied,
                what + without_query() + ", the server does not allow it"};
      case 407:
        return {ErrorCode::permission_denied, what + ", the proxy wants to know who asks"};
      default:
        return {ErrorCode::io, what};
    }
  }

 private:
  // Behind a redirect, of which who has given credentials may know nothing.
  std::string origin_of(const HttpRequest& request, const HttpResponse& response) const {
    if (response.redirected_to.empty()) return "";
    std::string text = " of " + response.redirected_to + ", where it was redirected to";
    if (!headers_.empty() && !same_origin(response.redirected_to, request.url)) {
      text += " (another host, which is sent no credentials and none of the headers)";
    }
    return text;
  }

  std::string without_query() const {
    return query_.empty() && headers_.empty()
               ? " (of a URL with a signature behind '?' a pickle keeps none, unless "
                 "pickle_credentials is set where it is opened)"
               : "";
  }

  HttpRequest request_of(const char* method, std::string_view key) const {
    HttpRequest request;
    request.method = method;
    request.url = url_ + "/" + percent_encode_key(key) + query_;
    request.headers = headers_;
    // Without it a server may choose.
    if (find_header(headers_, "Accept-Encoding") == nullptr) {
      request.headers.push_back({"Accept-Encoding", "identity"});
    }
    return request;
  }

  std::string url_;
  std::string query_;  // with its '?'
  const std::vector<HttpHeader> headers_;
};

}  // namespace

std::shared_ptr<ObjectProtocol> make_plain_protocol(std::string_view url,
                                                    std::vector<HttpHeader> headers) {
  return std::make_shared<PlainProtocol>(url, std::move(headers));
}

void append_encoded(std::string& out, char c) {
  constexpr char kHex[] = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(c);
  out += '%';
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

std::string percent_encode_key(std::string_view key) {
  std::string out;
  out.reserve(key.size());
  for (const char c : key) {
    const bool stays = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || c == '/';
    if (stays) {
      out += c;
    } else {
      append_encoded(out, c);
    }
  }
  return out;
}

}  // namespace headrace
