#include "store/http/write.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <system_error>
#include <utility>

#include "base/interrupt.h"
#include "base/start_thread.h"
#include "headrace/error.h"
#include "store/store.h"

namespace headrace {

namespace {

// Of one upload: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
constexpr std::uint64_t kMaxParts = 10'000;
// Of the upload of a write that was cancelled.
constexpr std::chrono::seconds kMaxAbort{10};

// What of a request its messages need.
HttpRequest outline(const HttpRequest& request) {
  HttpRequest copy;
  copy.method = request.method;
  copy.url = request.url;
  return copy;
}

// Throws what is no answer of success.
HttpResponse checked(ObjectProtocol& protocol,
                     const HttpRequest& asked,
                     HttpResponse response,
                     const WriteCondition& condition) {
  if (response.error) std::rethrow_exception(response.error);
  // AWS says 404 of an object that is to be of a version and was removed.
  const bool was_removed = condition.kind == WriteCondition::Kind::version &&
                           response.status == 404 && asked.method == "PUT";
  if (was_removed || (condition.kind != WriteCondition::Kind::none &&
                      (response.status == 412 || response.status == 409))) {
    throw Error(ErrorCode::conflict,
                without_secrets(asked.url) + (condition.kind == WriteCondition::Kind::missing
                                                  ? ": is there already"
                                                  : ": was replaced or removed by somebody else"));
  }
  if (!response.ok()) throw protocol.error_of(asked, response);
  protocol.check_answer(response);
  return response;
}

// In place of the answer to a request that a protocol does without.
HttpResponse no_request() {
  HttpResponse response;
  response.status = 204;
  return response;
}

HttpResponse ask(ObjectProtocol& protocol, HttpClient& client, HttpRequest request) {
  const HttpRequest asked = outline(request);
  return checked(protocol, asked, client.ask(std::move(request)), {});
}

// By no other write.
std::string new_name() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device random;
  std::string name;
  for (int i = 0; i < 4; ++i) {
    for (std::uint32_t word = random(), digit = 0; digit < 8; ++digit, word >>= 4) {
      name += kDigits[word & 15];
    }
  }
  return name;
}

// Requests under way whose answers somebody waits for.
class Batch {
 public:
  // Of an object that is to be erased; what is asked of several speaks of none of them.
  enum class Missing { fails, is_fine };

