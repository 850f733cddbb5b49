#pragma once

// A thread that has many requests under way, each a Transfer, by one multi handle of libcurl, which
// keeps the connections.

#include <curl/curl.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "store/http/attempt.h"
#include "store/http/load.h"

namespace headrace {

// A request with all its attempts.
struct Transfer {
  Transfer(std::uint64_t its_number,
           HttpRequest its_request,
           std::shared_ptr<const NetworkSettings> its_network,
           std::shared_ptr<ClientLoad> its_load)
      : number(its_number),
        request(std::move(its_request)),
        network(std::move(its_network)),
        load(std::move(its_load)),
        deadline(request.deadline.value_or(HttpClock::time_point::max())) {}

  const std::uint64_t number;
  const HttpRequest request;
  const std::shared_ptr<const NetworkSettings> network;
  const std::shared_ptr<ClientLoad> load;
  std::function<void(HttpResponse)> done;
  HttpResponse response;

  std::uint64_t turn = 0;  // of the load, until it is running
  bool running = false;    // counted in the load, as it is while it waits for its next attempt
  int attempts = 0;
  HttpClock::time_point begun{};  // that it may take a time from, where it has no deadline
  HttpClock::time_point deadline;
  HttpClock::time_point next_attempt = HttpClock::time_point::max();
  HttpClock::time_point hedge_at = HttpClock::time_point::max();
  HttpClock::time_point timer = HttpClock::time_point::max();  // as the reactor has it
  std::exception_ptr failure;                                  // of the last attempt
  ResponseBody body{request};
  std::unique_ptr<Attempt> attempt;
  std::unique_ptr<Attempt> hedge;
};

class Reactor {
 public:
  // Throws `out_of_memory`, or `io` when there is no thread to be had.
  static std::shared_ptr<Reactor> start(std::function<void(const Reactor*)> wake_others);
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // From any thread. False, and the transfer is left as it is: this has ended.
  bool add(std::unique_ptr<Transfer>& transfer);
  void cancel(std::uint64_t number);
  void wake();
  // How many transfers it has.
  std::size_t count() const { return count_.load(std::memory_order_relaxed); }

  // Ends what is under way by `cancelled`, and returns when the thread is gone or `patience` is
  // over; at once on the thread itself.
  void stop(std::chrono::milliseconds patience);

  // Between these its thread waits, or tells others what came: who called the first may fork.
  void hold() NO_THREAD_SAFETY_ANALYSIS { at_work_.lock(); }
  void let_go() NO_THREAD_SAFETY_ANALYSIS { at_work_.unlock(); }

 private:
  explicit Reactor(std::function<void(const Reactor*)> wake_others);

  void run();
  bool take_inbox() REQUIRES(at_work_);
  void admit() REQUIRES(at_work_);
  void fire_timers() REQUIRES(at_work_);
  void reap() REQUIRES(at_work_);
  void time_errors() REQUIRES(at_work_);
  void tell_finished();
  int wait_ms() const REQUIRES(at_work_);

  void begin_attempt(Transfer& transfer) REQUIRES(at_work_);
  void begin_hedge(Transfer& transfer) REQUIRES(at_work_);
  std::unique_ptr<Attempt> make_attempt(Transfer& transfer) REQUIRES(at_work_);
  void drop(std::unique_ptr<Attempt>& attempt) REQUIRES(at_work_);
  void drop_hedge(Transfer& transfer) REQUIRES(at_work_);
  void attempt_ended(Transfer& transfer, std::unique_ptr<Attempt>& attempt, CURLcode code)
      REQUIRES(at_work_);
  void answer(Transfer& transfer, Attempt& attempt) REQUIRES(at_work_);
  bool again_after_answer(Transfer& transfer, Attempt& attempt) REQUIRES(at_work_);
  bool again(Transfer& transfer, const AttemptEnd& end, std::chrono::milliseconds at_least)
      REQUIRES(at_work_);
  bool gets_longer(Transfer& transfer, HttpClock::time_point now) REQUIRES(at_work_);
  void time_out(Transfer& transfer) REQUIRES(at_work_);
  void fire(Transfer& transfer, HttpClock::time_point now) REQUIRES(at_work_);
  void arm(Transfer& transfer) REQUIRES(at_work_);
  void finish(Transfer& transfer, std::exception_ptr error) REQUIRES(at_work_);
  void cancel_all() REQUIRES(at_work_);
  Transfer* find(std::uint64_t number) REQUIRES(at_work_);

  // Of this client, in order; numbers of those that have ended lead to nobody.
  struct Lane {
    std::shared_ptr<ClientLoad> load;
    std::deque<std::uint64_t> numbers{};
  };

  const std::function<void(const Reactor*)> wake_others_;
  CURLM* const multi_;
  std::atomic<std::size_t> count_{0};

  mutable Mutex inbox_mutex_;
  std::vector<std::unique_ptr<Transfer>> added_ GUARDED_BY(inbox_mutex_);
  std::vector<std::uint64_t> cancelled_ GUARDED_BY(inbox_mutex_);
  bool woken_ GUARDED_BY(inbox_mutex_) = false;
  bool stopping_ GUARDED_BY(inbox_mutex_) = false;
  bool ended_ GUARDED_BY(inbox_mutex_) = false;       // the thread has done with the handle
  bool cleaned_up_ GUARDED_BY(inbox_mutex_) = false;  // and given it back
  ConditionVariable ended_now_;

  Mutex at_work_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Transfer>> transfers_ GUARDED_BY(at_work_);
  std::set<std::pair<HttpClock::time_point, std::uint64_t>> timers_ GUARDED_BY(at_work_);
  // Transfers that wait until fewer of their client's are under way, in order.
  std::unordered_map<ClientLoad*, Lane> waiting_ GUARDED_BY(at_work_);
  std::vector<CURL*> idle_handles_ GUARDED_BY(at_work_);
  // Whose attempts have got the headers of an answer that is no success since the last look.
  std::vector<std::uint64_t> errors_ GUARDED_BY(at_work_);
  std::minstd_rand random_ GUARDED_BY(at_work_){std::random_device()()};
  std::vector<std::unique_ptr<Transfer>> finished_;  // the thread's own
  std::thread thread_;                               // of whoever starts and stops it
};

}  // namespace headrace
