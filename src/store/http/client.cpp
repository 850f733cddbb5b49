#include "store/http/client.h"

#include <curl/curl.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/mutex.h"
#include "base/per_process.h"
#include "base/wait_latch.h"
#include "headrace/error.h"
#include "store/http/body.h"
#include "store/http/network.h"
#include "store/http/reactors.h"

namespace headrace {

namespace {

class CurlClient final : public HttpClient {
 public:
  explicit CurlClient(const HttpOptions& options)
      : network_(std::make_shared<const NetworkSettings>(network_settings(options))) {}

  std::uint64_t send(HttpRequest request,
                     std::function<void(HttpResponse)> done) noexcept override {
    // Of all processes that fork from one: a child asks for nothing of its parent's by it.
    static std::atomic<std::uint64_t> next{1};
    std::unique_ptr<Transfer> transfer;
    std::exception_ptr error;
    try {
      const std::size_t reactor = choose_reactor();
      const std::uint64_t number = next.fetch_add(1) * kReactors + reactor;
      check_scheme(request.url);
      transfer = std::make_unique<Transfer>(number, std::move(request), network_, load());
      transfer->done = std::move(done);
      if (start_transfer(reactor, transfer)) return number;
      error = std::make_exception_ptr(Error(ErrorCode::cancelled, "HTTP: the process ends"));
    } catch (...) {
      error = std::current_exception();
    }
    HttpResponse response;
    response.error = std::move(error);
    response.attempts = 0;
    (transfer ? transfer->done : done)(std::move(response));
    return 0;
  }

  void cancel(std::uint64_t number) noexcept override {
    if (number == 0) return;
    try {
      cancel_transfer(number % kReactors, number);
    } catch (...) {
      // No memory to note it: the request goes on to its end, which its deadline bounds.
    }
  }

  const HttpOptions& options() const override { return network_->options; }

 private:
  // Of the requests of this process; those of the parent go on in the parent.
  std::shared_ptr<ClientLoad> load() {
    Load& mine = load_.get();
    const MutexLock lock(mine.mutex);
    if (!mine.load) mine.load = std::make_shared<ClientLoad>(network_->options.max_in_flight);
    return mine.load;
  }

  static void check_scheme(const std::string& url) {
    if (url.starts_with("http://") || url.starts_with("https://")) return;
    throw Error(ErrorCode::invalid_argument,
                without_secrets(url) + ": wanted a URL of http or https");
  }

  struct Load {
    Mutex mutex;
    std::shared_ptr<ClientLoad> load GUARDED_BY(mutex);
  };

  const std::shared_ptr<const NetworkSettings> network_;
  PerProcess<Load> load_;
};

}  // namespace

const std::string* HttpResponse::header(std::string_view name) const {
  return find_header(headers, name);
}

HttpResponse HttpClient::ask(HttpRequest request, FunctionRef<void(std::uint64_t)> sent) {
  WaitLatch latch(1);
  HttpResponse response;
  const std::uint64_t number = send(std::move(request), [&](HttpResponse came) {
    response = std::move(came);
    latch.count_down();
  });
  sent(number);
  latch.wait([&] { cancel(number); });
  return response;
}

std::shared_ptr<HttpClient> make_http_client(const HttpOptions& options) {
  return std::make_shared<CurlClient>(options);
}

std::optional<std::chrono::system_clock::time_point> http_time(const std::string& text) {
  const std::time_t time = curl_getdate(text.c_str(), nullptr);
  if (time < 0) return std::nullopt;
  return std::chrono::system_clock::from_time_t(time);
}

std::optional<std::chrono::system_clock::time_point> time_of(const HttpResponse& response) {
  const std::string* text = response.header("Date");
  return text == nullptr ? std::nullopt : http_time(*text);
}

std::string without_secrets(std::string_view url) {
  const std::size_t colon = url.find("://");
  if (colon == url.npos) return std::string(url.substr(0, url.find_first_of("?#")));
  const std::size_t begin = colon + 3;
  const std::string_view rest = url.substr(begin);
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  std::size_t host = authority.rfind('@');
  if (host == authority.npos) {
    // "user:pass/word@host", where the password was not encoded: what stands for the port is none.
    const std::size_t port = authority.rfind(':');
    const bool is_port = port == authority.npos || authority.find(']', port) != authority.npos ||
                         std::all_of(authority.begin() + static_cast<std::ptrdiff_t>(port) + 1,
                                     authority.end(),
                                     [](char c) { return c >= '0' && c <= '9'; });
    if (!is_port) host = rest.rfind('@');
  }
  const std::string_view shown = host == rest.npos ? rest : rest.substr(host + 1);
  return std::string(url.substr(0, begin)) +
         std::string(shown.substr(0, shown.find_first_of("?#")));
}

}  // namespace headrace