  // `sent` is told the number of each request.
  Batch(ObjectProtocol& protocol,
        HttpClient& client,
        Missing missing,
        std::function<void(std::uint64_t)> sent = {})
      : protocol_(protocol), client_(client), missing_(missing), sent_(std::move(sent)) {}
  // Those that are under way use the memory of whoever made this.
  ~Batch() {
    {
      const MutexLock lock(mutex_);
      if (under_way_ == 0) return;
    }
    give_up(std::make_exception_ptr(Error(ErrorCode::cancelled, "others failed")));
    // Nobody could be told what an interrupt throws: it is left to who asks next.
    const InterruptScope none({});
    wait();
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // `take` has the answer of success, by a thread of the client's, one at a time.
  void send(HttpRequest request, std::function<void(const HttpResponse&)> take) {
    {
      const MutexLock lock(mutex_);
      if (error_) return;
      ++under_way_;
    }
    // Not among the arguments, which are made in any order.
    HttpRequest asked = outline(request);
    const std::uint64_t number =
        client_.send(std::move(request),
                     [this, asked = std::move(asked), take = std::move(take)](
                         HttpResponse response) { took(asked, std::move(response), take); });
    if (sent_) sent_(number);
    const MutexLock lock(mutex_);
    numbers_.push_back(number);
  }

  // What the caller's interrupt threw, or the first error of any, when all have ended.
  void finish() {
    wait();
    const MutexLock lock(mutex_);
    if (unwanted_) std::rethrow_exception(unwanted_);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void took(const HttpRequest& asked,
            HttpResponse response,
            const std::function<void(const HttpResponse&)>& take) noexcept {
    std::exception_ptr error;
    const MutexLock lock(mutex_);
    const bool is_gone = missing_ == Missing::is_fine && asked.method == "DELETE" &&
                         !response.error && response.status == 404 &&
                         protocol_.is_missing_object(asked, response);
    try {
      if (!is_gone) take(checked(protocol_, asked, std::move(response), {}));
    } catch (...) {
      error = std::current_exception();
    }
    if (error && !error_) error_ = error;
    --under_way_;
    // Notified under the lock: who waits may destroy this as soon as it has it.
    if (under_way_ == 0 || error) came_.notify_all();
  }

  void give_up(std::exception_ptr error) {
    const MutexLock lock(mutex_);
    if (!error_) error_ = std::move(error);
  }

  void wait() {
    const auto* const interrupt = current_interrupt();
    const MutexLock lock(mutex_);
    while (under_way_ > 0) {
      if (error_ && !numbers_.empty()) {
        const std::vector<std::uint64_t> numbers = std::exchange(numbers_, {});
        const MutexUnlock free(mutex_);
        for (const std::uint64_t number : numbers) client_.cancel(number);
        continue;
      }
      if (wait_or_interrupt(came_, mutex_)) {
        std::exception_ptr thrown;
        {
          const MutexUnlock free(mutex_);
          try {
            (*interrupt)();
          } catch (...) {
            thrown = std::current_exception();
          }
        }
        // Looked at again after that: what is waited for may be stuck.
        if (thrown && !unwanted_) unwanted_ = thrown;
        if (thrown && !error_) error_ = thrown;
      }
    }
  }

  ObjectProtocol& protocol_;
  HttpClient& client_;
  const Missing missing_;
  const std::function<void(std::uint64_t)> sent_;
  Mutex mutex_;
  ConditionVariable came_;
  std::size_t under_way_ GUARDED_BY(mutex_) = 0;
  std::vector<std::uint64_t> numbers_ GUARDED_BY(mutex_);
  std::exception_ptr error_ GUARDED_BY(mutex_);
  std::exception_ptr unwanted_ GUARDED_BY(mutex_);  // of the caller's interrupt
};

// Takes bytes from the front of an object whose parts lie apart in memory.
class PartCutter {
 public:
  explicit PartCutter(std::span<const ConstBytes> parts) : parts_(parts) {}

  std::vector<ConstBytes> cut(std::uint64_t nbytes) {
    std::vector<ConstBytes> cut;
    while (nbytes > 0) {
      const ConstBytes rest = parts_[next_].subspan(at_);
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(rest.size(), nbytes));
      if (n > 0) cut.push_back(rest.first(n));
      nbytes -= n;
      at_ += n;
      if (n == rest.size()) {
        ++next_;
        at_ = 0;
      }
    }
    return cut;
  }

 private:
  std::span<const ConstBytes> parts_;
  std::size_t next_ = 0;
  std::size_t at_ = 0;
};

}  // namespace

ObjectWrite::ObjectWrite(std::shared_ptr<ObjectProtocol> protocol,
                         std::shared_ptr<HttpClient> client,
                         AsyncWrite& write,
                         std::function<void()> ended)
    : protocol_(std::move(protocol)),
      client_(std::move(client)),
      write_(write),
      ended_(std::move(ended)) {}

void ObjectWrite::start() {
  const bool on_condition = write_.condition.kind != WriteCondition::Kind::none;
  const std::uint64_t total = total_size(std::span<const ConstBytes>(write_.parts));
  const ProtocolAbilities abilities = protocol_->abilities();
  const bool in_parts = !write_.erases && total > abilities.max_put_nbytes &&
                        (!on_condition || abilities.conditional_uploads);
  if ((on_condition || in_parts) && !write_.erases && protocol_->write_name_header() != nullptr) {
    name_ = new_name();
  }
  if (in_parts) return in_own_thread([this] { upload(); });
  send(one_request());
}

HttpRequest ObjectWrite::put() const {
  HttpRequest request = protocol_->put(write_.key, write_.parts, write_.condition);
  if (!name_.empty()) request.headers.push_back({protocol_->write_name_header(), name_});
  return request;
}

HttpRequest ObjectWrite::one_request() const {
  HttpRequest request = !write_.erases ? put()
                        : write_.condition.kind == WriteCondition::Kind::version
                            ? protocol_->erase_if(write_.key, write_.condition.version)
                            : protocol_->erase({&write_.key, 1});
  // The second of two tries would find what the first one wrote, and say that the condition does
  // not hold.
  if (write_.condition.kind != WriteCondition::Kind::none) request.repeatable = false;
  if (write_.deadline != std::chrono::steady_clock::time_point::max()) {
    request.deadline = write_.deadline;
  }
  return request;
}

void ObjectWrite::send(HttpRequest request) {
  HttpRequest asked = outline(request);
  note(client_->send(std::move(request),
                     [self = shared_from_this(), asked = std::move(asked)](HttpResponse response) {
                       self->answered(asked, std::move(response));
                     }));
}

void ObjectWrite::answered(const HttpRequest& asked, HttpResponse response) noexcept {
  std::exception_ptr error;
  try {
    if (write_.condition.kind != WriteCondition::Kind::none && is_lost(response)) {
      return in_own_thread([this, lost = loss_of(asked, response)] {
        settle(lost, [this] { return one_request(); });
      });
    }
    if (write_.erases && is_missing(asked, response)) return end(nullptr);
    const bool tells_own = !name_.empty() || write_.erases;
    if (tells_own && response.resent && is_forestalled(response)) {
      return in_own_thread(
          [this, asked, met = std::make_shared<HttpResponse>(std::move(response))] {
            throw_unless_own(asked, *met);
          });
    }
    response = checked(*protocol_, asked, std::move(response), write_.condition);
    if (write_.erases) {
      protocol_->check_erased(response);
    } else {
      write_.version = protocol_->version_of(response);
    }
  } catch (...) {
    error = std::current_exception();
  }
  end(std::move(error));
}

// Ends the write with what `work` throws, if anything.
void ObjectWrite::in_own_thread(std::function<void()> work) {
  try {
    start_thread([self = shared_from_this(), work = std::move(work)]() mutable {
      std::exception_ptr error;
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
      work = nullptr;
      self->end(std::move(error));
    }).detach();
  } catch (const std::system_error&) {
    throw Error(ErrorCode::io, protocol_->url() + ": cannot start a thread to write", EAGAIN);
  }
}

// Where the condition does not hold, or the upload is gone: of what was sent twice the first may be
// why. Who stands in between tells nobody that he did.
void ObjectWrite::throw_unless_own(const HttpRequest& asked, HttpResponse& met) {
  if (met.resent) {
    if (look() == Found::own) return;
    throw_in_doubt(protocol_->url() + "/" + write_.key);
  }
  if (is_gone(met)) {
    try {
      if (look() == Found::own) return;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled) throw;
    }
  }
  checked(*protocol_, asked, std::move(met), write_.condition);
}

