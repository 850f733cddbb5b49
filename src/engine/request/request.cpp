#include "engine/request/request.h"

#include <algorithm>

#include "engine/request/array_state.h"
#include "engine/request/config.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);

// Decoding takes the other half of a budget that somebody has set.
std::size_t io_nbytes_of(const Config& config, std::size_t call_budget) {
  const std::size_t set = call_budget != 0 ? call_budget : config.memory_budget;
  return set == 0 ? config.io_nbytes : std::min(config.io_nbytes, set / 2);
}

}  // namespace

Poll::Poll(const std::function<void()>& poll)
    : poll_(poll),
      caller_(std::this_thread::get_id()),
      next_(std::chrono::steady_clock::now() + kPollInterval) {}

void Poll::check() {
  if (!poll_ || !is_caller()) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kPollInterval;
  poll_();
}

Request::Request(const ReadOptions& options, const std::atomic<bool>* cancel, int attempt)
    : config_(current_config()),
      memory_budget_(options.memory_budget != 0 ? options.memory_budget
                                                : headrace::memory_budget(*config_)),
      io_nbytes_(io_nbytes_of(*config_, options.memory_budget)),
      attempt_(attempt),
      poll_(options.poll),
      cancel_(cancel),
      encoded_nbytes_(options.encoded_nbytes) {}

// A thread holds at most a chunk's encoded and decoded bytes, and an intermediate.
int Request::threads_for(const ArrayLayout& layout) const {
  const std::size_t need = std::max<std::size_t>(2 * layout.chain.decoded_nbytes(), 1);
  const std::size_t fit = std::max<std::size_t>(memory_budget_ / need, 1);
  return static_cast<int>(std::min<std::size_t>(fit, static_cast<std::size_t>(thread_count())));
}

// The poll comes first: while a cancelled request waits for its helpers, signals are still heard.
void Request::check() {
  try {
    poll_.check();
  } catch (...) {
    stop_.store(true, std::memory_order_relaxed);
    throw;
  }
  if (stop_.load(std::memory_order_relaxed) ||
      (cancel_ && cancel_->load(std::memory_order_relaxed))) {
    throw Error(ErrorCode::cancelled, "the request was cancelled");
  }
}

void Request::check_array_is_there() const {
  const ArrayState* const array = missing_.load(std::memory_order_relaxed);
  if (!array) return;
  const ArrayShared& shared = *array->shared();
  if (shared.check_is_there) shared.check_is_there(shared, array->metadata()->zarr_format);
}

void Request::count_encoded(std::uint64_t nbytes) {
  if (encoded_nbytes_) encoded_nbytes_->fetch_add(nbytes, std::memory_order_relaxed);
}

}  // namespace headrace
