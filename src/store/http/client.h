#pragma once

// Requests over HTTP, many at a time, by libcurl's multi interface in a few threads of the process:
//  1. HttpClient::send(request, done) queues a request. It goes out when fewer than the client's
//  limit
//     are on the wire, and is tried again as HttpOptions says until its deadline.
//  2. done(response) is called once, by a thread of the client's, which it must not hold up.
//  3. The body of an answer goes to where the request says as it comes, never through a copy.
// A child of fork makes its own threads and connections and leaves its parent's alone.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/function_ref.h"
#include "headrace/error.h"

namespace headrace {

// Of an answer that is no object: a page of a list, a token. The longest are Azure's pages of 5000
// names, which may have 1024 characters each, encoded.
inline constexpr std::uint64_t kMaxAnswerNbytes = std::uint64_t{64} << 20;

struct HttpHeader {
  std::string name;  // as it is sent; compared without regard to case
  std::string value;
};

struct HttpOptions {
  // Requests of this client. 0: 256, and no more than a quarter of the descriptors that the process
  // may have. A store far away answers one of 64 KiB in the time of 10 MiB, so many small ones want
  // to be under way together.
  int max_in_flight = 0;
  int max_attempts = 10;  // of a request, the first included
  std::chrono::milliseconds connect_timeout{10'000};
  // Of one attempt: nothing came for so long.
  std::chrono::milliseconds idle_timeout{30'000};
  // Of a request with all its attempts, and once more for each 256 KiB that have come or gone;
  // unless it has a deadline of its own.
  std::chrono::milliseconds timeout{300'000};
  // Between attempts: from `backoff` on twice as long each time up to `max_backoff`, of which a
  // random part; what the server asks for by Retry-After if that is longer.
  std::chrono::milliseconds backoff{100};
  std::chrono::milliseconds max_backoff{10'000};
  // A second try of a small GET beside the first that takes longer than most did; the first answer
  // counts.
  bool hedge = false;
  std::string ca_bundle{};  // file; empty: SSL_CERT_FILE, CURL_CA_BUNDLE, or where systems have it
  std::string proxy{};      // empty: as the environment says (http_proxy, https_proxy)
  std::string no_proxy{};   // hosts that are asked directly; empty: as no_proxy says
  bool verify_tls = true;
  std::string user_agent{};  // empty: headrace/VERSION

  // Before the next attempt, when there were `attempts`. Full jitter:
  // https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
  template <class Random>
  std::chrono::milliseconds backoff_after(int attempts, Random& random) const {
    const int doublings = std::min(attempts - 1, 20);
    const auto most = std::min<std::int64_t>(backoff.count() << doublings, max_backoff.count());
    return std::chrono::milliseconds(std::uniform_int_distribution<std::int64_t>(0, most)(random));
  }
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;  // encoded
  std::vector<HttpHeader> headers{};

  // Sent; the parts live until done(), or as long as `body_owner`.
  std::vector<ConstBytes> body{};
  std::shared_ptr<const void> body_owner{};  // of parts that nobody else keeps

  // Where the body of an answer of success goes; empty: HttpResponse::body. One that is longer or
  // shorter is `corrupt` or, cut short, tried again from where it ended (by Range, If-Match).
  MutableBytes into{};
  // Where the bytes of `into` begin in the whole object, for servers that know no ranges: of a body
  // that is all of it (status 200) they are cut out as it passes. `unsupported` where much would
  // pass for nothing.
  std::optional<std::uint64_t> whole_offset{};
  // A longer body is `corrupt`. Who reads objects says how long they may be.
  std::uint64_t max_nbytes = kMaxAnswerNbytes;
  // Whether a second try can do no harm although the first may have been carried out.
  bool repeatable = true;
  std::optional<std::chrono::steady_clock::time_point> deadline{};

  // Called before each attempt, by a thread of the client's, with the request as it will go out:
  // dates and signatures. Must not wait, nor take a lock under which others wait: no fork begins
  // before it returns. Not called where a redirect leads to another host, which gets no header but
  // those that say which bytes are wanted.
  std::function<void(HttpRequest&)> sign{};
};

// Why no answer came, as far as that can be told apart.
enum class HttpFault : std::uint8_t {
  other,
  name,         // the host's name leads nowhere
  proxy_name,   // the proxy's
  connection,   // refused, unreachable
  proxy,        // it does not let the connection through
  timeout,      // nobody answered in time
  ca_bundle,    // what certificates are checked by cannot be read, or there is none
  issuer,       // nobody that is trusted has signed the certificate
  expired,      // or not valid yet
  host,         // the certificate is of another host
  certificate,  // what else is wrong with it
  tls,          // the other side does not speak it, or none of our versions
};

// What HttpResponse::error is of, where no server answered.
class HttpError : public Error {
 public:
  HttpError(HttpFault fault, ErrorCode code, const std::string& message, int os_error)
      : Error(code, message, os_error), fault_(fault) {}
  HttpFault fault() const { return fault_; }

 private:
  HttpFault fault_;
};

struct HttpResponse {
  // Why there is no answer: a connection that fails, a deadline (`io`, ETIMEDOUT), `cancelled`. An
  // answer of whatever status is no error; those worth it were tried again before.
  std::exception_ptr error{};
  int status = 0;
  std::vector<HttpHeader> headers{};
  Buffer body{};             // unless the request had a place for it
  std::uint64_t nbytes = 0;  // of the body
  // Whether the server said where the body ends, so that a cut one was noticed.
  bool sized = false;
  // Of an answer that is no success: its body did not come to its end, or not in time.
  bool cut_short = false;
  int attempts = 1;
  // Sent once more within the last attempt, as a kept connection was closed: the first may have
  // been carried out.
  bool resent = false;
  // Where the answer came from when that is another URL than was asked for; without secrets.
  std::string redirected_to{};

  const std::string* header(std::string_view name) const;  // null: none
  bool ok() const { return !error && status >= 200 && status < 300; }
};

class HttpClient {
 public:
  virtual ~HttpClient() = default;

  // A number for cancel(). Never throws: what is wrong is in the response. done() must not throw.
  // Who destroys the client waits for nothing: what is under way goes on to its end.
  virtual std::uint64_t send(HttpRequest request,
                             std::function<void(HttpResponse)> done) noexcept = 0;
  // Waits for the answer, or until the caller wants it no more; sent(), which must not throw, is
  // told its number. Not for done()'s threads.
  HttpResponse ask(
      HttpRequest request, FunctionRef<void(std::uint64_t)> sent = [](std::uint64_t) {});
  // done() is called soon, with `cancelled` unless it was called before. It may be called, by
  // another thread, before this returns; of a request of the parent's a child of fork never hears.
  virtual void cancel(std::uint64_t number) noexcept = 0;
  virtual const HttpOptions& options() const = 0;
};

// Clients of equal options share connections and threads; max_in_flight bounds each by itself.
std::shared_ptr<HttpClient> make_http_client(const HttpOptions& options);

// "Mon, 23 Nov 2026 07:00:00 GMT"; nothing for what is no time.
std::optional<std::chrono::system_clock::time_point> http_time(const std::string& text);
// The header Date; nothing: there is none, or it is no time.
std::optional<std::chrono::system_clock::time_point> time_of(const HttpResponse& response);

// Never shown: query, user and password of a URL, for messages.
std::string without_secrets(std::string_view url);

}  // namespace headrace