bool ObjectWrite::is_missing(const HttpRequest& asked, const HttpResponse& response) const {
  return !response.error && response.status == 404 && protocol_->is_missing_object(asked, response);
}

bool ObjectWrite::is_forestalled(const HttpResponse& response) const {
  return !response.error && (response.status == 412 || response.status == 409);
}

// An upload that was to be finished.
bool ObjectWrite::is_gone(const HttpResponse& response) const {
  return finishes_ && !response.error && response.status == 404;
}

// Whether the request may have been carried out although nobody was told.
bool ObjectWrite::is_lost(const HttpResponse& response) const {
  if (response.error) {
    if (response.attempts == 0) return false;
    try {
      std::rethrow_exception(response.error);
    } catch (const Error& error) {
      return error.code() == ErrorCode::io;
    } catch (...) {
      return false;
    }
  }
  if (finishes_ && response.ok()) return !protocol_->says_finished(response);
  // The client has asked again where the server says that it did nothing.
  if (response.status == 503 && !response.resent) return false;
  return response.status == 408 || (response.status >= 500 && response.status != 501);
}

std::exception_ptr ObjectWrite::loss_of(const HttpRequest& asked,
                                        const HttpResponse& response) const {
  if (response.error) return response.error;
  const Error error = protocol_->error_of(asked, response);
  return std::make_exception_ptr(
      response.ok() ? error.with_context("the end of an upload is in doubt") : error);
}

// Looks at what is there, and asks again where it is what was there before. A request that is still
// on its way somewhere does no harm: of those with one condition one is carried out.
void ObjectWrite::settle(std::exception_ptr lost, const std::function<HttpRequest()>& again) {
  const auto until =
      std::min(write_.deadline, std::chrono::steady_clock::now() + client_->options().timeout);
  for (int attempt = 1;; ++attempt) {
    Found found = Found::other;
    try {
      found = look();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled) throw;
      std::rethrow_exception(lost);
    }
    if (found == Found::own) return;
    if (found == Found::other) {
      throw_in_doubt(protocol_->url() + "/" + write_.key);
    }
    if (!wait_to_ask_again(attempt, until)) std::rethrow_exception(lost);
    protocol_->prepare();
    HttpRequest request = again();
    const HttpRequest asked = outline(request);
    HttpResponse response = ask(std::move(request));
    // Where the condition holds no more, or the upload is gone, one before may have been carried
    // out, late.
    if (is_forestalled(response) || is_gone(response)) continue;
    if (is_lost(response)) {
      lost = loss_of(asked, response);
      continue;
    }
    if (write_.erases && is_missing(asked, response)) return;
    response = checked(*protocol_, asked, std::move(response), write_.condition);
    if (!write_.erases) write_.version = protocol_->version_of(response);
    return;
  }
}

