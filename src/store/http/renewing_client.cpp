#include "store/http/renewing_client.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "base/per_process.h"
#include "store/io_threads.h"

namespace headrace {
namespace {

// Of one request: some may be signed by what ends before they arrive, when many are under way.
constexpr int kMaxRenewals = 3;

class RenewingClient final : public HttpClient,
                             public std::enable_shared_from_this<RenewingClient> {
 public:
  RenewingClient(std::shared_ptr<ObjectProtocol> protocol, std::shared_ptr<HttpClient> client)
      : protocol_(std::move(protocol)), client_(std::move(client)) {}

  std::uint64_t send(HttpRequest request,
                     std::function<void(HttpResponse)> done) noexcept override {
    static std::atomic<std::uint64_t> next{1};
    std::shared_ptr<Job> job;
    try {
      job = std::make_shared<Job>();
      job->number = next.fetch_add(1);
      job->request = std::move(request);
      job->done = std::move(done);
      State& state = state_.get();
      const MutexLock lock(state.mutex);
      state.jobs.emplace(job->number, job);
    } catch (...) {
      (job && job->done ? job->done : done)(not_sent(std::current_exception()));
      return 0;
    }
    const std::uint64_t number = job->number;  // it may be over before ask() returns
    ask(job);
    return number;
  }

  // What waits for credentials ends at once: they may take as long as their server.
  void cancel(std::uint64_t number) noexcept override {
    std::shared_ptr<Job> waiting;
    std::uint64_t sent = 0;
    {
      State& state = state_.get();
      const MutexLock lock(state.mutex);
      const auto at = state.jobs.find(number);
      if (at == state.jobs.end()) return;
      at->second->cancelled = true;
      sent = at->second->sent;
      if (at->second->waits) {
        waiting = std::move(at->second);
        state.jobs.erase(at);
      }
    }
    if (waiting) {
      waiting->done(not_sent(
          std::make_exception_ptr(Error(ErrorCode::cancelled, "the request was cancelled"))));
    } else if (sent != 0) {
      client_->cancel(sent);
    }
  }

  const HttpOptions& options() const override { return client_->options(); }

 private:
  struct Job {
    std::uint64_t number = 0;
    HttpRequest request;
    std::function<void(HttpResponse)> done;
    std::uint64_t credentials = 0;  // that it is signed by, or later ones
    int renewals = 0;
    HttpResponse answer;  // that says so
    // Under the state's lock.
    std::uint64_t sent = 0;  // the client's number of it
    bool waits = false;      // for credentials
    bool cancelled = false;
  };
  struct State {
    Mutex mutex;
    std::unordered_map<std::uint64_t, std::shared_ptr<Job>> jobs GUARDED_BY(mutex);
  };

  // Or to no avail: nothing was done.
  static HttpResponse not_sent(std::exception_ptr why) {
    HttpResponse response;
    response.error = std::move(why);
    response.attempts = 0;
    return response;
  }

  void ask(const std::shared_ptr<Job>& job) noexcept {
    std::uint64_t sent = 0;
    try {
      job->credentials = protocol_->credentials();
      HttpRequest request = job->request;  // it may be asked once more
      sent = client_->send(std::move(request),
                           [self = shared_from_this(), job](HttpResponse response) {
                             self->answered(job, std::move(response));
                           });
    } catch (...) {
      return end(*job, not_sent(std::current_exception()));
    }
    bool cancelled = false;
    {
      State& state = state_.get();
      const MutexLock lock(state.mutex);
      // That of a later time has a higher number.
      job->sent = std::max(job->sent, sent);
      cancelled = job->cancelled;
    }
    if (cancelled) client_->cancel(sent);
  }

  // By a thread of the client's.
  void answered(const std::shared_ptr<Job>& job, HttpResponse response) noexcept {
    const bool may_end = !response.error && response.status >= 400 && response.status < 500;
    if (may_end && job->renewals < kMaxRenewals &&
        protocol_->have_ended(response, job->credentials)) {
      ++job->renewals;
      job->answer = std::move(response);
      if (renews(job)) return;
      response = std::move(job->answer);
    }
    end(*job, std::move(response));
  }

  // False where that is not to be: then the answer is what it is.
  bool renews(const std::shared_ptr<Job>& job) noexcept {
    State& state = state_.get();
    {
      const MutexLock lock(state.mutex);
      if (job->cancelled) return false;
      job->waits = true;
    }
    try {
      threads_.run([self = shared_from_this(), job] { self->renew(job); });
      return true;
    } catch (...) {
      const MutexLock lock(state.mutex);
      job->waits = false;
      return state.jobs.find(job->number) == state.jobs.end();
    }
  }

  void renew(const std::shared_ptr<Job>& job) noexcept {
    std::exception_ptr failed;
    try {
      protocol_->prepare();
    } catch (...) {
      failed = std::current_exception();
    }
    {
      State& state = state_.get();
      const MutexLock lock(state.mutex);
      if (state.jobs.find(job->number) == state.jobs.end()) return;  // cancelled
      job->waits = false;
    }
    if (failed) return end(*job, not_sent(std::move(failed)));
    // There are no others.
    if (protocol_->credentials() <= job->credentials) return end(*job, std::move(job->answer));
    ask(job);
  }

  void end(Job& job, HttpResponse response) noexcept {
    {
      State& state = state_.get();
      const MutexLock lock(state.mutex);
      state.jobs.erase(job.number);
    }
    job.done(std::move(response));
  }

  const std::shared_ptr<ObjectProtocol> protocol_;
  const std::shared_ptr<HttpClient> client_;
  PerProcess<State> state_;
  // One fetches for all; the others wait behind it.
  IoThreads threads_{1};
};

}  // namespace

std::shared_ptr<HttpClient> make_renewing_client(std::shared_ptr<ObjectProtocol> protocol,
                                                 std::shared_ptr<HttpClient> client) {
  return std::make_shared<RenewingClient>(std::move(protocol), std::move(client));
}

}  // namespace headrace
