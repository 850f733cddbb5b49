#pragma once

// Servers that are a function, for what asks an HttpClient.

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "store/cloud/environment.h"
#include "store/cloud/request.h"
#include "store/http/client.h"

namespace headrace::kit {

// What of a request a test looks at; the body is copied.
struct Asked {
  std::string method;
  std::string url;
  std::string body;
  std::map<std::string, std::string> headers;  // by names in lower case
};

inline Asked asked_of(HttpRequest request) {
  if (request.sign) request.sign(request);
  Asked asked{request.method, request.url, "", {}};
  for (const ConstBytes part : request.body) asked.body += text_of(part);
  for (const HttpHeader& header : request.headers) {
    asked.headers[lower(header.name)] = header.value;
  }
  return asked;
}

inline HttpResponse answer(int status,
                           const std::string& body,
                           std::vector<HttpHeader> headers = {}) {
  HttpResponse response;
  response.status = status;
  response.headers = std::move(headers);
  response.body.assign(bytes_of(body));
  response.nbytes = body.size();
  return response;
}

inline HttpResponse no_answer() {
  HttpResponse response;
  response.error = std::make_exception_ptr(Error(ErrorCode::io, "nobody listens"));
  return response;
}

class FunctionClient final : public HttpClient {
 public:
  using Server = std::function<HttpResponse(const Asked&)>;
  explicit FunctionClient(Server server) : server_(std::move(server)) {}

  std::uint64_t send(HttpRequest request,
                     std::function<void(HttpResponse)> done) noexcept override {
    Asked asked = asked_of(std::move(request));
    {
      const MutexLock lock(mutex_);
      all_.push_back(asked);
    }
    done(server_(asked));
    return 1;
  }
  void cancel(std::uint64_t) noexcept override {}
  const HttpOptions& options() const override { return options_; }

  std::vector<Asked> all() const {
    const MutexLock lock(mutex_);
    return all_;
  }

 private:
  const Server server_;
  const HttpOptions options_{.backoff = std::chrono::milliseconds(1)};
  mutable Mutex mutex_;
  std::vector<Asked> all_ GUARDED_BY(mutex_);
};

using Variables = std::map<std::string, std::string>;

inline Surroundings surroundings(Variables variables, std::shared_ptr<HttpClient> client) {
  return {[variables = std::move(variables)](const char* name) -> std::optional<std::string> {
            const auto found = variables.find(name);
            if (found == variables.end()) return std::nullopt;
            return found->second;
          },
          client,
          client};
}

}  // namespace headrace::kit
