#pragma once

// Writes, and what HttpDriver does that a thread waits for: erasures, pages of lists.

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "store/http/protocol.h"

namespace headrace {

// One write under way. Most are one request, which takes no thread. One that takes several has a
// thread of its own for so long, for checksums of parts are no work for a client's thread, nor is
// it to wait for credentials: an upload in parts, of an object of tens of MiB, and a write of which
// nobody knows what came of it.
class ObjectWrite : public std::enable_shared_from_this<ObjectWrite> {
 public:
  // `ended` is called before the write's done(), which is the last of it.
  ObjectWrite(std::shared_ptr<ObjectProtocol> protocol,
              std::shared_ptr<HttpClient> client,
              AsyncWrite& write,
              std::function<void()> ended);

  // What it throws is before anything is under way, and done() is not called then.
  void start();
  void cancel() noexcept;

 private:
  enum class Found : std::uint8_t { own, as_before, other };

  HttpRequest put() const;
  HttpRequest one_request() const;
  void send(HttpRequest request);
  void answered(const HttpRequest& asked, HttpResponse response) noexcept;
  void in_own_thread(std::function<void()> work);
  void settle(std::exception_ptr lost, const std::function<HttpRequest()>& again);
  bool wait_to_ask_again(int attempts, std::chrono::steady_clock::time_point until);
  Found look();
  void upload();
  void put_parts(const std::string& upload, std::uint64_t total, std::vector<std::string>& names);
  void finish_upload(const std::string& upload, std::span<const std::string> names);
  [[noreturn]] void abort_and_rethrow(const std::string& upload);

  HttpResponse ask(HttpRequest request);
  void throw_unless_own(const HttpRequest& asked, HttpResponse& met);
  bool is_forestalled(const HttpResponse& response) const;
  bool is_gone(const HttpResponse& response) const;
  bool is_lost(const HttpResponse& response) const;
  bool is_missing(const HttpRequest& asked, const HttpResponse& response) const;
  std::exception_ptr loss_of(const HttpRequest& asked, const HttpResponse& response) const;
  void note(std::uint64_t number) noexcept;
  bool is_cancelled();
  void end(std::exception_ptr error) noexcept;

  const std::shared_ptr<ObjectProtocol> protocol_;
  const std::shared_ptr<HttpClient> client_;
  AsyncWrite& write_;
  const std::function<void()> ended_;
  std::string name_;       // of the write, where the object is to keep it
  bool finishes_ = false;  // an upload in parts

  Mutex mutex_;
  std::vector<std::uint64_t> numbers_ GUARDED_BY(mutex_);  // of requests
  bool cancelled_ GUARDED_BY(mutex_) = false;
  ConditionVariable cancelled_now_;
};

// Missing ones count as erased.
void erase_objects(ObjectProtocol& protocol, HttpClient& client, std::span<const std::string> keys);
ListPage list_page(ObjectProtocol& protocol,
                   HttpClient& client,
                   const std::string& prefix,
                   bool delimiter,
                   const std::string& from);

}  // namespace headrace
