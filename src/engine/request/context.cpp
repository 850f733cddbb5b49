#include "engine/request/context.h"

#include <algorithm>

#include "engine/request/config.h"
#include "engine/request/key_lock.h"

namespace headrace {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);

// A thread holds at most a chunk's encoded and decoded bytes, and an intermediate.
int threads_within(std::size_t budget, const ArrayLayout& layout) {
  const std::size_t need = std::max<std::size_t>(2 * layout.chain.decoded_nbytes(), 1);
  const std::size_t fit = std::max<std::size_t>(budget / need, 1);
  return static_cast<int>(std::min<std::size_t>(fit, static_cast<std::size_t>(thread_count())));
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

RequestContext::RequestContext(const ArrayState& s,
                               std::shared_ptr<const ArrayLayout> l,
                               const ReadOptions& options,
                               const std::atomic<bool>* cancel)
    : state(s),
      layout_owner(std::move(l)),
      layout(*layout_owner),
      driver(s.driver()),
      config_owner(current_config()),
      config(*config_owner),
      memory_budget(options.memory_budget != 0 ? options.memory_budget
                                               : headrace::memory_budget(config)),
      threads(threads_within(memory_budget, layout)),
      poll_(options.poll),
      cancel_(cancel),
      stop_(&own_stop_),
      encoded_nbytes_(options.encoded_nbytes) {}

RequestContext::RequestContext(const RequestContext& request, std::shared_ptr<const ArrayLayout> l)
    : state(request.state),
      layout_owner(std::move(l)),
      layout(*layout_owner),
      driver(request.driver),
      config_owner(request.config_owner),
      config(*config_owner),
      memory_budget(request.memory_budget),
      threads(threads_within(memory_budget, layout)),
      arena(request.arena),
      poll_(request.poll_),
      cancel_(request.cancel_),
      stop_(request.stop_),
      encoded_nbytes_(request.encoded_nbytes_),
      array_identity_(request.array_identity_) {}

// The poll comes first: while a cancelled request waits for its helpers, signals are still heard.
void RequestContext::check() {
  try {
    poll_.check();
  } catch (...) {
    stop_->store(true, std::memory_order_relaxed);
    throw;
  }
  if (stop_->load(std::memory_order_relaxed) ||
      (cancel_ && cancel_->load(std::memory_order_relaxed))) {
    throw Error(ErrorCode::cancelled, "the request was cancelled");
  }
}

void RequestContext::prepare_locks() {
  ArrayShared& shared = *state.shared();
  // The first chunk would make the folder, and with it another identity.
  if (!shared.has_document && !shared.has_folder.exchange(true))
    static_cast<void>(driver.try_lock(state.path(), true));
  array_identity_ = driver.identity(state.path());
}

KeyLocks::Lock RequestContext::lock_object(std::string_view key) const {
  const std::size_t prefix = state.path().empty() ? 0 : state.path().size() + 1;
  return lock_key(array_identity_, key.substr(prefix));
}

void RequestContext::count_encoded(std::uint64_t nbytes) {
  if (encoded_nbytes_) encoded_nbytes_->fetch_add(nbytes, std::memory_order_relaxed);
}

std::string RequestContext::chunk_key(const std::int64_t* coordinates) const {
  const ArrayMetadata& m = *layout.metadata;
  std::string key;
  key.reserve(state.path().size() + 32);
  key = state.path();
  if (!key.empty()) key += '/';
  m.chunk_keys.append(key, coordinates, m.ndim());
  return key;
}

std::string RequestContext::place(const char* action, const std::string& key) const {
  const std::string& path = state.path();
  std::string text = "[" + std::string(action) + "] ";
  text += path.empty() ? driver.url() : path;
  text += " chunk ";
  text += path.empty() ? key : key.substr(path.size() + 1);
  return text;
}

}  // namespace headrace
