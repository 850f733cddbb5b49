#include "store/http/reactor.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <string>
#include <system_error>

#include "base/start_thread.h"
#include "headrace/error.h"
#include "store/http/content_range.h"

namespace headrace {

namespace {

using std::chrono::milliseconds;

// Of each reactor. Less than there are requests at a time would close a connection after each.
constexpr long kMaxConnections = 512;
constexpr std::size_t kMaxIdleHandles = 256;
// Of a server that never answered: it is more likely that there is none than that it is busy.
constexpr int kMaxUnreachable = 4;
// In the time that a request may take: with each of these it may take as long once more.
constexpr double kSlowNbytes = 256 << 10;
// A whole one may be asked for twice.
constexpr std::uint64_t kMaxHedgedNbytes = std::uint64_t{1} << 20;

bool is_worth_another(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
         status == 504;
}

// Of these the server says that it did nothing.
bool did_nothing(int status) { return status == 429 || status == 503; }

// Retry-After: seconds, or a date.
milliseconds asked_delay(const std::vector<HttpHeader>& headers) {
  constexpr std::uint64_t kMost = 86'400;
  const std::string* text = find_header(headers, "Retry-After");
  if (text == nullptr) return milliseconds(0);
  if (const auto seconds = parse_number(*text)) {
    return std::chrono::seconds(std::min(*seconds, kMost));
  }
  const std::time_t then = curl_getdate(text->c_str(), nullptr);
  const std::time_t now = std::time(nullptr);
  if (then <= now) return milliseconds(0);
  return std::chrono::seconds(
      std::min<std::uint64_t>(static_cast<std::uint64_t>(then - now), kMost));
}

std::string text_of_error(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown";
  }
}

std::string what(const Transfer& transfer) {
  return transfer.request.method + " " + without_secrets(transfer.request.url);
}

}  // namespace

Reactor::Reactor(std::function<void(const Reactor*)> wake_others)
    : wake_others_(std::move(wake_others)), multi_(curl_multi_init()) {
  if (multi_ == nullptr) throw Error(ErrorCode::out_of_memory, "cannot make a handle of libcurl");
  curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, kMaxConnections);
  curl_multi_setopt(multi_, CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
}

// Of one whose thread never started; the thread has done it else.
Reactor::~Reactor() {
  if (thread_.joinable()) thread_.detach();
  const MutexLock lock(inbox_mutex_);
  if (!ended_) curl_multi_cleanup(multi_);
}

std::shared_ptr<Reactor> Reactor::start(std::function<void(const Reactor*)> wake_others) {
  std::shared_ptr<Reactor> reactor(new Reactor(std::move(wake_others)));
  try {
    reactor->thread_ = start_thread([reactor] { reactor->run(); });
  } catch (const std::system_error&) {
    throw Error(ErrorCode::io, "cannot start a thread for HTTP", EAGAIN);
  }
  return reactor;
}

bool Reactor::add(std::unique_ptr<Transfer>& transfer) {
  const MutexLock lock(inbox_mutex_);
  if (stopping_) return false;
  added_.push_back(nullptr);
  added_.back() = std::move(transfer);
  count_.fetch_add(1, std::memory_order_relaxed);
  if (!std::exchange(woken_, true)) curl_multi_wakeup(multi_);
  return true;
}

void Reactor::cancel(std::uint64_t number) {
  const MutexLock lock(inbox_mutex_);
  if (ended_) return;
  cancelled_.push_back(number);
  if (!std::exchange(woken_, true)) curl_multi_wakeup(multi_);
}

void Reactor::wake() {
  const MutexLock lock(inbox_mutex_);
  if (!ended_ && !std::exchange(woken_, true)) curl_multi_wakeup(multi_);
}