// As long as the client waits between its attempts; false: it has been asked often enough, or this
// is cancelled.
bool ObjectWrite::wait_to_ask_again(int attempts, std::chrono::steady_clock::time_point until) {
  const HttpOptions& options = client_->options();
  if (attempts >= options.max_attempts) return false;
  std::random_device random;
  const auto end = std::chrono::steady_clock::now() + options.backoff_after(attempts, random);
  if (end >= until) return false;
  const MutexLock lock(mutex_);
  while (!cancelled_ && cancelled_now_.wait_until(mutex_, end)) {
  }
  return !cancelled_;
}

// What is there now, compared with what is written and with what was there.
ObjectWrite::Found ObjectWrite::look() {
  protocol_->prepare();
  HttpRequest request = protocol_->look_up(write_.key);
  const HttpRequest asked = outline(request);
  const HttpResponse response = ask(std::move(request));
  if (response.error) std::rethrow_exception(response.error);
  const WriteCondition& condition = write_.condition;
  if (is_missing(asked, response)) {
    if (write_.erases) return Found::own;
    return condition.kind == WriteCondition::Kind::version ? Found::other : Found::as_before;
  }
  if (!response.ok()) throw protocol_->error_of(asked, response);
  const std::string version = protocol_->version_of(response);
  if (!name_.empty()) {
    const std::string* const name = response.header(protocol_->write_name_header());
    if (name != nullptr && *name == name_) {
      write_.version = version;
      return Found::own;
    }
  }
  switch (condition.kind) {
    case WriteCondition::Kind::none:
      return Found::as_before;
    case WriteCondition::Kind::missing:
      return Found::other;
    case WriteCondition::Kind::version:
      return version == condition.version ? Found::as_before : Found::other;
  }
  return Found::other;
}

void ObjectWrite::upload() {
  protocol_->prepare();
  HttpRequest begin = protocol_->begin_upload(write_.key);
  std::string upload;
  if (begin.method.empty()) {
    upload = protocol_->upload_of(no_request());
  } else {
    if (!name_.empty()) begin.headers.push_back({protocol_->write_name_header(), name_});
    const HttpRequest asked = outline(begin);
    upload = protocol_->upload_of(checked(*protocol_, asked, ask(std::move(begin)), {}));
  }
  try {
    std::vector<std::string> names;
    put_parts(upload, total_size(std::span<const ConstBytes>(write_.parts)), names);
    finish_upload(upload, names);
  } catch (...) {
    abort_and_rethrow(upload);
  }
}

void ObjectWrite::put_parts(const std::string& upload,
                            std::uint64_t total,
                            std::vector<std::string>& names) {
  const std::uint64_t part_nbytes =
      std::max(protocol_->abilities().part_nbytes, (total + kMaxParts - 1) / kMaxParts);
  const std::uint64_t count = (total + part_nbytes - 1) / part_nbytes;
  names.resize(static_cast<std::size_t>(count));
  PartCutter cutter(write_.parts);
  Batch batch(
      *protocol_, *client_, Batch::Missing::fails, [this](std::uint64_t number) { note(number); });
  for (std::uint64_t i = 0; i < count; ++i) {
    if (is_cancelled()) break;
    const std::uint64_t nbytes = std::min(part_nbytes, total - i * part_nbytes);
    protocol_->prepare();
    HttpRequest request =
        protocol_->put_part(write_.key, upload, static_cast<int>(i) + 1, cutter.cut(nbytes));
    if (write_.deadline != std::chrono::steady_clock::time_point::max()) {
      request.deadline = write_.deadline;
    }
    batch.send(std::move(request),
               [this, &name = names[static_cast<std::size_t>(i)]](const HttpResponse& response) {
                 name = protocol_->part_of(response);
               });
  }
  batch.finish();
  if (is_cancelled()) throw Error(ErrorCode::cancelled, write_.key + ": the write was cancelled");
}

