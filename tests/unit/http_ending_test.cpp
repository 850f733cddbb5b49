// The end of a process that has requests under way, or had some.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "store/http/client.h"
#include "support/http_server.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using test::HttpServer;
using test::ServerAnswer;
using test::ServerRequest;
using Clock = std::chrono::steady_clock;

HttpOptions patient() {
  HttpOptions options;
  options.idle_timeout = 60s;
  return options;
}

HttpRequest get(const std::string& url) {
  HttpRequest request;
  request.url = url;
  return request;
}

// The exit status of this program, begun anew for the test that calls this: what is called at its
// end is called in an order that the tests of this one have settled already.
int status_of_this_test_anew(const char* variable, const std::string& value) {
  const std::string filter = std::string("--gtest_filter=HttpEnding.") +
                             testing::UnitTest::GetInstance()->current_test_info()->name();
  const pid_t child = fork();
  if (child == 0) {
    setenv(variable, value.c_str(), 1);
    for (const char* shard : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"}) unsetenv(shard);
    execl("/proc/self/exe", "tests", filter.c_str(), nullptr);
    _exit(4);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  return WEXITSTATUS(status);
}

TEST(HttpEnding, NothingUnderWayHoldsUpTheEndOfTheProcess) {
  constexpr const char* kUrl = "HEADRACE_TEST_URL_OF_THE_ENDING";
  if (const char* const url = std::getenv(kUrl)) {
    alarm(20);
    static std::atomic<int> told{0};  // for those who are told behind main()
    std::atexit([] { _exit(told == 100 ? 0 : 3); });
    auto* const client = new std::shared_ptr<HttpClient>(make_http_client(patient()));
    for (int i = 0; i < 100; ++i) {
      (*client)->send(get(std::string(url) + "/k"),
                      [](HttpResponse response) { told += response.error ? 1 : 0; });
    }
    std::this_thread::sleep_for(100ms);
    std::exit(1);
  }
  HttpServer server([](const ServerRequest&) { return ServerAnswer{.body = "x", .delay = 30s}; });
  const auto begin = Clock::now();
  EXPECT_EQ(status_of_this_test_anew(kUrl, server.url()), 0);
  EXPECT_LT(Clock::now() - begin, 20s);
}

// Libraries free what they keep for a thread behind its last line, and what they share at the end
// of the process: in this order.
TEST(HttpEnding, ThreadsAreGoneBeforeLibrariesEnd) {
  constexpr const char* kUrl = "HEADRACE_TEST_URL_OF_THE_LAST_LINE";
  if (const char* const url = std::getenv(kUrl)) {
    alarm(20);
    static std::atomic<bool> is_gone{false};
    struct OfTheThread {
      ~OfTheThread() {
        std::this_thread::sleep_for(200ms);
        is_gone = true;
      }
    };
    std::atexit([] { _exit(is_gone ? 0 : 3); });  // as libraries do that are there before
    auto* const client = new std::shared_ptr<HttpClient>(make_http_client(patient()));
    std::promise<void> told;
    (*client)->send(get(std::string(url) + "/k"), [&](HttpResponse) {
      thread_local const OfTheThread kept;
      told.set_value();
    });
    told.get_future().wait();
    std::exit(1);
  }
  HttpServer server([](const ServerRequest&) { return ServerAnswer{.body = "x"}; });
  EXPECT_EQ(status_of_this_test_anew(kUrl, server.url()), 0);
}

TEST(HttpEnding, AThreadThatDoesNotEndIsNotWaitedForForEver) {
  constexpr const char* kUrl = "HEADRACE_TEST_URL_OF_NO_LAST_LINE";
  if (const char* const url = std::getenv(kUrl)) {
    alarm(20);
    struct OfTheThread {
      ~OfTheThread() {
        for (;;) pause();
      }
    };
    std::atexit([] { _exit(5); });
    auto* const client = new std::shared_ptr<HttpClient>(make_http_client(patient()));
    std::promise<void> told;
    (*client)->send(get(std::string(url) + "/k"), [&](HttpResponse) {
      thread_local const OfTheThread kept;
      told.set_value();
    });
    told.get_future().wait();
    std::exit(1);
  }
  HttpServer server([](const ServerRequest&) { return ServerAnswer{.body = "x"}; });
  const auto begin = Clock::now();
  EXPECT_EQ(status_of_this_test_anew(kUrl, server.url()), 5);
  EXPECT_LT(Clock::now() - begin, 8s);
}

TEST(HttpEnding, WhoIsToldMayEndTheProcess) {
  constexpr const char* kUrl = "HEADRACE_TEST_URL_OF_THE_ENDING_THREAD";
  if (const char* const url = std::getenv(kUrl)) {
    alarm(20);
    static const std::shared_ptr<HttpClient> client = make_http_client(patient());
    client->send(get(std::string(url) + "/k"), [](HttpResponse) { std::exit(7); });
    std::this_thread::sleep_for(10s);
    _exit(3);
  }
  HttpServer server([](const ServerRequest&) { return ServerAnswer{.body = "x"}; });
  EXPECT_EQ(status_of_this_test_anew(kUrl, server.url()), 7);
}

}  // namespace
}  // namespace headrace