void Reactor::stop(milliseconds patience) {
  const auto deadline = HttpClock::now() + patience;
  const bool is_own_thread = thread_.get_id() == std::this_thread::get_id();
  {
    const MutexLock lock(inbox_mutex_);
    stopping_ = true;
    if (!ended_) curl_multi_wakeup(multi_);
    if (is_own_thread) return;
    while (!cleaned_up_ && ended_now_.wait_until(inbox_mutex_, deadline)) {
    }
    if (!cleaned_up_) return;
  }
  // OpenSSL and libcurl give back what they keep for the thread behind its last line. The process
  // must not end them meanwhile, nor wait for ever for what others have the thread do there.
  if (!thread_.joinable()) return;
  struct Joined {
    explicit Joined(std::thread its_thread) : thread(std::move(its_thread)) {}
    std::thread thread;
    Mutex mutex;
    ConditionVariable changed;
    bool is_joined GUARDED_BY(mutex) = false;
  };
  const auto joined = std::make_shared<Joined>(std::move(thread_));
  try {
    start_thread([joined] {
      joined->thread.join();
      const MutexLock lock(joined->mutex);
      joined->is_joined = true;
      joined->changed.notify_all();
    }).detach();
  } catch (const std::system_error&) {
    joined->thread.detach();
    return;
  }
  const MutexLock lock(joined->mutex);
  while (!joined->is_joined && joined->changed.wait_until(joined->mutex, deadline)) {
  }
}

void Reactor::run() {
  // Signals are for other threads, a SIGPIPE of a closed connection for none; but what this thread
  // does wrong itself.
  sigset_t others;
  sigfillset(&others);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF}) {
    sigdelset(&others, own);
  }
  pthread_sigmask(SIG_SETMASK, &others, nullptr);
  for (bool going_on = true; going_on;) {
    int wait = 0;
    {
      const MutexLock lock(at_work_);
      going_on = take_inbox();
      if (going_on) {
        fire_timers();
        admit();
        int running = 0;
        curl_multi_perform(multi_, &running);
        reap();
        time_errors();
        admit();
        wait = wait_ms();
      } else {
        cancel_all();
      }
    }
    const bool told = !finished_.empty();
    tell_finished();
    if (going_on && !told) curl_multi_poll(multi_, nullptr, 0, wait, nullptr);
  }
  const MutexLock lock(at_work_);
  for (CURL* easy : idle_handles_) curl_easy_cleanup(easy);
  idle_handles_.clear();
  {
    const MutexLock inbox_lock(inbox_mutex_);
    ended_ = true;  // nobody wakes it behind this
  }
  // May wait for what it began by itself, such as to look up a name: whoever stops this does not.
  curl_multi_cleanup(multi_);
  const MutexLock inbox_lock(inbox_mutex_);
  cleaned_up_ = true;
  ended_now_.notify_all();
}

bool Reactor::take_inbox() {
  std::vector<std::unique_ptr<Transfer>> added;
  std::vector<std::uint64_t> cancelled;
  bool stopping = false;
  {
    const MutexLock lock(inbox_mutex_);
    added.swap(added_);
    cancelled.swap(cancelled_);
    woken_ = false;
    stopping = stopping_;
  }
  for (std::unique_ptr<Transfer>& each : added) {
    Transfer& transfer = *each;
    transfers_.emplace(transfer.number, std::move(each));
    transfer.turn = transfer.load->begin_waiting();
    Lane& lane = waiting_[transfer.load.get()];
    lane.load = transfer.load;
    lane.numbers.push_back(transfer.number);
    arm(transfer);
  }
  for (const std::uint64_t number : cancelled) {
    if (Transfer* transfer = find(number)) {
      finish(*transfer,
             std::make_exception_ptr(Error(ErrorCode::cancelled, what(*transfer) + ": cancelled")));
    }
  }
  return !stopping;
}

void Reactor::cancel_all() {
  while (!transfers_.empty()) {
    Transfer& transfer = *transfers_.begin()->second;
    finish(transfer,
           std::make_exception_ptr(
               Error(ErrorCode::cancelled, what(transfer) + ": the process ends")));
  }
}

Transfer* Reactor::find(std::uint64_t number) {
  const auto at = transfers_.find(number);
  return at == transfers_.end() ? nullptr : at->second.get();
}

void Reactor::admit() {
  for (auto lane = waiting_.begin(); lane != waiting_.end();) {
    ClientLoad& load = *lane->second.load;
    std::deque<std::uint64_t>& numbers = lane->second.numbers;
    while (!numbers.empty()) {
      Transfer* const transfer = find(numbers.front());
      if (transfer != nullptr) {
        if (!load.take(transfer->turn)) break;
        transfer->running = true;
        if (!transfer->request.deadline) {
          transfer->begun = HttpClock::now();
          transfer->deadline = transfer->begun + transfer->network->options.timeout;
        }
      }
      numbers.pop_front();
      if (transfer != nullptr) begin_attempt(*transfer);
    }
    if (load.has_turn()) wake_others_(this);
    lane = numbers.empty() ? waiting_.erase(lane) : std::next(lane);
  }
}

