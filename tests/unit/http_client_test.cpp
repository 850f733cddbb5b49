#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <future>
#include <random>
#include <thread>

#include "headrace/error.h"
#include "store/http/client.h"
#include "store/http/content_range.h"
#include "support/fork.h"
#include "support/http_server.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using test::HttpServer;
using test::ObjectServer;
using test::ServerAnswer;
using test::ServerRequest;
using Clock = std::chrono::steady_clock;

// Quick to give up, for tests.
HttpOptions quick() {
  HttpOptions options;
  options.backoff = 1ms;
  options.max_backoff = 5ms;
  options.idle_timeout = 200ms;
  options.timeout = 10s;
  options.max_attempts = 5;
  return options;
}

HttpRequest get(const std::string& url) {
  HttpRequest request;
  request.url = url;
  return request;
}

std::string text(const HttpResponse& response) {
  return std::string(text_of(response.body.bytes()));
}

// The message of the response's error, which must be there.
std::string message(const HttpResponse& response, ErrorCode code) {
  if (!response.error) {
    ADD_FAILURE() << "no error, status " << response.status;
    return "";
  }
  try {
    std::rethrow_exception(response.error);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
}

int os_error(const HttpResponse& response) {
  try {
    if (response.error) std::rethrow_exception(response.error);
  } catch (const Error& error) {
    return error.os_error();
  }
  return 0;
}

ServerAnswer ok(std::string body) { return {.body = std::move(body)}; }

TEST(HttpClient, GivesStatusHeadersAndBody) {
  HttpServer server([](const ServerRequest& request) {
    ServerAnswer answer = ok("body of " + request.path + "?" + request.query);
    answer.status = request.path == "odd" ? 418 : 200;
    answer.headers = {{"X-Thing", " a b "}, {"x-agent", request.header("user-agent")}};
    return answer;
  });
  const auto client = make_http_client(quick());
  const HttpResponse good = client->ask(get(server.url() + "/a%20b/../c?x=1"));
  ASSERT_FALSE(good.error);
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(text(good), "body of a b/../c?x=1");
  EXPECT_EQ(good.nbytes, good.body.size());
  EXPECT_TRUE(good.sized);
  EXPECT_EQ(good.attempts, 1);
  ASSERT_NE(good.header("x-thing"), nullptr);
  EXPECT_EQ(*good.header("X-THING"), "a b");
  EXPECT_TRUE(good.header("x-agent")->starts_with("headrace/"));
  EXPECT_EQ(good.header("nothing"), nullptr);

  HttpRequest request = get(server.url() + "/odd");
  std::string place(17, '?');
  request.into = std::as_writable_bytes(std::span(place));
  const HttpResponse odd = client->ask(std::move(request));
  EXPECT_EQ(odd.status, 418);
  EXPECT_FALSE(odd.ok());
  EXPECT_EQ(text(odd), "body of odd?");  // an error's words go to no place of a success
  EXPECT_EQ(place, std::string(17, '?'));
}

TEST(HttpClient, SendsBodiesInParts) {
  HttpServer server([](const ServerRequest& request) {
    return ok(request.method + " " + request.header("content-length") + " " + request.body);
  });
  const auto client = make_http_client(quick());
  for (const std::string method : {"PUT", "POST", "DELETE"}) {
    HttpRequest request = get(server.url() + "/k");
    request.method = method;
    request.body = {bytes_of("one "), {}, bytes_of("two")};
    EXPECT_EQ(text(client->ask(request)), method + " 7 one two");
    request.body.clear();
    EXPECT_EQ(text(client->ask(request)), method + (method == "DELETE" ? "  " : " 0 "));
  }
}

TEST(HttpClient, KeepsConnections) {
  HttpServer server([](const ServerRequest&) { return ok("x"); });
  const auto client = make_http_client(quick());
  for (int i = 0; i < 50; ++i) EXPECT_EQ(text(client->ask(get(server.url() + "/k"))), "x");
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpClient, HoldsToItsLimit) {
  HttpServer server([](const ServerRequest&) {
    ServerAnswer answer = ok("x");
    answer.delay = 2ms;
    return answer;
  });
  HttpOptions options = quick();
  options.max_in_flight = 24;
  const auto client = make_http_client(options);
  constexpr int kCount = 1000;
  std::atomic<int> good{0};
  std::atomic<int> left{kCount};
  std::promise<void> all;
  for (int i = 0; i < kCount; ++i) {
    client->send(get(server.url() + "/" + std::to_string(i)), [&](HttpResponse response) {
      good += response.ok() ? 1 : 0;
      if (--left == 0) all.set_value();
    });
  }
  all.get_future().wait();
  EXPECT_EQ(good, kCount);
  EXPECT_LE(server.most_at_once(), 24);
  EXPECT_GE(server.most_at_once(), 12);
  EXPECT_LE(server.connections(), 2 * 24);  // kept, by each of the threads
}

// Requests that follow each other, as those of many threads do: more than may be under way, and
// some of each reactor's.
TEST(HttpClient, NoneWaitsForEverBehindOthers) {
  HttpServer server([](const ServerRequest&) {
    ServerAnswer answer = ok("x");
    answer.delay = 1ms;
    return answer;
  });
  HttpOptions options = quick();
  options.max_in_flight = 2;
  const auto client = make_http_client(options);
  constexpr std::size_t kChains = 40;
  constexpr int kCount = 800;
  std::array<std::atomic<int>, kChains> counts{};
  std::atomic<int> total{0};
  std::atomic<std::size_t> left{kChains};
  std::promise<void> all;
  const std::function<void(std::size_t)> ask = [&](std::size_t chain) {
    client->send(get(server.url() + "/k"), [&, chain](HttpResponse) {
      ++counts[chain];
      if (++total < kCount) return ask(chain);
      if (--left == 0) all.set_value();
    });
  };
  for (std::size_t chain = 0; chain < kChains; ++chain) ask(chain);
  all.get_future().wait();
  // 20 of each on average.
  for (const std::atomic<int>& count : counts) EXPECT_GE(count, 8);
}

TEST(HttpClient, TriesAgainWhatMayPass) {
  HttpOptions options = quick();
  options.idle_timeout = 5s;  // a server that a busy machine holds up is not asked once more
  for (const int status : {429, 500, 502, 503, 504}) {
    std::atomic<int> asked{0};
    HttpServer server([&](const ServerRequest&) {
      ServerAnswer answer = ok("at last");
      if (++asked < 3) answer.status = status;
      return answer;
    });
    const HttpResponse response = make_http_client(options)->ask(get(server.url() + "/k"));
    EXPECT_EQ(text(response), "at last") << status;
    EXPECT_EQ(response.attempts, 3);
  }
  for (const int status : {400, 403, 404, 409, 412, 501}) {
    HttpServer server([&](const ServerRequest&) { return ServerAnswer{.status = status}; });
    const HttpResponse response = make_http_client(options)->ask(get(server.url() + "/k"));
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(server.requests(), 1);
  }
}

TEST(HttpClient, GivesUpWithTheLastAnswer) {
  HttpServer server([](const ServerRequest&) {
    ServerAnswer answer = ok("slow down");
    answer.status = 503;
    return answer;
  });
  const HttpResponse response = make_http_client(quick())->ask(get(server.url() + "/k"));
  EXPECT_FALSE(response.error);
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(text(response), "slow down");
  EXPECT_EQ(response.attempts, 5);
  EXPECT_EQ(server.requests(), 5);
}

TEST(HttpClient, WaitsAsLongAsItIsAskedTo) {
  std::atomic<int> asked{0};
  HttpServer server([&](const ServerRequest& request) {
    ServerAnswer answer = ok("x");
    if (++asked == 1) {
      answer.status = 503;
      answer.headers = {{"Retry-After", request.path == "long" ? "60" : "1"}};
    }
    return answer;
  });
  const auto client = make_http_client(quick());
  const auto begin = Clock::now();
  EXPECT_EQ(text(client->ask(get(server.url() + "/k"))), "x");
  EXPECT_GE(Clock::now() - begin, 1s);
  // No wait that could not end in time.
  asked = 0;
  HttpRequest request = get(server.url() + "/long");
  request.deadline = Clock::now() + 30s;
  const auto begin_short = Clock::now();
  EXPECT_EQ(client->ask(std::move(request)).status, 503);
  EXPECT_LT(Clock::now() - begin_short, 10s);
}

TEST(HttpClient, TriesAgainWhatWasCutOrReset) {
  const std::string body(100'000, 'b');
  for (const bool reset : {false, true}) {
    std::atomic<int> asked{0};
    HttpServer server([&](const ServerRequest&) {
      ServerAnswer answer = ok(body);
      if (++asked % 3 != 0) {
        answer.cut_at = 5000;
        answer.reset = reset;
      }
      return answer;
    });
    const HttpResponse response = make_http_client(quick())->ask(get(server.url() + "/k"));
    EXPECT_TRUE(text(response) == body);
    EXPECT_EQ(response.attempts, 3);
  }
}

TEST(HttpClient, DoesNotRepeatWhatMayHaveBeenDone) {
  std::atomic<int> asked{0};
  HttpServer server([&](const ServerRequest&) {
    ServerAnswer answer = ok("x");
    if (++asked == 1) answer.reset = true;
    return answer;
  });
  HttpRequest request = get(server.url() + "/k");
  request.method = "PUT";
  request.repeatable = false;
  message(make_http_client(quick())->ask(std::move(request)), ErrorCode::io);
  EXPECT_EQ(asked, 1);
}

TEST(HttpClient, GoesOnWhereABodyWasCut) {
  ObjectServer objects;
  std::string bytes(300'000, '\0');
  std::mt19937 random(1);
  for (char& c : bytes) c = static_cast<char>(random());
  objects.put("k", bytes);
  std::atomic<std::size_t> sent{0};
  std::atomic<int> asked{0};
  objects.set_fault([&](const ServerRequest&, ServerAnswer& answer) {
    if (++asked < 4) answer.cut_at = 90'000;
    sent += answer.cut_at ? std::min(*answer.cut_at, answer.body.size()) : answer.body.size();
  });
  const auto client = make_http_client(quick());
  std::string place(bytes.size(), '\0');
  HttpRequest request = get(objects.url() + "/k");
  request.into = std::as_writable_bytes(std::span(place));
  const HttpResponse response = client->ask(std::move(request));
  EXPECT_TRUE(response.ok());
  EXPECT_TRUE(place == bytes);
  EXPECT_EQ(response.attempts, 4);
  EXPECT_EQ(sent, bytes.size());

  // And a range of it, and its end.
  for (const std::string range : {"bytes=1000-250999", "bytes=-250000"}) {
    asked = 0;
    sent = 0;
    HttpRequest part = get(objects.url() + "/k");
    part.headers = {{"Range", range}};
    const HttpResponse came = client->ask(std::move(part));
    EXPECT_TRUE(text(came) ==
                (range[6] == '-' ? bytes.substr(50'000) : bytes.substr(1000, 250'000)));
    EXPECT_EQ(sent, 250'000u);
  }
}

TEST(HttpClient, NeverJoinsTwoVersions) {
  ObjectServer objects;
  const std::string before(300'000, 'a');
  const std::string after(300'000, 'b');
  objects.put("k", before);
  std::atomic<int> asked{0};
  objects.set_fault([&](const ServerRequest&, ServerAnswer& answer) {
    if (++asked == 1) answer.cut_at = 90'000;
    if (asked == 1) return;
  });
  const auto client = make_http_client(quick());
  std::string place(before.size(), '\0');
  HttpRequest request = get(objects.url() + "/k");
  request.into = std::as_writable_bytes(std::span(place));
  request.sign = [&](HttpRequest& wire) {
    // Between the first attempt and the second.
    for (const HttpHeader& header : wire.headers) {
      if (header.name == "If-Match") objects.put("k", after);
    }
  };
  EXPECT_TRUE(client->ask(std::move(request)).ok());
  EXPECT_TRUE(place == after);
}

TEST(HttpClient, RefusesOtherLengths) {
  ObjectServer objects;
  objects.put("k", std::string(1000, 'x'));
  const auto client = make_http_client(quick());
  for (const std::size_t nbytes : {999u, 1001u}) {
    std::string place(nbytes, '\0');
    HttpRequest request = get(objects.url() + "/k");
    request.into = std::as_writable_bytes(std::span(place));
    message(client->ask(std::move(request)), ErrorCode::corrupt);
  }
  HttpRequest request = get(objects.url() + "/k");
  request.max_nbytes = 999;
  message(client->ask(request), ErrorCode::corrupt);
  request.max_nbytes = 1000;
  EXPECT_TRUE(client->ask(request).ok());
  // Where no length is said before.
  objects.set_fault([](const ServerRequest&, ServerAnswer& answer) { answer.chunked = true; });
  EXPECT_TRUE(client->ask(request).ok());
  request.max_nbytes = 999;
  message(client->ask(request), ErrorCode::corrupt);
}

TEST(HttpClient, TakesNoMemoryOnAHostsWord) {
  HttpServer server([](const ServerRequest&) {
    ServerAnswer answer = ok("little");
    answer.says_length = std::uint64_t{1} << 60;
    return answer;
  });
  HttpOptions options = quick();
  options.max_attempts = 2;
  const auto client = make_http_client(options);
  HttpRequest request = get(server.url() + "/k");
  request.max_nbytes = 1 << 20;
  message(client->ask(request), ErrorCode::corrupt);
  request.max_nbytes = UINT64_MAX;
  message(client->ask(request), ErrorCode::io);  // cut short, and no memory short of it
}

TEST(HttpClient, CutsARangeOutOfAWholeObject) {
  std::string bytes(5'000'000, '\0');
  std::mt19937 random(2);
  for (char& c : bytes) c = static_cast<char>(random());
  HttpServer server([&](const ServerRequest& request) {
    ServerAnswer answer = ok(bytes);
    answer.chunked = request.path == "chunked";
    return answer;
  });
  const auto client = make_http_client(quick());
  for (const char* path : {"/k", "/chunked"}) {
    for (const std::size_t offset : {0u, 1u, 100'000u, 4'999'000u}) {
      std::string place(1000, '\0');
      HttpRequest request = get(server.url() + path);
      request.into = std::as_writable_bytes(std::span(place));
      request.whole_offset = offset;
      const HttpResponse response = client->ask(std::move(request));
      EXPECT_TRUE(response.ok()) << offset;
      EXPECT_EQ(response.nbytes, 1000u);
      EXPECT_TRUE(place == bytes.substr(offset, 1000)) << offset;
    }
  }
  std::string place(1000, '\0');
  HttpRequest request = get(server.url() + "/k");
  request.into = std::as_writable_bytes(std::span(place));
  request.whole_offset = 4'999'001;
  message(client->ask(request), ErrorCode::corrupt);
  request.whole_offset = std::uint64_t{1} << 40;
  message(client->ask(request), ErrorCode::corrupt);
}

TEST(HttpClient, EndsAtItsDeadline) {
  // Nothing comes; little comes for ever, by a deadline or the time of a request; the answer is 503
  // for ever.
  for (const int kind : {0, 1, 2, 3}) {
    HttpServer server([&](const ServerRequest&) {
      ServerAnswer answer = ok(std::string(10'000, 'x'));
      if (kind == 0) answer.delay = 20s;
      if (kind == 1 || kind == 3) answer.trickle = 20ms;
      if (kind == 2) answer.status = 503;
      return answer;
    });
    HttpOptions options = quick();
    if (kind == 3) options.timeout = 400ms;
    options.max_attempts = 1'000'000;
    options.idle_timeout = kind == 0 ? 50ms : 10s;
    const auto client = make_http_client(options);
    HttpRequest request = get(server.url() + "/k");
    const auto begin = Clock::now();
    if (kind != 3) request.deadline = begin + 400ms;
    const HttpResponse response = client->ask(std::move(request));
    EXPECT_LT(Clock::now() - begin, 10s) << kind;
    if (kind == 2 && !response.error) {
      EXPECT_EQ(response.status, 503);
    } else {
      message(response, ErrorCode::io);
      EXPECT_EQ(os_error(response), ETIMEDOUT);
    }
  }
}

TEST(HttpClient, WhatComesSlowlyIsWaitedFor) {
  const std::string body(std::size_t{4} << 20, 'x');
  HttpServer server([&](const ServerRequest&) {
    ServerAnswer answer = ok(body);
    answer.trickle = 50ms;  // 800 in all
    answer.trickle_nbytes = std::size_t{256} << 10;
    return answer;
  });
  HttpOptions options = quick();
  options.timeout = 500ms;
  options.idle_timeout = 5s;
  const HttpResponse response = make_http_client(options)->ask(get(server.url() + "/k"));
  EXPECT_FALSE(response.error);
  EXPECT_EQ(text(response), body);
  EXPECT_EQ(server.requests(), 1);
}

TEST(HttpClient, WhatGoesSlowlyIsWaitedFor) {
  HttpServer server([](const ServerRequest& request) { return ok(request.body.substr(0, 1)); });
  server.read_slowly(20ms);  // 1.3 s in all
  HttpOptions options = quick();
  options.timeout = 500ms;
  options.idle_timeout = 400ms;
  const std::string body(std::size_t{4} << 20, 'x');
  HttpRequest request = get(server.url() + "/k");
  request.method = "PUT";
  request.body = {bytes_of(body)};
  const HttpResponse response = make_http_client(options)->ask(request);
  EXPECT_FALSE(response.error);
  EXPECT_EQ(text(response), "x");
  EXPECT_EQ(server.requests(), 1);
}

TEST(HttpClient, EndsAtItsDeadlineInTheQueueToo) {
  HttpServer server([](const ServerRequest&) {
    ServerAnswer answer = ok("x");
    answer.delay = 2s;
    return answer;
  });
  HttpOptions options = quick();
  options.max_in_flight = 1;
  options.idle_timeout = 5s;
  const auto client = make_http_client(options);
  std::promise<void> first;
  client->send(get(server.url() + "/first"), [&](HttpResponse) { first.set_value(); });
  HttpRequest request = get(server.url() + "/second");
  const auto begin = Clock::now();
  request.deadline = begin + 100ms;
  const HttpResponse response = client->ask(std::move(request));
  EXPECT_LT(Clock::now() - begin, 2s);
  EXPECT_EQ(os_error(response), ETIMEDOUT);
  first.get_future().wait();
  EXPECT_EQ(server.requests(), 1);
}

TEST(HttpClient, CancelsWhatWaitsAndWhatIsOnTheWire) {
  HttpServer server([](const ServerRequest&) {
    ServerAnswer answer = ok("x");
    answer.delay = 20s;
    return answer;
  });
  HttpOptions options = quick();
  options.max_in_flight = 4;
  options.idle_timeout = 30s;
  const auto client = make_http_client(options);
  constexpr int kCount = 20;
  std::atomic<int> told{0};
  std::atomic<int> cancelled{0};
  std::promise<void> all;
  std::vector<std::uint64_t> numbers;
  for (int i = 0; i < kCount; ++i) {
    numbers.push_back(client->send(get(server.url() + "/k"), [&](HttpResponse response) {
      try {
        std::rethrow_exception(response.error);
      } catch (const Error& error) {
        cancelled += error.code() == ErrorCode::cancelled ? 1 : 0;
      }
      if (++told == kCount) all.set_value();
    }));
  }
  const auto begin = Clock::now();
  for (const std::uint64_t number : numbers) client->cancel(number);
  all.get_future().wait();
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_EQ(cancelled, kCount);
  for (const std::uint64_t number : numbers) client->cancel(number);  // long done
}

TEST(HttpClient, FollowsRedirects) {
  HttpServer other([](const ServerRequest& request) {
    return ok("other:" + request.header("authorization") + request.header("x-amz-security-token") +
              request.header("cookie") + ":" + request.header("range"));
  });
  HttpServer server([&](const ServerRequest& request) -> ServerAnswer {
    const std::string& path = request.path;
    if (path == "end") return ok("end:" + request.header("authorization"));
    std::string where;
    if (path == "loop") where = "/loop";
    if (path == "here") where = "end";
    if (path == "there") where = other.url() + "/x";
    if (path == "file") where = "file:///etc/passwd";
    if (path == "nowhere") where = "http://[";
    if (path.starts_with("hop")) {
      const int n = std::atoi(path.c_str() + 3);
      where = n == 1 ? "/end" : "/hop" + std::to_string(n - 1);
    }
    return {.status = 302, .headers = {{"Location", where}}, .body = "moved"};
  });
  const auto client = make_http_client(quick());
  const auto ask = [&](const std::string& path, const char* method = "GET") {
    HttpRequest request = get(server.url() + path);
    request.method = method;
    request.headers = {{"Authorization", "Bearer SECRET"},
                       {"X-Amz-Security-Token", "SECRET"},
                       {"Cookie", "SECRET"},
                       {"Range", "bytes=0-9999"}};
    return client->ask(std::move(request));
  };
  EXPECT_EQ(text(ask("/here")), "end:Bearer SECRET");
  EXPECT_EQ(text(ask("/hop5")), "end:Bearer SECRET");
  EXPECT_EQ(text(ask("/there")), "other::bytes=0-9999");
  for (const char* path : {"/hop6", "/loop", "/file", "/nowhere"}) {
    message(ask(path), ErrorCode::io);
  }
  // What was not signed for another place is not sent there.
  EXPECT_EQ(ask("/there", "PUT").status, 302);
}

TEST(HttpClient, AGarbledAnswerIsAnError) {
  for (const std::string& raw : {std::string("garbage\n\n"),
                                 std::string("HTTP/1.1 \xff\xff\r\n\r\n"),
                                 std::string("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc"),
                                 std::string("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc"),
                                 "HTTP/1.1 200 OK\r\nX: " + std::string(1 << 20, 'h') + "\r\n\r\n",
                                 std::string(1, '\0')}) {
    HttpServer server([&](const ServerRequest&) { return ServerAnswer{.raw = raw}; });
    const HttpResponse response = make_http_client(quick())->ask(get(server.url() + "/k"));
    EXPECT_TRUE(response.error) << raw.substr(0, 40) << response.status << text(response);
  }
}

TEST(HttpClient, ASecondTryOvertakesASlowFirst) {
  std::atomic<int> asked{0};
  HttpServer server([&](const ServerRequest& request) {
    ServerAnswer answer = ok("x");
    if (request.path == "slow" && ++asked == 1) answer.delay = 9s;
    return answer;
  });
  HttpOptions options = quick();
  options.hedge = true;
  options.idle_timeout = 10s;
  const auto client = make_http_client(options);
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(client->ask(get(server.url() + "/quick")).ok());
  std::string place(1, '\0');
  HttpRequest request = get(server.url() + "/slow");
  request.into = std::as_writable_bytes(std::span(place));
  const auto begin = Clock::now();
  EXPECT_TRUE(client->ask(std::move(request)).ok());
  EXPECT_LT(Clock::now() - begin, 8s);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(place, "x");
}

TEST(HttpClient, SignsEachAttempt) {
  std::atomic<int> asked{0};
  HttpServer server([&](const ServerRequest& request) {
    ServerAnswer answer = ok(request.header("x-signed"));
    if (++asked < 3) answer.status = 500;
    return answer;
  });
  HttpRequest request = get(server.url() + "/k");
  auto times = std::make_shared<int>(0);
  request.sign = [times](HttpRequest& wire) {
    wire.headers.push_back({"X-Signed", std::to_string(++*times)});
  };
  EXPECT_EQ(text(make_http_client(quick())->ask(std::move(request))), "3");
  HttpRequest bad = get(server.url() + "/k");
  bad.sign = [](HttpRequest&) { throw Error(ErrorCode::permission_denied, "no credentials"); };
  message(make_http_client(quick())->ask(std::move(bad)), ErrorCode::permission_denied);
}

TEST(HttpClient, NoMessageHoldsASecret) {
  HttpServer server([](const ServerRequest& request) -> ServerAnswer {
    if (request.path == "reset") return {.reset = true};
    if (request.path == "garbage") return {.raw = "garbage\n\n"};
    if (request.path == "loop") return {.status = 302, .headers = {{"Location", "/loop?SECRET"}}};
    if (request.path == "ftp") {
      return {.status = 302, .headers = {{"Location", "ftp://SECRET:SECRET@host/?SECRET"}}};
    }
    if (request.path == "cut") return {.body = "12345", .cut_at = 2};
    if (request.path == "slow") return {.delay = 5s};
    return {.body = "x", .says_length = 1000};
  });
  HttpOptions options = quick();
  options.idle_timeout = 50ms;
  options.max_attempts = 2;
  const auto client = make_http_client(options);
  const std::string port = std::to_string(server.port());
  std::vector<std::string> urls = {"ftp://u:SECRET@h/?SECRET",
                                   "http://u:SECRET@[/?SECRET",
                                   "http://SECRET:SECRET@127.0.0.1:1/k?SECRET#SECRET",
                                   "http://u:SECRET@nothing.invalid/?SECRET"};
  for (const char* path : {"reset", "garbage", "loop", "ftp", "cut", "slow", "long"}) {
    urls.push_back("http://user:SECRET@127.0.0.1:" + port + "/" + path + "?sig=SECRET");
  }
  for (const std::string& url : urls) {
    HttpRequest request = get(url);
    request.headers = {{"Authorization", "SECRET"}};
    request.max_nbytes = 100;
    const HttpResponse response = client->ask(std::move(request));
    ASSERT_TRUE(response.error) << url;
    try {
      std::rethrow_exception(response.error);
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("SECRET"), std::string::npos) << error.what();
      EXPECT_NE(error.code(), ErrorCode::unsupported) << error.what();
    }
  }
  HttpRequest request = get(server.url() + "/k");
  request.headers = {{"X", "SECRET\r\nInjected: 1"}};
  EXPECT_EQ(message(client->ask(request), ErrorCode::invalid_argument).find("SECRET"),
            std::string::npos);
}

TEST(HttpClient, UrlsAreShownWithoutSecrets) {
  const std::pair<const char*, const char*> cases[] = {
      {"https://host/a/b", "https://host/a/b"},
      {"https://host:8080/a@b?x=y#z", "https://host:8080/a@b"},
      {"https://user:pass@host/a", "https://host/a"},
      {"https://user@host", "https://host"},
      {"https://user:p@ss@host/a", "https://host/a"},
      {"https://user:p/ss@host/a", "https://host/a"},
      {"https://user:p?ss@host/a", "https://host/a"},
      {"https://[::1]:80/a@b", "https://[::1]:80/a@b"},
      {"https://host?sig=x/y@z", "https://host"},
      {"s3://bucket/a.zarr?x", "s3://bucket/a.zarr"},
      {"/path?x", "/path"},
  };
  for (const auto& [url, shown] : cases) EXPECT_EQ(without_secrets(url), shown);
}

TEST(HttpClient, OnlySpeaksHttp) {
  const auto client = make_http_client(quick());
  for (const char* url : {"file:///etc/passwd", "ftp://host/x", "", "host/x"}) {
    message(client->ask(get(url)), ErrorCode::invalid_argument);
  }
  HttpOptions bad;
  bad.max_in_flight = -1;
  EXPECT_THROW(make_http_client(bad), Error);
  bad = {};
  bad.ca_bundle = "/nothing/here.pem";
  EXPECT_THROW(make_http_client(bad), Error);
}

TEST(HttpClient, GoesThroughAProxy) {
  HttpServer proxy([](const ServerRequest& request) { return ok("proxy:" + request.path); });
  HttpServer direct([](const ServerRequest&) { return ok("direct"); });
  HttpOptions options = quick();
  options.proxy = proxy.url();
  EXPECT_EQ(text(make_http_client(options)->ask(get("http://far.invalid/k"))),
            "proxy:ttp://far.invalid/k");  // a server of a test takes the first letter for a slash
  options.no_proxy = "127.0.0.1";
  EXPECT_EQ(text(make_http_client(options)->ask(get(direct.url() + "/k"))), "direct");
}

TEST(HttpClient, AChildOfForkHasItsOwn) {
  HEADRACE_SKIP_WHERE_MALLOC_DOES_NOT_SURVIVE_FORK();
  ObjectServer objects;
  objects.put("k", "of the server");
  objects.set_fault([](const ServerRequest& request, ServerAnswer& answer) {
    if (request.path == "slow") answer.delay = 300ms;
  });
  HttpOptions options = quick();
  options.idle_timeout = 5s;
  const auto client = make_http_client(options);
  constexpr int kSlow = 20;
  std::atomic<int> told{0};
  std::promise<void> all;
  for (int i = 0; i < kSlow; ++i) {
    client->send(get(objects.url() + "/slow"), [&](HttpResponse) {
      if (++told == kSlow) all.set_value();
    });
  }
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      const int told_before = told;
      bool good = true;
      for (int i = 0; i < 20; ++i) {
        const HttpResponse response = client->ask(get(objects.url() + "/k"));
        good = good && response.ok() && text(response) == "of the server";
      }
      _exit(good && told == told_before ? 0 : 1);
    }
    // The parent's requests go on meanwhile.
    EXPECT_EQ(text(client->ask(get(objects.url() + "/k"))), "of the server");
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  all.get_future().wait();
  EXPECT_EQ(told, kSlow);
}

TEST(HttpClient, UnreachableServersAreSaidSoon) {
  const auto client = make_http_client(quick());
  const auto begin = Clock::now();
  const HttpResponse refused = client->ask(get("http://127.0.0.1:1/k"));
  message(refused, ErrorCode::io);
  EXPECT_EQ(os_error(refused), ECONNREFUSED);
  EXPECT_LT(Clock::now() - begin, 10s);
}

TEST(ContentRange, IsParsed) {
  const auto whole = parse_content_range("bytes 5-9/20");
  ASSERT_TRUE(whole && whole->satisfied);
  EXPECT_EQ(whole->first, 5u);
  EXPECT_EQ(whole->last, 9u);
  EXPECT_EQ(whole->object_nbytes, 20u);
  EXPECT_FALSE(parse_content_range("bytes 5-9/*")->object_nbytes);
  const auto none = parse_content_range("bytes */20");
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->satisfied);
  for (const char* bad : {"",
                          "5-9/20",
                          "bytes 9-5/20",
                          "bytes 5-20/20",
                          "bytes 5-9",
                          "bytes -9/20",
                          "bytes 5-/20",
                          "bytes 5-9/x",
                          "items 5-9/20",
                          "bytes 0-18446744073709551615/*",
                          "bytes 5-99999999999999999999/*"}) {
    EXPECT_FALSE(parse_content_range(bad)) << bad;
  }
}

}  // namespace
}  // namespace headrace
