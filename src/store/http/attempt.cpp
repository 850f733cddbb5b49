#include "store/http/attempt.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/system.h"
#include "headrace/error.h"
#include "store/http/content_range.h"
#include "store/http/redirect.h"

namespace headrace {

namespace {

constexpr int kMaxRedirects = 5;
constexpr std::size_t kMaxHeadersNbytes = std::size_t{256} << 10;
// Documents that say what is wrong are short and come at once; of others this is enough, or a body
// without an end would hold up its request until the deadline.
constexpr std::size_t kMaxErrorNbytes = std::size_t{64} << 10;
constexpr std::chrono::seconds kMaxErrorTime{2};
constexpr long kReceiveNbytes = 256 << 10;
constexpr long kSendNbytes = 512 << 10;
constexpr int kUnsentNbytes = 128 << 10;  // that the kernel keeps besides what is on its way

template <typename Value>
void set(CURL* easy, CURLoption option, Value value) {
  const CURLcode code = curl_easy_setopt(easy, option, value);
  if (code == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
  if (code != CURLE_OK) {
    throw Error(ErrorCode::unsupported,
                "libcurl " + std::string(curl_version_info(CURLVERSION_NOW)->version) +
                    " refuses option " + std::to_string(static_cast<int>(option)) + ": " +
                    curl_easy_strerror(code));
  }
}

bool has_scheme(const std::string& url, std::string_view scheme) {
  return same_name(std::string_view(url).substr(0, scheme.size()), scheme);
}

void check_sendable(std::string_view text, const char* what) {
  if (text.find_first_of(std::string_view("\r\n\0", 3)) == text.npos) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(what) + " of an HTTP request holds a line break or a NUL");
}

std::string_view trim(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Not sent at all, so that every request may be tried again.
bool never_reached(CURLcode code) {
  return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
         code == CURLE_COULDNT_CONNECT || code == CURLE_SSL_CONNECT_ERROR;
}

bool is_wrong(CURLcode code) {
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_OUT_OF_MEMORY:
    case CURLE_NOT_BUILT_IN:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_LOGIN_DENIED:
      return true;
    default:
      return false;
  }
}

// `reason` in libcurl's words: what its verification found has a number only behind OpenSSL.
HttpFault fault_of(CURLcode code, CURL* easy, std::string_view reason) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
      return HttpFault::name;
    case CURLE_COULDNT_RESOLVE_PROXY:
      return HttpFault::proxy_name;
    case CURLE_COULDNT_CONNECT:
      return HttpFault::connection;
    case CURLE_OPERATION_TIMEDOUT:
      return HttpFault::timeout;
    case CURLE_SSL_CACERT_BADFILE:
      return HttpFault::ca_bundle;
    case CURLE_SSL_CONNECT_ERROR:
      return HttpFault::tls;
    case CURLE_PEER_FAILED_VERIFICATION:
      break;
    default:
      return reason.find("CONNECT tunnel") != reason.npos ||
                     reason.find("from proxy after CONNECT") != reason.npos
                 ? HttpFault::proxy
                 : HttpFault::other;
  }
  // https://docs.openssl.org/master/man1/openssl-verification-options/#diagnostics
  long found = 0;
  curl_easy_getinfo(easy, CURLINFO_SSL_VERIFYRESULT, &found);
  const auto says = [&](std::string_view word) { return reason.find(word) != reason.npos; };
  if (found == 9 || found == 10 || says("expired") || says("not yet valid")) {
    return HttpFault::expired;
  }
  if ((found >= 18 && found <= 21) || found == 2 || says("self-signed") || says("self signed") ||
      says("issuer")) {
    return HttpFault::issuer;
  }
  if (found == 62 || says("host name") || says("hostname")) return HttpFault::host;
  return HttpFault::certificate;
}

int os_error_of(CURLcode code, CURL* easy) {
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return ETIMEDOUT;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return EHOSTUNREACH;
    case CURLE_COULDNT_CONNECT: {
      long number = 0;
      curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &number);
      return number > 0 ? static_cast<int>(number) : ECONNREFUSED;
    }
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
      return ECONNRESET;
    default:
      return 0;
  }
}

}  // namespace