std::unique_ptr<Attempt> Reactor::make_attempt(Transfer& transfer) {
  CURL* easy = nullptr;
  if (idle_handles_.empty()) {
    easy = curl_easy_init();
    if (easy == nullptr) throw Error(ErrorCode::out_of_memory, "cannot make a handle of libcurl");
    idle_handles_.push_back(easy);
  }
  easy = idle_handles_.back();
  std::unique_ptr<Attempt> attempt;
  try {
    attempt = std::make_unique<Attempt>(
        easy, transfer.number, transfer.request, transfer.body, *transfer.network, errors_);
  } catch (...) {
    curl_easy_reset(easy);
    throw;
  }
  idle_handles_.pop_back();
  curl_multi_add_handle(multi_, easy);
  return attempt;
}

void Reactor::begin_attempt(Transfer& transfer) {
  transfer.next_attempt = HttpClock::time_point::max();
  ++transfer.attempts;
  try {
    transfer.attempt = make_attempt(transfer);
  } catch (const Error& error) {
    return finish(transfer, std::make_exception_ptr(error.with_context(what(transfer))));
  } catch (...) {
    return finish(transfer, std::current_exception());
  }
  const HttpRequest& request = transfer.request;
  transfer.hedge_at = HttpClock::time_point::max();
  if (transfer.network->options.hedge && request.method == "GET" && transfer.body.nbytes() == 0 &&
      (request.into.empty() ? request.max_nbytes : request.into.size()) <= kMaxHedgedNbytes) {
    if (const auto slow = transfer.load->slow()) {
      transfer.hedge_at = transfer.attempt->started() + *slow;
    }
  }
  arm(transfer);
}

void Reactor::begin_hedge(Transfer& transfer) {
  transfer.hedge_at = HttpClock::time_point::max();
  if (!transfer.attempt || transfer.attempt->has_answer() || !transfer.load->take_hedge()) return;
  try {
    transfer.hedge = make_attempt(transfer);
  } catch (...) {
    transfer.load->release_hedge();
    return;  // the first attempt is still under way
  }
  transfer.attempt->race(transfer.hedge.get());
  transfer.hedge->race(transfer.attempt.get());
}

void Reactor::drop(std::unique_ptr<Attempt>& attempt) {
  if (!attempt) return;
  CURL* const easy = attempt->easy();
  curl_multi_remove_handle(multi_, easy);
  attempt.reset();
  if (idle_handles_.size() < kMaxIdleHandles && Attempt::is_clean(easy)) {
    idle_handles_.push_back(easy);
  } else {
    curl_easy_cleanup(easy);
  }
}

void Reactor::drop_hedge(Transfer& transfer) {
  if (!transfer.hedge) return;
  if (transfer.attempt) transfer.attempt->race(nullptr);
  drop(transfer.hedge);
  transfer.load->release_hedge();
}

void Reactor::reap() {
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    CURL* const easy = message->easy_handle;
    const CURLcode code = message->data.result;
    Attempt& ended = Attempt::of(easy);
    Transfer& transfer = *transfers_.at(ended.number());
    if (transfer.hedge && &ended == transfer.hedge.get()) {
      if (ended.lost()) {
        drop_hedge(transfer);
        continue;
      }
      // The first one is the slower: they change places.
      std::swap(transfer.attempt, transfer.hedge);
    }
    if (transfer.hedge && !ended.has_answer()) {
      // Failed while the other one is still under way, or lost to it.
      std::swap(transfer.attempt, transfer.hedge);
      drop_hedge(transfer);
      continue;
    }
    drop_hedge(transfer);
    attempt_ended(transfer, transfer.attempt, code);
  }
}

// What says what is wrong is not waited for as long as what is wanted.
void Reactor::time_errors() {
  for (const std::uint64_t number : errors_) {
    if (Transfer* const transfer = find(number)) arm(*transfer);
  }
  errors_.clear();
}

