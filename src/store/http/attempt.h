#pragma once

// One try of a request, with the redirects that it is led by: a handle of libcurl and what its
// callbacks are told. Used by one thread.

#include <curl/curl.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "store/http/body.h"
#include "store/http/client.h"
#include "store/http/network.h"

namespace headrace {

using HttpClock = std::chrono::steady_clock;

// What became of an attempt.
struct AttemptEnd {
  enum class Kind {
    answer,    // with whatever status
    redirect,  // go_on() leads to where it says
    failed,    // another attempt may do better
    wrong,     // every attempt would end like this
  };
  Kind kind = Kind::answer;
  std::exception_ptr error{};  // of what failed or is wrong
  bool unreachable = false;    // failed before anything was sent
  bool again_at_once = false;  // failed as the object was another one than before
};

class Attempt {
 public:
  // What `request` asks for, of which `body` may have a part. Throws what sign() throws, and
  // `invalid_argument` for what cannot be sent. All outlive it, `easy` is a handle that nobody
  // uses, `number` is whose attempt it is, which `errors` has once an answer that is no success has
  // begun.
  Attempt(CURL* easy,
          std::uint64_t number,
          const HttpRequest& request,
          ResponseBody& body,
          const NetworkSettings& network,
          std::vector<std::uint64_t>& errors);
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  CURL* easy() const { return easy_; }
  static Attempt& of(CURL* easy);
  // Whether another attempt may use a handle that no attempt uses any more: one that was ended
  // early may hold on to what it had.
  static bool is_clean(CURL* easy);
  std::uint64_t number() const { return number_; }

  // As libcurl ended it.
  AttemptEnd end(CURLcode code);
  // After `redirect`: to be given to libcurl once more. Throws `io` for where it may not lead.
  void go_on();

  // Another attempt beside this one, of which the first to have an answer's headers goes on.
  void race(Attempt* other) { rival_ = other; }
  bool lost() const { return lost_; }
  bool has_answer() const { return answered_; }
  // Has the headers of an answer that is no success: from this time on its body is not waited for.
  bool has_error() const { return answered_ && !is_success(); }
  HttpClock::time_point error_until() const;
  // Whether the body ended before its end.
  bool cut_short() const { return cut_short_; }

  HttpClock::time_point started() const { return started_; }
  HttpClock::time_point last_progress() const { return last_progress_; }
  // Looks at what libcurl has sent of what it was given, which it tells nobody.
  void note_sent();
  // Bytes of bodies, either way.
  std::uint64_t moved() const { return sent_ + received_; }
  // From its start to the end of the headers.
  HttpClock::duration latency() const { return answered_at_ - started_; }

  // Whether libcurl has sent it once more, on another connection than a kept one that was closed:
  // the server may have carried out the first one.
  bool resent() const { return resent_; }
  int status() const { return status_; }
  // Where it was led to; empty: nowhere else.
  std::string redirected_to() const { return redirects_ > 0 ? without_secrets(wire_.url) : ""; }
  std::vector<HttpHeader>& headers() { return headers_; }
  // Of an answer that is no success.
  Buffer& error_body() { return error_body_; }

 private:
  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t on_send(char* data, std::size_t size, std::size_t count, void* self);
  static int on_seek(void* self, curl_off_t offset, int origin);
  static int on_connected(void* self, char* address, char* local_address, int port, int local_port);
  static int on_socket(void* self, curl_socket_t fd, curlsocktype purpose);

  void prepare(const std::string& url);
  void set_up_body();
  void set_up_network();
  void take_header(std::string_view line);
  void answer_begins();
  bool has_enough_of_error() const;
  bool has_sent_all() const;  // as far as libcurl was given it
  AttemptEnd end_of_answer();
  AttemptEnd failure(CURLcode code) const;
  bool is_success() const { return status_ >= 200 && status_ < 300; }
  bool is_redirect() const;
  std::string what() const;  // "GET https://host/path"

  CURL* const easy_;
  const std::uint64_t number_;
  const HttpRequest& request_;
  ResponseBody& body_;
  const NetworkSettings& network_;
  std::vector<std::uint64_t>& errors_;
  HttpRequest wire_;  // as it goes out
  bool asked_for_rest_ = false;
  int redirects_ = 0;
  std::array<char, CURL_ERROR_SIZE> reason_{};
  struct FreeList {
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  };
  std::unique_ptr<curl_slist, FreeList> sent_headers_;

  std::size_t part_ = 0;     // of the body that is sent
  std::size_t part_at_ = 0;  // bytes of that part
  std::uint64_t sent_ = 0;   // as note_sent() has found
  std::uint64_t received_ = 0;
  bool was_sent_ = false;
  bool resent_ = false;

  Attempt* rival_ = nullptr;
  bool lost_ = false;
  bool answered_ = false;
  bool began_body_ = false;  // and did not go on with it
  bool stale_ = false;       // the rest of another object came
  bool cut_short_ = false;
  std::exception_ptr wrong_;
  HttpClock::time_point started_;
  HttpClock::time_point last_progress_;
  HttpClock::time_point answered_at_{};

  int status_ = 0;
  std::size_t headers_nbytes_ = 0;
  std::vector<HttpHeader> headers_;
  Buffer error_body_;
};

}  // namespace headrace