Attempt::Attempt(CURL* easy,
                 std::uint64_t number,
                 const HttpRequest& request,
                 ResponseBody& body,
                 const NetworkSettings& network,
                 std::vector<std::uint64_t>& errors)
    : easy_(easy),
      number_(number),
      request_(request),
      body_(body),
      network_(network),
      errors_(errors),
      started_(HttpClock::now()),
      last_progress_(started_) {
  prepare(request.url);
}

Attempt::~Attempt() {
  if (began_body_) body_.keep_beginning(status_, headers_);
  // Nothing of this is used by the handle's next request.
  curl_easy_reset(easy_);
}

Attempt& Attempt::of(CURL* easy) {
  void* self = nullptr;
  curl_easy_getinfo(easy, CURLINFO_PRIVATE, &self);
  return *static_cast<Attempt*>(self);
}

bool Attempt::is_clean(CURL* easy) {
  // Refused for as long as it has a buffer.
  return curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kReceiveNbytes) == CURLE_OK;
}

void Attempt::prepare(const std::string& url) {
  wire_ = {};
  wire_.method = request_.method;
  wire_.url = url;
  wire_.headers = request_.headers;
  wire_.body = request_.body;
  asked_for_rest_ = body_.can_resume();
  if (asked_for_rest_) body_.ask_for_rest(wire_.headers);
  if (redirects_ > 0 && !same_origin(url, request_.url)) {
    keep_harmless(wire_.headers);
  } else if (request_.sign) {
    request_.sign(wire_);
  }

  check_sendable(wire_.url, "the URL");
  check_sendable(wire_.method, "the method");
  sent_headers_.reset();
  const auto append = [this](const std::string& line) {
    curl_slist* longer = curl_slist_append(sent_headers_.get(), line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    static_cast<void>(sent_headers_.release());
    sent_headers_.reset(longer);
  };
  for (const auto& [name, value] : wire_.headers) {
    check_sendable(name, "a header's name");
    check_sendable(value, "a header");
    append(value.empty() ? name + ";" : name + ": " + value);
  }
  append("Expect:");  // to wait for leave to send costs a round trip

  curl_easy_reset(easy_);
  set(easy_, CURLOPT_PRIVATE, static_cast<void*>(this));
  set(easy_, CURLOPT_ERRORBUFFER, reason_.data());
  set(easy_, CURLOPT_URL, wire_.url.c_str());
  set(easy_, CURLOPT_HTTPHEADER, sent_headers_.get());
  set_up_network();
  set_up_body();
  set(easy_, CURLOPT_HEADERFUNCTION, &Attempt::on_header);
  set(easy_, CURLOPT_HEADERDATA, static_cast<void*>(this));
  set(easy_, CURLOPT_WRITEFUNCTION, &Attempt::on_body);
  set(easy_, CURLOPT_WRITEDATA, static_cast<void*>(this));
  was_sent_ = false;
  set(easy_, CURLOPT_PREREQFUNCTION, &Attempt::on_connected);
  set(easy_, CURLOPT_PREREQDATA, static_cast<void*>(this));
}

void Attempt::set_up_network() {
  const HttpOptions& options = network_.options;
  set(easy_, CURLOPT_NOSIGNAL, 1L);
  set(easy_, CURLOPT_PATH_AS_IS, 1L);  // "a/../b" may be a key
#if LIBCURL_VERSION_NUM >= 0x075500
  set(easy_, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  set(easy_, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
  set(easy_, CURLOPT_QUICK_EXIT, 1L);  // who gives up does not wait for a name to be resolved
#endif
  // HTTP/2 would put all requests to a host on one connection, and S3 does not speak it.
  set(easy_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(easy_, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(easy_, CURLOPT_TCP_KEEPALIVE, 1L);
  set(easy_, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
  set(easy_, CURLOPT_BUFFERSIZE, kReceiveNbytes);
  set(easy_, CURLOPT_UPLOAD_BUFFERSIZE, kSendNbytes);
  set(easy_, CURLOPT_USERAGENT, network_.user_agent.c_str());
  // Set even when empty: else libcurl looks into the environment, which another thread may change.
  const bool secure = has_scheme(wire_.url, "https:");
  set(easy_, CURLOPT_PROXY, secure ? network_.https_proxy.c_str() : network_.http_proxy.c_str());
  set(easy_, CURLOPT_NOPROXY, network_.no_proxy.c_str());
  set(easy_, CURLOPT_SSL_VERIFYPEER, options.verify_tls ? 1L : 0L);
  set(easy_, CURLOPT_SSL_VERIFYHOST, options.verify_tls ? 2L : 0L);
  if (!network_.ca_bundle.empty()) set(easy_, CURLOPT_CAINFO, network_.ca_bundle.c_str());
  set(easy_, CURLOPT_SOCKOPTFUNCTION, &Attempt::on_socket);
}

void Attempt::set_up_body() {
  const std::string& method = wire_.method;
  std::uint64_t nbytes = 0;
  for (const ConstBytes part : wire_.body) nbytes += part.size();
  part_ = part_at_ = 0;
  if (method == "HEAD") {
    set(easy_, CURLOPT_NOBODY, 1L);
  } else if (nbytes > 0 || method == "PUT" || method == "POST") {
    set(easy_, CURLOPT_UPLOAD, 1L);
    set(easy_, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(nbytes));
    set(easy_, CURLOPT_READFUNCTION, &Attempt::on_send);
    set(easy_, CURLOPT_READDATA, static_cast<void*>(this));
    set(easy_, CURLOPT_SEEKFUNCTION, &Attempt::on_seek);
    set(easy_, CURLOPT_SEEKDATA, static_cast<void*>(this));
    set(easy_, CURLOPT_CUSTOMREQUEST, method.c_str());
  } else {
    set(easy_, CURLOPT_HTTPGET, 1L);
    if (method != "GET") set(easy_, CURLOPT_CUSTOMREQUEST, method.c_str());
  }
}

int Attempt::on_socket(void*, curl_socket_t fd, curlsocktype) {
  // A program that is started meanwhile must not keep the connection open.
  os().fcntl(fd, F_SETFD, FD_CLOEXEC);
  // Else the kernel takes megabytes at once, and sends them unseen for longer than a server may be
  // silent where many share a slow link. Without it that is how it is.
  os().setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentNbytes, sizeof(kUnsentNbytes));
  return CURL_SOCKOPT_OK;
}

void Attempt::note_sent() {
  curl_off_t sent = 0;
  curl_easy_getinfo(easy_, CURLINFO_SIZE_UPLOAD_T, &sent);
  if (static_cast<std::uint64_t>(sent) <= sent_) return;
  sent_ = static_cast<std::uint64_t>(sent);
  last_progress_ = HttpClock::now();
}

std::size_t Attempt::on_header(char* data, std::size_t size, std::size_t count, void* self) {
  Attempt& attempt = *static_cast<Attempt*>(self);
  const std::size_t nbytes = size * count;
  if (attempt.lost_) return 0;
  attempt.last_progress_ = HttpClock::now();
  try {
    attempt.take_header({data, nbytes});
  } catch (...) {
    attempt.wrong_ = std::current_exception();
  }
  return attempt.wrong_ || attempt.stale_ ? 0 : nbytes;
}

void Attempt::take_header(std::string_view line) {
  headers_nbytes_ += line.size();
  if (headers_nbytes_ > kMaxHeadersNbytes || headers_.size() > 1000) {
    throw Error(ErrorCode::corrupt, what() + ": the answer's headers do not end");
  }
  if (line.starts_with("HTTP/")) {
    // "HTTP/1.1 200 OK"; an informational answer may have come before.
    headers_.clear();
    const std::size_t blank = line.find(' ');
    const auto status = blank == line.npos ? std::nullopt : parse_number(line.substr(blank + 1, 3));
    status_ = static_cast<int>(status.value_or(0));
    return;
  }
  if (trim(line).empty()) {
    if (status_ >= 200 && !answered_) answer_begins();
    return;
  }
  if (answered_) return;  // a trailer
  const std::size_t colon = line.find(':');
  if (colon == line.npos) return;
  headers_.push_back(
      {std::string(trim(line.substr(0, colon))), std::string(trim(line.substr(colon + 1)))});
}

void Attempt::answer_begins() {
  answered_ = true;
  answered_at_ = last_progress_;
  if (rival_ != nullptr) {
    rival_->lost_ = true;
    rival_ = nullptr;
  }
  if (!is_success() && wire_.method != "HEAD") errors_.push_back(number_);
  if (!is_success() || wire_.method == "HEAD") return;
  // rclone says 200 of a part, too; a whole object has no such header.
  if (status_ == 200 && find_header(headers_, "Content-Range") != nullptr) status_ = 206;
  std::optional<std::uint64_t> length;
  if (const std::string* encoding = find_header(headers_, "Transfer-Encoding");
      encoding == nullptr || same_name(*encoding, "identity")) {
    if (const std::string* text = find_header(headers_, "Content-Length")) {
      length = parse_number(*text);
      if (!length) throw Error(ErrorCode::corrupt, what() + ": its length is no number");
    }
  }
  try {
    stale_ = !body_.begin(status_, headers_, length, asked_for_rest_);
    began_body_ = !stale_ && body_.nbytes() == 0;
  } catch (const Error& error) {
    throw error.with_context(what());
  }
}

std::size_t Attempt::on_body(char* data, std::size_t size, std::size_t count, void* self) {
  Attempt& attempt = *static_cast<Attempt*>(self);
  const std::size_t nbytes = size * count;
  if (attempt.lost_) return 0;
  attempt.last_progress_ = HttpClock::now();
  attempt.received_ += nbytes;
  const ConstBytes bytes = bytes_of({data, nbytes});
  try {
    if (attempt.is_success()) return attempt.body_.take(bytes) ? nbytes : 0;
    const std::size_t room = kMaxErrorNbytes - attempt.error_body_.size();
    attempt.error_body_.append(bytes.first(std::min(bytes.size(), room)));
    return attempt.has_enough_of_error() ? 0 : nbytes;
  } catch (const Error& error) {
    attempt.wrong_ = std::make_exception_ptr(error.with_context(attempt.what()));
  } catch (...) {
    attempt.wrong_ = std::current_exception();
  }
  return 0;
}

std::size_t Attempt::on_send(char* data, std::size_t size, std::size_t count, void* self) {
  Attempt& attempt = *static_cast<Attempt*>(self);
  if (attempt.lost_) return CURL_READFUNC_ABORT;
  attempt.last_progress_ = HttpClock::now();
  std::size_t filled = 0;
  const std::size_t room = size * count;
  const auto& parts = attempt.wire_.body;
  while (filled < room && attempt.part_ < parts.size()) {
    const ConstBytes rest = parts[attempt.part_].subspan(attempt.part_at_);
    const std::size_t n = std::min(rest.size(), room - filled);
    if (n > 0) std::memcpy(data + filled, rest.data(), n);
    filled += n;
    attempt.part_at_ += n;
    if (n == rest.size()) {
      ++attempt.part_;
      attempt.part_at_ = 0;
    }
  }
  return filled;
}

int Attempt::on_seek(void* self, curl_off_t offset, int origin) {
  // libcurl goes back to the start alone, when a kept connection turned out to be closed.
  if (offset != 0 || origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  Attempt& attempt = *static_cast<Attempt*>(self);
  attempt.part_ = attempt.part_at_ = 0;
  return CURL_SEEKFUNC_OK;
}

// Each time before the request goes out.
int Attempt::on_connected(void* self, char*, char*, int, int) {
  Attempt& attempt = *static_cast<Attempt*>(self);
  attempt.resent_ |= std::exchange(attempt.was_sent_, true);
  return CURL_PREREQFUNC_OK;
}

std::string Attempt::what() const { return wire_.method + " " + without_secrets(wire_.url); }

bool Attempt::is_redirect() const {
  const bool reads = wire_.method == "GET" || wire_.method == "HEAD";
  const bool leads = status_ == 307 || status_ == 308 ||
                     (reads && (status_ == 301 || status_ == 302 || status_ == 303));
  const std::string* location = leads ? find_header(headers_, "Location") : nullptr;
  if (location == nullptr) return false;
  // To another host nothing is written, and what a signature was for is not asked without one: what
  // the answer means there is the protocol's to say.
  if (reads && !request_.sign) return true;
  return same_origin(redirect_target(wire_.url, *location), request_.url);
}

AttemptEnd Attempt::end(CURLcode code) {
  using Kind = AttemptEnd::Kind;
  cut_short_ = code != CURLE_OK;
  if (wrong_) return {.kind = Kind::wrong, .error = wrong_};
  if (stale_) {
    return {.kind = Kind::failed,
            .error = std::make_exception_ptr(
                Error(ErrorCode::io, what() + ": changed while it was read", ESTALE)),
            .again_at_once = true};
  }
  const bool had_enough = code == CURLE_WRITE_ERROR && answered_ &&
                          (is_success() ? body_.is_complete() : has_enough_of_error());
  if (code == CURLE_OK || had_enough) return end_of_answer();
  return failure(code);
}

bool Attempt::has_sent_all() const {
  // No view: clang before 16 takes none of GCC's.
  const std::span<const ConstBytes> parts(wire_.body);
  return std::ranges::all_of(parts.subspan(std::min(part_, parts.size())),
                             [](ConstBytes part) { return part.empty(); });
}

HttpClock::time_point Attempt::error_until() const { return answered_at_ + kMaxErrorTime; }

bool Attempt::has_enough_of_error() const {
  return error_body_.size() >= kMaxErrorNbytes || HttpClock::now() >= error_until();
}

AttemptEnd Attempt::end_of_answer() {
  using Kind = AttemptEnd::Kind;
  if (!answered_) return failure(CURLE_GOT_NOTHING);
  // The condition under which the rest was asked for: another object is there now.
  if (asked_for_rest_ && status_ >= 400 && status_ < 500 && status_ != 429 && status_ != 408) {
    body_.restart();
    return {.kind = Kind::failed,
            .error = std::make_exception_ptr(
                Error(ErrorCode::io, what() + ": changed while it was read", ESTALE)),
            .again_at_once = true};
  }
  try {
    if (is_redirect()) return {.kind = Kind::redirect};
  } catch (...) {
    return {.kind = Kind::wrong, .error = std::current_exception()};
  }
  if (is_success() && wire_.method != "HEAD" && !body_.is_complete()) {
    return failure(CURLE_PARTIAL_FILE);
  }
  // Who calls it a success before he has all of it has stored something else.
  if (is_success() && !has_sent_all()) return failure(CURLE_SEND_ERROR);
  return {};
}

AttemptEnd Attempt::failure(CURLcode code) const {
  std::string message = what() + ": ";
  // Its own words for a bad URL may hold a part of it.
  const bool is_url = code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL;
  const std::string reason = trim(reason_.data()).empty() || is_url
                                 ? std::string(curl_easy_strerror(code))
                                 : std::string(trim(reason_.data()));
  message += reason;
  if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
    message += network_.ca_bundle.empty() ? " (no CA bundle was found" : " (the CA bundle is ";
    message += network_.ca_bundle + "; SSL_CERT_FILE or the option ca_bundle names another)";
  }
  return {.kind = is_wrong(code) ? AttemptEnd::Kind::wrong : AttemptEnd::Kind::failed,
          .error = std::make_exception_ptr(
              HttpError(fault_of(code, easy_, reason),
                        code == CURLE_OUT_OF_MEMORY ? ErrorCode::out_of_memory : ErrorCode::io,
                        message,
                        os_error_of(code, easy_))),
          .unreachable = never_reached(code)};
}

void Attempt::go_on() {
  const std::string* location = find_header(headers_, "Location");
  const std::string target = redirect_target(wire_.url, *location);
  if (++redirects_ > kMaxRedirects) {
    throw Error(ErrorCode::io,
                request_.method + " " + without_secrets(request_.url) + ": redirected more than " +
                    std::to_string(kMaxRedirects) + " times",
                ELOOP);
  }
  status_ = 0;
  answered_ = false;
  headers_.clear();
  headers_nbytes_ = 0;
  error_body_.clear();
  last_progress_ = HttpClock::now();
  prepare(target);
}

}  // namespace headrace