void Reactor::attempt_ended(Transfer& transfer, std::unique_ptr<Attempt>& attempt, CURLcode code) {
  const AttemptEnd end = attempt->end(code);
  if (attempt->has_answer()) {
    transfer.load->answered.store(true, std::memory_order_relaxed);
    if (transfer.request.method == "GET") transfer.load->note_latency(attempt->latency());
  }
  switch (end.kind) {
    case AttemptEnd::Kind::answer:
      if (!again_after_answer(transfer, *attempt)) answer(transfer, *attempt);
      return;
    case AttemptEnd::Kind::wrong:
      return finish(transfer, end.error);
    case AttemptEnd::Kind::failed:
      transfer.failure = end.error;
      if (again(transfer, end, milliseconds(0))) {
        drop(attempt);
        return arm(transfer);
      }
      // Its status is more than that it was cut.
      if (attempt->has_error()) return answer(transfer, *attempt);
      return finish(transfer, end.error);
    case AttemptEnd::Kind::redirect:
      curl_multi_remove_handle(multi_, attempt->easy());
      try {
        attempt->go_on();
        curl_multi_add_handle(multi_, attempt->easy());
      } catch (...) {
        return finish(transfer, std::current_exception());
      }
      return arm(transfer);
  }
}

void Reactor::answer(Transfer& transfer, Attempt& attempt) {
  HttpResponse& response = transfer.response;
  response.status = attempt.status();
  response.resent = attempt.resent();
  response.headers = std::move(attempt.headers());
  response.redirected_to = attempt.redirected_to();
  const bool success = response.status >= 200 && response.status < 300;
  if (success) {
    if (ResponseBody::Beginning* const beginning = transfer.body.beginning()) {
      response.status = beginning->status;
      response.headers = std::move(beginning->headers);
    }
    response.nbytes = transfer.body.nbytes();
    // libcurl sees to it that chunks end as they must.
    const std::string* encoding = find_header(response.headers, "Transfer-Encoding");
    response.sized =
        transfer.body.sized() || (encoding != nullptr && same_name(*encoding, "chunked"));
    try {
      response.body = transfer.body.release();
    } catch (...) {
      return finish(transfer, std::current_exception());
    }
  } else {
    response.cut_short = attempt.cut_short();
    response.body = std::move(attempt.error_body());
    response.nbytes = response.body.size();
  }
  finish(transfer, nullptr);
}

bool Reactor::again_after_answer(Transfer& transfer, Attempt& attempt) {
  const int status = attempt.status();
  if (!is_worth_another(status)) return false;
  if (!transfer.request.repeatable && !did_nothing(status)) return false;
  const milliseconds delay = asked_delay(attempt.headers());
  const AttemptEnd end{.kind = AttemptEnd::Kind::failed,
                       .error = std::make_exception_ptr(Error(
                           ErrorCode::io, what(transfer) + ": status " + std::to_string(status))),
                       .unreachable = did_nothing(status)};
  const std::exception_ptr before = std::exchange(transfer.failure, end.error);
  if (!again(transfer, end, delay)) {
    transfer.failure = before;
    return false;
  }
  drop(transfer.attempt);
  return true;
}

bool Reactor::again(Transfer& transfer, const AttemptEnd& end, milliseconds at_least) {
  const HttpOptions& options = transfer.network->options;
  if (transfer.attempts >= options.max_attempts) return false;
  if (!transfer.request.repeatable && !end.unreachable) return false;
  if (end.unreachable && transfer.attempts >= kMaxUnreachable &&
      !transfer.load->answered.load(std::memory_order_relaxed)) {
    return false;
  }
  // Behind what the server asks for, too, or all that it asked would come back at once.
  const milliseconds delay = end.again_at_once
                                 ? milliseconds(0)
                                 : at_least + options.backoff_after(transfer.attempts, random_);
  const auto now = HttpClock::now();
  if (transfer.deadline - now <= delay) return false;
  transfer.next_attempt = now + delay;
  arm(transfer);
  return true;
}

void Reactor::arm(Transfer& transfer) {
  auto at = std::min({transfer.deadline, transfer.next_attempt, transfer.hedge_at});
  const auto idle = transfer.network->options.idle_timeout;
  for (const auto* attempt : {transfer.attempt.get(), transfer.hedge.get()}) {
    if (attempt == nullptr) continue;
    at = std::min(at, attempt->last_progress() + idle);
    if (attempt->has_error()) at = std::min(at, attempt->error_until());
  }
  if (at == transfer.timer) return;
  if (transfer.timer != HttpClock::time_point::max()) {
    timers_.erase({transfer.timer, transfer.number});
  }
  transfer.timer = at;
  if (at != HttpClock::time_point::max()) timers_.emplace(at, transfer.number);
}

