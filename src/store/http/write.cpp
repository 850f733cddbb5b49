#include "store/http/write.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "headrace/error.h"
#include "store/store.h"

namespace headrace {

namespace {

// Of one upload: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
constexpr std::uint64_t kMaxParts = 10'000;

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
  if (condition.kind != WriteCondition::Kind::none &&
      (response.status == 412 || response.status == 409)) {
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

HttpResponse ask(ObjectProtocol& protocol,
                 HttpClient& client,
                 HttpRequest request,
                 const WriteCondition& condition = {}) {
  const HttpRequest asked = outline(request);
  // The second of two tries would find what the first one wrote, and say that the condition does
  // not hold.
  if (condition.kind != WriteCondition::Kind::none) request.repeatable = false;
  return checked(protocol, asked, client.ask(std::move(request)), condition);
}

// Requests under way whose answers somebody waits for.
class Batch {
 public:
  enum class Missing { fails, is_fine };

  Batch(ObjectProtocol& protocol, HttpClient& client, Missing missing)
      : protocol_(protocol), client_(client), missing_(missing) {}
  // Those that are under way use the memory of whoever made this.
  ~Batch() { wait(); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // `take` has the answer of success, by a thread of the client's, one at a time.
  void send(HttpRequest request, std::function<void(const HttpResponse&)> take) {
    {
      const MutexLock lock(mutex_);
      if (error_) return;
      ++under_way_;
    }
    const std::uint64_t number =
        client_.send(std::move(request),
                     [this, asked = outline(request), take = std::move(take)](
                         HttpResponse response) { took(asked, std::move(response), take); });
    const MutexLock lock(mutex_);
    numbers_.push_back(number);
  }

  // The first error of any, when all have ended.
  void finish() {
    wait();
    const MutexLock lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void took(const HttpRequest& asked,
            HttpResponse response,
            const std::function<void(const HttpResponse&)>& take) noexcept {
    std::exception_ptr error;
    const MutexLock lock(mutex_);
    const bool is_gone = missing_ == Missing::is_fine && !response.error && response.status == 404;
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

  void wait() {
    const MutexLock lock(mutex_);
    while (under_way_ > 0) {
      if (error_ && !numbers_.empty()) {
        const std::vector<std::uint64_t> numbers = std::exchange(numbers_, {});
        const MutexUnlock free(mutex_);
        for (const std::uint64_t number : numbers) client_.cancel(number);
        continue;
      }
      came_.wait(mutex_);
    }
  }

  ObjectProtocol& protocol_;
  HttpClient& client_;
  const Missing missing_;
  Mutex mutex_;
  ConditionVariable came_;
  std::size_t under_way_ GUARDED_BY(mutex_) = 0;
  std::vector<std::uint64_t> numbers_ GUARDED_BY(mutex_);
  std::exception_ptr error_ GUARDED_BY(mutex_);
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

// Throws the error under way, with what is to be known of the upload.
[[noreturn]] void abort_and_rethrow(ObjectProtocol& protocol,
                                    HttpClient& client,
                                    std::string_view key,
                                    const std::string& upload) {
  const std::exception_ptr error = std::current_exception();
  std::string left;
  try {
    protocol.prepare();
    const HttpRequest request = protocol.abort_upload(key, upload);
    const HttpRequest asked = outline(request);
    HttpResponse response = request.method.empty() ? no_request() : client.ask(request);
    // 404: it was finished, or aborted, after all.
    if (response.error || response.status != 404) {
      checked(protocol, asked, std::move(response), {});
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

void write_in_parts(ObjectProtocol& protocol,
                    HttpClient& client,
                    std::string_view key,
                    std::span<const ConstBytes> parts,
                    std::uint64_t total,
                    const WriteCondition& condition) {
  const std::uint64_t part_nbytes =
      std::max(protocol.abilities().part_nbytes, (total + kMaxParts - 1) / kMaxParts);
  HttpRequest begin = protocol.begin_upload(key);
  const std::string upload = protocol.upload_of(
      begin.method.empty() ? no_request() : ask(protocol, client, std::move(begin)));
  try {
    const std::uint64_t count = (total + part_nbytes - 1) / part_nbytes;
    std::vector<std::string> names(static_cast<std::size_t>(count));
    {
      PartCutter cutter(parts);
      Batch batch(protocol, client, Batch::Missing::fails);
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t nbytes = std::min(part_nbytes, total - i * part_nbytes);
        protocol.prepare();
        batch.send(protocol.put_part(key, upload, static_cast<int>(i) + 1, cutter.cut(nbytes)),
                   [&protocol, &name = names[static_cast<std::size_t>(i)]](
                       const HttpResponse& response) { name = protocol.part_of(response); });
      }
      batch.finish();
    }
    protocol.prepare();
    ask(protocol, client, protocol.finish_upload(key, upload, names, condition), condition);
  } catch (...) {
    abort_and_rethrow(protocol, client, key, upload);
  }
}

}  // namespace

void write_object(ObjectProtocol& protocol,
                  HttpClient& client,
                  std::string_view key,
                  std::span<const ConstBytes> parts,
                  const WriteCondition& condition) {
  const std::uint64_t total = total_size(parts);
  protocol.prepare();
  const ProtocolAbilities abilities = protocol.abilities();
  if (total > abilities.max_put_nbytes &&
      (condition.kind == WriteCondition::Kind::none || abilities.conditional_uploads)) {
    return write_in_parts(protocol, client, key, parts, total, condition);
  }
  ask(protocol, client, protocol.put(key, parts, condition), condition);
}

void erase_objects(ObjectProtocol& protocol,
                   HttpClient& client,
                   std::span<const std::string> keys) {
  const std::size_t most = std::max<std::size_t>(protocol.abilities().max_erased_at_once, 1);
  Batch batch(protocol, client, Batch::Missing::is_fine);
  for (std::size_t at = 0; at < keys.size(); at += most) {
    protocol.prepare();
    HttpRequest request = protocol.erase(keys.subspan(at, std::min(most, keys.size() - at)));
    batch.send(std::move(request),
               [&protocol](const HttpResponse& response) { protocol.check_erased(response); });
  }
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
