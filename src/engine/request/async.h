#pragma once

// Asynchronous requests: start_request(work) runs `work` on a pool thread and gives the Future.

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/task_wait.h"
#include "base/thread_pool.h"
#include "headrace/error.h"
#include "headrace/future.h"
#include "headrace/interrupt.h"

namespace headrace {

using CancelFlag = std::atomic<bool>;  // work polls it and throws `cancelled` when it is set

class RequestState final : public detail::FutureState {
 public:
  RequestState();
  ~RequestState() override;

  bool done() const override;
  bool wait_for(std::chrono::nanoseconds timeout) const override;
  void wait() const override;
  bool cancel() override;
  void rethrow() const override;
  void on_done(std::function<void()> callback) override;

  const CancelFlag& cancel_flag() const { return cancelled_; }
  // Ends the request, once. A null error is success.
  void finish(std::exception_ptr error);

 private:
  struct Sync;
  void check_process() const;

  const unsigned generation_;
  std::unique_ptr<Sync> sync_;
  CancelFlag cancelled_{false};
  std::atomic<bool> done_{false};
  std::exception_ptr error_;  // written before done_ is set, read after
};

// The exception being handled; running out of memory as the `out_of_memory` of this library.
std::exception_ptr current_error();

// Throws `cancelled` when the flag is set.
void check_cancelled(const CancelFlag& flag);

template <typename T>
Future<T> start_request(std::function<T(const CancelFlag&)> work) {
  auto state = std::make_shared<RequestState>();
  auto value = std::make_shared<T>();
  run_task(state.get(), [state, value, work = std::move(work)]() mutable {
    std::exception_ptr error;
    try {
      check_cancelled(state->cancel_flag());
      const InterruptScope scope([&state] { check_cancelled(state->cancel_flag()); });
      *value = work(state->cancel_flag());
    } catch (...) {
      error = current_error();
    }
    work = nullptr;  // what it kept alive is let go before anybody hears that the request is done
    state->finish(error);
  });
  return Future<T>(std::move(state), std::move(value));
}

}  // namespace headrace
