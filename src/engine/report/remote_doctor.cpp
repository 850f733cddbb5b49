#include "engine/report/remote_doctor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "headrace/error.h"
#include "store/cloud/s3_xml.h"
#include "store/http/content_range.h"
#include "store/http/network.h"

namespace headrace {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, 4> kDocuments = {
    "zarr.json", ".zarray", ".zgroup", ".zmetadata"};
constexpr std::uint64_t kMaxDocumentNbytes = std::uint64_t{64} << 20;

// AWS and Azure refuse what is signed by a clock that is off by 15 minutes.
constexpr std::chrono::minutes kClockIsOff{5};

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

// What names the error of an answer; empty: nothing does.
std::string code_of(const HttpResponse& response) {
  std::string code;
  try {
    code = parse_server_error(response.body).code;
  } catch (const Error&) {
    // A page for people.
  }
  if (code.empty()) {
    if (const std::string* named = response.header("x-ms-error-code")) code = *named;
  }
  return code;
}

const char* check_of(const HttpResponse& response, const std::string& code) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> codes) {
    return std::find(codes.begin(), codes.end(), code) != codes.end();
  };
  if (code == "RequestTimeTooSkewed") return "clock";
  if (is_one_of({"NoSuchBucket", "ContainerNotFound", "AccountIsDisabled", "ResourceNotFound"})) {
    return "bucket";
  }
  if (is_one_of({"ExpiredToken",
                 "TokenRefreshRequired",
                 "RequestExpired",
                 "InvalidToken",
                 "InvalidAccessKeyId",
                 "SignatureDoesNotMatch",
                 "AuthenticationFailed",
                 "AuthenticationRequired",
                 "NoAuthenticationInformation",
                 "InvalidAuthenticationInfo"})) {
    return "credentials";
  }
  if (response.status == 301 || response.status == 307 ||
      is_one_of(
          {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraint"}) ||
      (response.status == 400 && response.header("x-amz-bucket-region") != nullptr)) {
    return "region";
  }
  if (response.status == 407) return "proxy";
  if (response.status == 401) return "credentials";
  if (response.status == 403) return "permission";
  return "server";
}

std::string milliseconds_text(Clock::duration time) {
  const double ms = std::chrono::duration<double, std::milli>(time).count();
  return ms < 10 ? std::to_string(std::round(ms * 10) / 10).substr(0, 3) + " ms"
                 : std::to_string(std::lround(ms)) + " ms";
}

}  // namespace

RemoteDoctor::RemoteDoctor(RemoteParts parts, Findings& findings)
    : parts_(std::move(parts)),
      client_(make_http_client(parts_.http)),
      protocol_(parts_.protocol),
      findings_(findings) {}

bool RemoteDoctor::examine() {
  look_at_proxy();
  if (!prepare() || !first_look()) return false;
  look_closer();
  return true;
}

bool RemoteDoctor::examine_anonymous() {
  look_at_proxy();
  if (!try_anonymous()) return false;
  look_closer();
  return true;
}

void RemoteDoctor::look_closer() {
  look_at_list();
  look_at_ranges();
  say_how_long();
}

HttpResponse RemoteDoctor::ask(HttpRequest request) {
  const auto start = Clock::now();
  HttpResponse response = client_->ask(std::move(request));
  if (!response.error) {
    times_.push_back(Clock::now() - start);
    compare_clocks(response);
  }
  return response;
}

HttpResponse RemoteDoctor::look(ObjectProtocol& protocol,
                                const std::string& key,
                                const Extent& extent) {
  HttpRequest request = protocol.read(key, extent, "");
  request.max_nbytes = kMaxDocumentNbytes;
  return ask(std::move(request));
}

void RemoteDoctor::look_at_proxy() {
  const NetworkSettings network = network_settings(parts_.http);
  std::string proxy = network.https_proxy.empty() ? network.http_proxy : network.https_proxy;
  if (proxy.empty()) return;
  if (proxy.find("://") == std::string::npos) proxy = "http://" + proxy;
  findings_.note("proxy",
                 "requests go by the proxy " + without_secrets(proxy) +
                     (parts_.http.proxy.empty() ? ", as the environment says" : "") +
                     "; the option no_proxy (and the variable of that name) names hosts that are "
                     "asked directly" +
                     (network.no_proxy.empty() ? "" : ", now " + network.no_proxy));
}

bool RemoteDoctor::prepare() {
  try {
    protocol_->prepare();
    return true;
  } catch (const HttpError&) {
    unanswered(std::current_exception());
    return false;
  } catch (const Error& error) {
    findings_.problem(error.code() == ErrorCode::not_found ? "bucket" : "credentials",
                      error.what());
  }
  return try_anonymous();
}

