// What answers a store of HTTP believes, and what it asks for.

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>

#include "conformance/error_code.h"
#include "headrace/error.h"
#include "store/http/driver.h"
#include "store/http/open.h"
#include "store/http/plain.h"
#include "support/http_server.h"
#include "support/toy_protocol.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using test::HttpServer;
using test::ObjectServer;
using test::ServerAnswer;
using test::ServerRequest;

std::string pattern(std::size_t nbytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(nbytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

HttpOptions quick() {
  HttpOptions options;
  options.backoff = 1ms;
  options.max_backoff = 5ms;
  options.timeout = 5s;
  return options;
}

// What came in two pieces is what was asked for, and not the second piece.
TEST(HttpDriver, ABodyThatWasCutIsAWholeOne) {
  ObjectServer objects;
  const std::string bytes = pattern(300'000, 3);
  objects.put("k", bytes);
  std::atomic<int> asked{0};
  std::atomic<std::size_t> sent{0};
  objects.set_fault([&](const ServerRequest&, ServerAnswer& answer) {
    if (++asked < 4) answer.cut_at = 60'000;
    answer.headers.emplace_back("Content-MD5", "no checksum at all");
    sent += std::min(answer.cut_at.value_or(SIZE_MAX), answer.body.size());
  });
  const auto store = make_http_driver(test::make_toy_protocol(objects.url(), {}),
                                      make_http_client(quick()),
                                      HttpAccess::read_write);
  std::string place(250'000, '\0');
  for (const Extent extent :
       {Extent::whole(), Extent::range(1000, 250'000), Extent::suffix(250'000)}) {
    for (const bool placed : {false, true}) {
      if (placed && extent.kind != Extent::Kind::range) continue;
      asked = 0;
      sent = 0;
      WaitedRead read;
      read.key = "k";
      read.extent = extent;
      if (placed) read.into = std::as_writable_bytes(std::span(place));
      read_and_wait(*store, {&read, 1});
      if (read.error) std::rethrow_exception(read.error);
      const std::string expected = extent.kind == Extent::Kind::whole ? bytes
                                   : extent.kind == Extent::Kind::range
                                       ? bytes.substr(1000, 250'000)
                                       : bytes.substr(50'000);
      EXPECT_TRUE((placed ? std::string_view(place) : text_of(read.bytes)) == expected);
      EXPECT_EQ(read.object_nbytes, bytes.size());
      EXPECT_EQ(read.version, ObjectServer::etag(bytes));
      EXPECT_EQ(asked, 4);
      EXPECT_EQ(sent, expected.size());
    }
  }
}

// A kept connection is closed behind a request that was carried out, and libcurl sends it again.
TEST(HttpDriver, AnErasureThatWasSentTwiceIsNoConflict) {
  for (const bool recreated : {false, true}) {
    ObjectServer objects;
    objects.put("k", "before");
    std::atomic<int> erasures{0};
    objects.set_fault([&](const ServerRequest& request, ServerAnswer& answer) {
      if (request.method != "DELETE") return;
      if (erasures++ == 0) {
        if (recreated) objects.put("k", "theirs");
        answer.reset = true;
      } else if (answer.status == 404) {
        answer = {.status = 412};  // as S3 has it of a condition on what is gone
      }
    });
    const auto store = make_http_driver(test::make_toy_protocol(objects.url(), {}),
                                        make_http_client(quick()),
                                        HttpAccess::read_write);
    Buffer buffer;
    ASSERT_TRUE(store->get("k", buffer));  // leaves its connection
    WaitedWrite write;
    write.key = "k";
    write.erases = true;
    write.condition = WriteCondition::if_version(ObjectServer::etag("before"));
    if (recreated) {
      try {
        write_and_wait(*store, write);
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_TRUE(is_in_doubt(error)) << error.what();
      }
      EXPECT_EQ(objects.get("k"), "theirs");
    } else {
      EXPECT_NO_THROW(write_and_wait(*store, write));
      EXPECT_EQ(objects.get("k"), std::nullopt);
    }
    EXPECT_EQ(erasures, 2);
    EXPECT_EQ(objects.server().connections(), 2);
  }
}

// Of a body that says what is wrong enough is read, and no more.
TEST(HttpClient, AnErrorWithoutAnEndEndsSoon) {
  for (const int status : {500, 404, 307}) {
    for (const auto pause : {0ms, 50ms, 20'000ms}) {
      HttpServer server([&](const ServerRequest&) {
        ServerAnswer answer{.status = status, .body = std::string(100, 'x')};
        answer.says_length = std::uint64_t{1} << 50;
        answer.endless = pause;
        return answer;
      });
      HttpOptions options = quick();
      options.max_attempts = 1;
      options.timeout = 30s;
      HttpRequest request;
      request.url = server.url() + "/k";
      const auto begin = std::chrono::steady_clock::now();
      const HttpResponse response = make_http_client(options)->ask(std::move(request));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s) << status;
      EXPECT_FALSE(response.error) << status;
      EXPECT_EQ(response.status, status);
      EXPECT_GT(response.body.size(), 0u);
      EXPECT_LE(response.body.size(), 64u << 10);
      EXPECT_TRUE(response.cut_short);
    }
  }
}

// Another attempt may bring all of it; where there is none, its status is the answer.
TEST(HttpClient, AnErrorThatIsCutKeepsItsStatus) {
  std::atomic<int> asked{0};
  HttpServer server([&](const ServerRequest& request) {
    ++asked;
    ServerAnswer answer{.status = 404, .body = "it is not here"};
    if (request.path == "always" || asked == 1) answer.cut_at = 5;
    return answer;
  });
  const auto ask = [&](const std::string& path, int attempts) {
    asked = 0;
    HttpOptions options = quick();
    options.max_attempts = attempts;
    HttpRequest request;
    request.url = server.url() + path;
    return make_http_client(options)->ask(std::move(request));
  };
  const HttpResponse second = ask("/once", 3);
  EXPECT_EQ(second.status, 404);
  EXPECT_FALSE(second.cut_short);
  EXPECT_EQ(text_of(second.body.bytes()), "it is not here");
  for (const int attempts : {1, 3}) {
    const HttpResponse cut = ask("/always", attempts);
    EXPECT_FALSE(cut.error);
    EXPECT_EQ(asked, attempts);
    EXPECT_EQ(cut.status, 404);
    EXPECT_TRUE(cut.cut_short);
    EXPECT_EQ(text_of(cut.body.bytes()), "it is");
  }
}

// The deadline ends the wait for its words, too.
TEST(HttpClient, AnErrorAtItsDeadlineKeepsItsStatus) {
  HttpServer server([&](const ServerRequest&) {
    ServerAnswer answer{.status = 403, .body = "because"};
    answer.says_length = 1000;
    answer.endless = 20s;
    return answer;
  });
  HttpRequest request;
  request.url = server.url();
  request.deadline = std::chrono::steady_clock::now() + 300ms;
  const HttpResponse response = make_http_client(quick())->ask(std::move(request));
  EXPECT_FALSE(response.error);
  EXPECT_EQ(response.status, 403);
}

TEST(HttpDriver, SizesBeyondAllCountsAreCorrupt) {
  HttpServer server([](const ServerRequest&) {
    ServerAnswer answer;
    answer.headers.emplace_back("Content-Length", "18446744073709551615");
    return answer;
  });
  const auto store = make_http_driver(
      make_plain_protocol(server.url(), {}), make_http_client(quick()), HttpAccess::read_only);
  EXPECT_EQ(code_of([&] { store->open("k"); }), ErrorCode::corrupt);
}

TEST(PlainHttp, ARefusalBehindARedirectSaysWhose) {
  HttpServer theirs([](const ServerRequest&) { return ServerAnswer{.status = 401}; });
  HttpServer ours([&](const ServerRequest& request) {
    const bool stays = request.path.starts_with("here/");
    if (stays && request.path.ends_with("moved")) return ServerAnswer{.status = 403};
    ServerAnswer answer{.status = 302};
    answer.headers.emplace_back("Location", stays ? "/here/moved" : theirs.url() + "/moved?SECRET");
    return answer;
  });
  const auto refusal = [&](const std::string& place, const StorageOptions& options) {
    const Store store = open_store(ours.url() + place, StoreMode::read, options);
    std::string message;
    Buffer bytes;
    EXPECT_EQ(code_of([&] { store.driver().get("k", bytes); }, &message),
              ErrorCode::permission_denied);
    EXPECT_EQ(message.find("SECRET"), std::string::npos) << message;
    return message;
  };
  const std::string sent_no = "is sent no credentials";
  const std::string theirs_with = refusal("/there", {{"bearer_token", "SECRET"}});
  EXPECT_NE(theirs_with.find(theirs.url() + "/moved, where"), std::string::npos) << theirs_with;
  EXPECT_NE(theirs_with.find(sent_no), std::string::npos) << theirs_with;
  EXPECT_EQ(refusal("/there", {}).find(sent_no), std::string::npos);
  const std::string here = refusal("/here", {{"bearer_token", "SECRET"}});
  EXPECT_NE(here.find("/here/moved, where"), std::string::npos) << here;
  EXPECT_EQ(here.find(sent_no), std::string::npos) << here;
}

TEST(PlainHttp, TakesNothingThatIsPackedOnItsWay) {
  ObjectServer objects;
  objects.put("k", pattern(1000, 1));
  std::string coding;
  std::string accepted;
  objects.set_fault([&](const ServerRequest& request, ServerAnswer& answer) {
    accepted = request.header("Accept-Encoding");
    if (!coding.empty()) answer.headers.emplace_back("Content-Encoding", coding);
  });
  const Store store = open_store(objects.url(), StoreMode::read, {});
  Buffer bytes(10);
  for (const char* good : {"", "identity"}) {
    coding = good;
    store.open("k")->read(5, bytes.bytes());
    EXPECT_EQ(text_of(bytes), pattern(1000, 1).substr(5, 10));
  }
  EXPECT_EQ(accepted, "identity");
  coding = "gzip";
  EXPECT_EQ(code_of([&] { store.open("k")->read(5, bytes.bytes()); }), ErrorCode::unsupported);
  EXPECT_EQ(code_of([&] { store.open("k")->read(0, bytes.bytes()); }), ErrorCode::unsupported);
  coding.clear();
  const Store own =
      open_store(objects.url(), StoreMode::read, {{"headers", "Accept-Encoding: br"}});
  EXPECT_TRUE(own.exists("k"));
  EXPECT_EQ(accepted, "br");
}

TEST(PlainHttp, HasHeadersAsADictToo) {
  ObjectServer objects;
  std::string said;
  objects.set_fault([&](const ServerRequest& request, ServerAnswer&) {
    said = request.header("Authorization") + "|" + request.header("X-Two");
  });
  for (const char* name : {"headers", "default_headers"}) {
    said.clear();
    const Store store =
        open_store(objects.url(),
                   StoreMode::read,
                   {{name, R"({"Authorization": "Bearer a, \"b\": c", "X-Two": "2"})"}});
    EXPECT_FALSE(store.exists("k"));
    EXPECT_EQ(said, "Bearer a, \"b\": c|2");
  }
}

TEST(PlainHttp, HasItsQueryByAnOptionToo) {
  ObjectServer objects;
  objects.put("a/k", "x");
  std::string said;
  objects.set_fault([&](const ServerRequest& request, ServerAnswer&) { said = request.query; });
  const Store store = open_store(objects.url() + "/a", StoreMode::read, {{"query", "sig=SECRET"}});
  EXPECT_TRUE(store.exists("k"));
  EXPECT_EQ(said, "sig=SECRET");
  EXPECT_EQ(store.url().find("SECRET"), std::string::npos);
}

}  // namespace
}  // namespace headrace