void ObjectWrite::finish_upload(const std::string& upload, std::span<const std::string> names) {
  protocol_->prepare();
  const auto make = [&] {
    HttpRequest request = protocol_->finish_upload(write_.key, upload, names, write_.condition);
    // Where an upload has no beginning, its end names it.
    if (!name_.empty() && protocol_->begin_upload(write_.key).method.empty()) {
      request.headers.push_back({protocol_->write_name_header(), name_});
    }
    request.repeatable = false;
    return request;
  };
  finishes_ = true;
  HttpRequest request = make();
  const HttpRequest asked = outline(request);
  HttpResponse response = ask(std::move(request));
  if (is_lost(response)) return settle(loss_of(asked, response), make);
  if (is_gone(response) || (response.resent && is_forestalled(response))) {
    return throw_unless_own(asked, response);
  }
  response = checked(*protocol_, asked, std::move(response), write_.condition);
  write_.version = protocol_->version_of(response);
}

// Throws the error under way, with what is to be known of the upload.
void ObjectWrite::abort_and_rethrow(const std::string& upload) {
  const std::exception_ptr error = std::current_exception();
  std::string left;
  try {
    protocol_->prepare();
    HttpRequest request = protocol_->abort_upload(write_.key, upload);
    // Nobody waits long for what he has cancelled.
    if (is_cancelled()) request.deadline = std::chrono::steady_clock::now() + kMaxAbort;
    const HttpRequest asked = outline(request);
    // Of what is cancelled, too: not by ask().
    HttpResponse response = request.method.empty() ? no_request() : client_->ask(request);
    // 404: it was finished, or aborted, after all.
    if (response.error || response.status != 404) {
      checked(*protocol_, asked, std::move(response), {});
    }
  } catch (const std::exception& e) {
    left = e.what();
  }
  if (left.empty()) std::rethrow_exception(error);
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    throw Error(
        e.code(),
        std::string(e.what()) +
            "; parts of the upload are left in the store, as it could not be aborted: " + left,
        e.os_error());
  }
}

// The client's, of what may be cancelled. For the write's own thread.
HttpResponse ObjectWrite::ask(HttpRequest request) {
  if (write_.deadline != std::chrono::steady_clock::time_point::max()) {
    request.deadline = write_.deadline;
  }
  return client_->ask(std::move(request), [this](std::uint64_t number) { note(number); });
}

// A request that is under way, which may have ended.
void ObjectWrite::note(std::uint64_t number) noexcept {
  bool cancelled = false;
  {
    const MutexLock lock(mutex_);
    cancelled = cancelled_;
    if (!cancelled) numbers_.push_back(number);
  }
  if (cancelled) client_->cancel(number);
}

void ObjectWrite::cancel() noexcept {
  std::vector<std::uint64_t> numbers;
  {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    numbers.swap(numbers_);
    cancelled_now_.notify_all();
  }
  for (const std::uint64_t number : numbers) client_->cancel(number);
}

bool ObjectWrite::is_cancelled() {
  const MutexLock lock(mutex_);
  return cancelled_;
}

void ObjectWrite::end(std::exception_ptr error) noexcept {
  write_.error = std::move(error);
  ended_();
  write_.done();
}

void erase_objects(ObjectProtocol& protocol,
                   HttpClient& client,
                   std::span<const std::string> keys) {
  const std::size_t most = std::max<std::size_t>(protocol.abilities().max_erased_at_once, 1);
  std::vector<std::string> unsaid;  // by answers, of which there is one at a time
  Batch batch(protocol, client, Batch::Missing::is_fine);
  const auto erase = [&](std::span<const std::string> some) {
    protocol.prepare();
    batch.send(protocol.erase(some), [&, some](const HttpResponse& response) {
      protocol.check_erased(response);
      if (some.size() == 1 || protocol.says_erased(response)) return;
      unsaid.insert(unsaid.end(), some.begin(), some.end());
    });
  };
  for (std::size_t at = 0; at < keys.size(); at += most) {
    erase(keys.subspan(at, std::min(most, keys.size() - at)));
  }
  batch.finish();
  for (const std::string& key : unsaid) erase({&key, 1});
  batch.finish();
}

ListPage list_page(ObjectProtocol& protocol,
                   HttpClient& client,
                   const std::string& prefix,
                   bool delimiter,
                   const std::string& from) {
  protocol.prepare();
  return protocol.page_of(ask(protocol, client, protocol.list(prefix, delimiter, from)));
}

}  // namespace headrace