// The documents of a node: the first answer says who is there, one that is found what ranges are
// tried with.
bool RemoteDoctor::first_look() {
  for (const std::string_view name : kDocuments) {
    HttpRequest request = protocol_->read(name, Extent::whole(), "");
    request.max_nbytes = kMaxDocumentNbytes;
    HttpRequest asked;
    asked.method = request.method;
    asked.url = request.url;
    const HttpResponse response = ask(std::move(request));
    if (response.error) {
      unanswered(response.error);
      return false;
    }
    if (response.status == 404 &&
        std::string_view(check_of(response, code_of(response))) != "bucket") {
      if (name == kDocuments.back()) findings_.good("server", "answers");
      continue;
    }
    if (!response.ok()) {
      refused(asked, response);
      return try_anonymous();
    }
    findings_.good("server", "answers, and gives " + std::string(name));
    look_at_answer(response);
    object_ = {std::string(name), response.nbytes};
    return true;
  }
  return true;
}

void RemoteDoctor::refused(const HttpRequest& request, const HttpResponse& response) {
  const std::string code = code_of(response);
  std::string says = protocol_->error_of(request, response).what();
  const std::string_view body = text_of(response.body.bytes());
  if (response.status == 400 && body.find("HTTPS") != body.npos) {
    says += ": the server speaks TLS here: write https://";
  }
  if (!response.redirected_to.empty()) says += ", redirected to " + response.redirected_to;
  findings_.problem(check_of(response, code), says);
}

bool RemoteDoctor::try_anonymous() {
  if (!parts_.anonymous) return false;
  try {
    parts_.anonymous->prepare();
    for (const std::string_view name : kDocuments) {
      const HttpResponse response = look(*parts_.anonymous, std::string(name), Extent::whole());
      if (response.error || (!response.ok() && response.status != 404)) return false;
      if (response.status == 404 && name != kDocuments.back()) continue;
      if (response.status == 404 &&
          std::string_view(check_of(response, code_of(response))) == "bucket") {
        return false;
      }
      findings_.note("anonymous",
                     "without credentials the server answers: leave them out, or set anon=true "
                     "(token=\"anon\" of Google)");
      protocol_ = parts_.anonymous;
      if (response.ok()) object_ = {std::string(name), response.nbytes};
      return true;
    }
  } catch (const Error&) {
    // What is wrong was said of the other way before.
  }
  return false;
}

void RemoteDoctor::unanswered(const std::exception_ptr& error) {
  const std::string message = message_of(error);
  HttpFault fault = HttpFault::other;
  bool timed_out = false;
  try {
    std::rethrow_exception(error);
  } catch (const HttpError& e) {
    fault = e.fault();
  } catch (const Error& e) {
    timed_out = e.os_error() == ETIMEDOUT;
  } catch (const std::exception&) {
  }
  if (timed_out) fault = HttpFault::timeout;
  switch (fault) {
    case HttpFault::name:
      return findings_.problem(
          "name",
          message +
              ": look at the spelling of the host (of endpoint_url, of the account, "
              "of the region), and whether this machine resolves names at all");
    case HttpFault::proxy_name:
      return findings_.problem(
          "proxy", message + ": look at the option proxy, or http_proxy and https_proxy");
    case HttpFault::proxy:
      return findings_.problem("proxy",
                               message +
                                   ": the proxy does not let this through; user and password "
                                   "stand in its URL, no_proxy names hosts past it");
    case HttpFault::connection:
      return findings_.problem("connection",
                               message +
                                   ": nobody listens at this host and port, or a firewall is in "
                                   "between: look at the port, and whether a proxy is needed");
    case HttpFault::timeout:
      return findings_.problem(
          "connection",
          message +
              ": a firewall may drop what is sent, or the server is stuck: try "
              "from elsewhere, look whether a proxy is needed");
    case HttpFault::other:
      return findings_.problem("server", message);
    default:
      return unanswered_by_tls(fault, message);
  }
}

void RemoteDoctor::unanswered_by_tls(HttpFault fault, const std::string& message) {
  const std::string_view advice = [&]() -> std::string_view {
    switch (fault) {
      case HttpFault::ca_bundle:
        return "install the system's package of certificates (ca-certificates), or name a bundle "
               "by the option ca_bundle or SSL_CERT_FILE";
      case HttpFault::issuer:
        return "nobody in the CA bundle has signed the server's certificate: add the issuer's "
               "certificate (of a company's proxy or of a server of your own) by the option "
               "ca_bundle or SSL_CERT_FILE";
      case HttpFault::expired:
        return "the server's certificate has ended or not begun: it wants a new one, unless this "
               "machine's clock is wrong";
      case HttpFault::host:
        return "the server's certificate is of another host: ask by the name that it has";
      case HttpFault::tls:
        return "the server may not speak TLS at this port: try http://, or another port";
      default:
        return "the server's certificate can not be trusted";
    }
  }();
  findings_.problem("tls", message + ": " + std::string(advice));
}

void RemoteDoctor::compare_clocks(const HttpResponse& response) {
  if (clock_told_) return;
  const auto server = time_of(response);
  if (!server) return;
  clock_told_ = true;
  const auto off =
      std::chrono::duration_cast<std::chrono::minutes>(std::chrono::system_clock::now() - *server);
  if (std::chrono::abs(off) < kClockIsOff) return;
  findings_.problem("clock",
                    "this machine's clock and the server's differ by " +
                        std::to_string(std::chrono::abs(off).count()) + " minutes (ours is " +
                        (off.count() > 0 ? "ahead" : "behind") +
                        "): signed requests are refused from 15 on, and certificates look "
                        "expired; set the clock (NTP)");
}