void Reactor::fire_timers() {
  const auto now = HttpClock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const std::uint64_t number = timers_.begin()->second;
    timers_.erase(timers_.begin());
    Transfer& transfer = *transfers_.at(number);
    transfer.timer = HttpClock::time_point::max();
    fire(transfer, now);
  }
}

void Reactor::fire(Transfer& transfer, HttpClock::time_point now) {
  if (transfer.hedge && transfer.attempt->lost()) std::swap(transfer.attempt, transfer.hedge);
  if (transfer.hedge && transfer.hedge->lost()) drop_hedge(transfer);
  if (transfer.attempt && transfer.attempt->has_error() &&
      now >= std::min(transfer.attempt->error_until(), transfer.deadline)) {
    return attempt_ended(transfer, transfer.attempt, CURLE_WRITE_ERROR);
  }
  if (now >= transfer.deadline && !gets_longer(transfer, now)) return time_out(transfer);
  if (now >= transfer.next_attempt) return begin_attempt(transfer);
  const auto idle = transfer.network->options.idle_timeout;
  const auto is_idle = [&](const std::unique_ptr<Attempt>& attempt) {
    if (!attempt || now - attempt->last_progress() < idle) return false;
    attempt->note_sent();
    return now - attempt->last_progress() >= idle;
  };
  if (is_idle(transfer.hedge)) drop_hedge(transfer);
  if (is_idle(transfer.attempt)) {
    drop_hedge(transfer);
    const AttemptEnd end{
        .kind = AttemptEnd::Kind::failed,
        .error = std::make_exception_ptr(
            Error(ErrorCode::io,
                  what(transfer) + ": nothing came for " + std::to_string(idle.count()) + " ms",
                  ETIMEDOUT))};
    transfer.failure = end.error;
    drop(transfer.attempt);
    if (!again(transfer, end, milliseconds(0))) finish(transfer, end.error);
    return;
  }
  if (now >= transfer.hedge_at) begin_hedge(transfer);
  arm(transfer);
}

// Where many share a slow link, each takes long and none has come to a stop.
bool Reactor::gets_longer(Transfer& transfer, HttpClock::time_point now) {
  if (transfer.request.deadline || !transfer.attempt) return false;
  transfer.attempt->note_sent();
  const auto moved = std::max(transfer.attempt->moved(), transfer.body.nbytes());
  const auto timeout = transfer.network->options.timeout;
  transfer.deadline = transfer.begun + timeout +
                      std::chrono::duration_cast<milliseconds>(
                          timeout * (static_cast<double>(moved) / kSlowNbytes));
  return now < transfer.deadline;
}

void Reactor::time_out(Transfer& transfer) {
  std::string message = what(transfer) + ": no answer within its deadline";
  if (transfer.attempts == 0) message += ", others were before it";
  if (transfer.attempts > 1) message += ", by " + std::to_string(transfer.attempts) + " attempts";
  if (transfer.failure) message += "; the last one: " + text_of_error(transfer.failure);
  finish(transfer, std::make_exception_ptr(Error(ErrorCode::io, message, ETIMEDOUT)));
}

void Reactor::finish(Transfer& transfer, std::exception_ptr error) {
  drop_hedge(transfer);
  drop(transfer.attempt);
  if (transfer.timer != HttpClock::time_point::max()) {
    timers_.erase({transfer.timer, transfer.number});
  }
  if (transfer.running) {
    transfer.load->release();
  } else {
    // Its number stays in the lane, where nobody is found by it.
    transfer.load->end_waiting(transfer.turn);
  }
  // Else admit() comes to it.
  if (!waiting_.contains(transfer.load.get()) && transfer.load->has_turn()) wake_others_(this);
  transfer.failure = nullptr;  // whoever is told may be the last to have it
  transfer.response.error = std::move(error);
  transfer.response.attempts = transfer.attempts;
  const auto at = transfers_.find(transfer.number);
  finished_.push_back(std::move(at->second));
  transfers_.erase(at);
}

void Reactor::tell_finished() {
  for (std::unique_ptr<Transfer>& transfer : finished_) {
    count_.fetch_sub(1, std::memory_order_relaxed);
    transfer->done(std::move(transfer->response));
    transfer.reset();
  }
  finished_.clear();
}

int Reactor::wait_ms() const {
  constexpr std::int64_t kLongest = 60'000;
  if (timers_.empty()) return kLongest;
  const auto left = std::chrono::ceil<milliseconds>(timers_.begin()->first - HttpClock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, kLongest));
}

}  // namespace headrace