// Of an object that is given whole.
void RemoteDoctor::look_at_answer(const HttpResponse& response) {
  if (!response.redirected_to.empty()) {
    findings_.note("redirect",
                   "each request is led on to " + response.redirected_to +
                       ", and so costs two: give that URL, unless it is made anew each time");
  }
  const std::string* type = response.header("Content-Type");
  const std::string_view body = text_of(response.body.bytes());
  const std::size_t begin = body.find_first_not_of(" \t\r\n");
  if (begin != body.npos && body[begin] == '<') {
    findings_.problem("content",
                      "a page" + (type == nullptr ? "" : " (" + *type + ")") +
                          " came in place of the document, as of a site that answers every name: "
                          "the URL is not that of the data itself, or wants a login");
  }
  if (const std::string* encoding = response.header("Content-Encoding");
      encoding != nullptr && !same_name(*encoding, "identity")) {
    findings_.problem("content",
                      "the server encodes objects (" + *encoding +
                          "): bytes are not those that were stored, and ranges are not of them; "
                          "switch that off for this place");
  }
  if (!response.sized) {
    findings_.problem("length",
                      "the server does not say how long its answer is: one that is cut short would "
                      "not be noticed, and is not taken; it wants Content-Length");
  }
  if (protocol_->version_of(response).empty()) {
    findings_.note("versions",
                   "objects have neither ETag nor Last-Modified: one that is replaced while it is "
                   "read goes unseen");
  }
}

void RemoteDoctor::look_at_list() {
  if (!protocol_->abilities().lists) {
    findings_.note("list", "a web server lists nothing: groups want consolidated metadata");
    return;
  }
  HttpRequest request = protocol_->list("", true, "");
  HttpRequest asked;
  asked.method = request.method;
  asked.url = request.url;
  const HttpResponse response = ask(std::move(request));
  if (response.error) return findings_.note("list", message_of(response.error));
  if (!response.ok()) {
    const bool is_bucket = std::string_view(check_of(response, code_of(response))) == "bucket";
    const std::string says = protocol_->error_of(asked, response).what();
    if (is_bucket || response.status == 404) return findings_.problem("bucket", says);
    return findings_.note(
        "list", says + "; what has a name can be read, groups want consolidated metadata");
  }
  lists_ = true;
  try {
    const ListPage page = protocol_->page_of(response);
    findings_.good("list",
                   page.objects.empty() && page.prefixes.empty()
                       ? "allowed, and empty"
                       : "allowed: " + std::to_string(page.objects.size()) + " objects and " +
                             std::to_string(page.prefixes.size()) + " prefixes directly below" +
                             (page.next.empty() ? "" : ", and more"));
    for (const ListedObject& object : page.objects) {
      if (!object_ && object.nbytes > 1) object_ = {object.key, object.nbytes};
    }
  } catch (const Error& error) {
    findings_.problem("list", error.what());
    lists_ = false;
  }
}

void RemoteDoctor::look_at_ranges() {
  if (!object_ || object_->nbytes < 2) return;
  constexpr const char* kCost =
      ": a read of a part of an object (a shard, an uncompressed chunk) then takes all of it; ";
  const HttpResponse middle = look(*protocol_, object_->key, Extent::range(1, 1));
  if (middle.error || (middle.status != 206 && middle.status != 200)) {
    return findings_.problem("ranges",
                             middle.error ? message_of(middle.error)
                                          : "a range of " + object_->key + " is answered with " +
                                                std::to_string(middle.status));
  }
  if (middle.status == 200) {
    return findings_.note("ranges",
                          "the server knows no ranges" + std::string(kCost) +
                              "nginx, Apache and object stores know them, Python's http.server "
                              "does not");
  }
  if (!protocol_->abilities().suffix_ranges) {
    return findings_.good("ranges", "known; from the end of an object not, here");
  }
  const HttpResponse last = look(*protocol_, object_->key, Extent::suffix(1));
  if (last.error || last.status != 206 || last.nbytes != 1) {
    return findings_.note("ranges",
                          "known, but not from the end of an object (bytes=-1 is answered with " +
                              (last.error ? message_of(last.error) : std::to_string(last.status)) +
                              "): the index of a shard at its end takes the whole object");
  }
  findings_.good("ranges", "known, from the end of an object too");
}

void RemoteDoctor::say_how_long() {
  if (times_.empty()) return;
  // The first one also made the connection.
  const Clock::duration first = times_.front();
  std::vector<Clock::duration> rest(times_.begin() + (times_.size() > 1 ? 1 : 0), times_.end());
  std::sort(rest.begin(), rest.end());
  findings_.good("latency",
                 milliseconds_text(rest[rest.size() / 2]) + " a request, the first " +
                     milliseconds_text(first));
}

}  // namespace headrace
