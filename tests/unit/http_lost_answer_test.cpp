// Writes on condition, and uploads, whose answers do not arrive or are not the first.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>

#include "conformance/error_code.h"
#include "headrace/error.h"
#include "store/http/driver.h"
#include "support/http_server.h"
#include "support/toy_protocol.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using test::ObjectServer;
using test::quick;
using test::ServerAnswer;
using test::ServerRequest;

// What is done to a write on condition whose answer does not arrive.
class LostAnswer : public testing::TestWithParam<std::uint64_t> {
 protected:
  LostAnswer() {
    objects_.put("k", "before");
    store_ = make_http_driver(
        test::make_toy_protocol(objects_.url(), {.max_put_nbytes = GetParam(), .part_nbytes = 4}),
        make_http_client(quick()),
        HttpAccess::read_write);
  }

  // The first write that ends an object is answered like this.
  void at_first_write(std::function<void(ServerAnswer&)> then) {
    objects_.set_fault([this, then](const ServerRequest& request, ServerAnswer& answer) {
      const bool ends = GetParam() < 5
                            ? request.method == "POST" && !request.parameter("upload").empty()
                            : request.method == "PUT";
      if (ends && writes_++ == 0) then(answer);
    });
  }

  std::string write(const std::string& text) {
    const ConstBytes bytes = bytes_of(text);
    return store_->set_if(
        "k", {&bytes, 1}, WriteCondition::if_version(ObjectServer::etag("before")));
  }

  ObjectServer objects_;
  std::shared_ptr<HttpDriver> store_;
  std::atomic<int> writes_{0};
};

TEST_P(LostAnswer, OfAWriteThatWasMadeIsNoConflict) {
  for (const int status : {0, 500, 504}) {
    objects_.put("k", "before");
    writes_ = 0;
    at_first_write([&](ServerAnswer& answer) {
      if (status == 0) {
        answer.reset = true;
      } else {
        answer = {.status = status};
      }
    });
    EXPECT_EQ(write("after!"), ObjectServer::etag("after!"));
    EXPECT_EQ(objects_.get("k"), "after!");
    // On a connection that was kept libcurl sends it again by itself.
    EXPECT_LE(writes_, status == 0 ? 2 : 1) << status;
    EXPECT_EQ(objects_.uploads(), 0u);
  }
}

TEST_P(LostAnswer, OfAWriteThatWasNotMadeIsMadeUp) {
  if (GetParam() < 5) GTEST_SKIP() << "an upload that the server has ended is gone";
  at_first_write([&](ServerAnswer& answer) {
    objects_.put("k", "before");
    answer.reset = true;
  });
  write("after!");
  EXPECT_EQ(objects_.get("k"), "after!");
  EXPECT_EQ(writes_, 2);
}

TEST_P(LostAnswer, OfAServerThatIsAwayIsWaitedFor) {
  if (GetParam() < 5) GTEST_SKIP() << "an upload that the server has ended is gone";
  for (const int status : {0, 500, 502}) {
    objects_.put("k", "before");
    writes_ = 0;
    objects_.set_fault([&](const ServerRequest& request, ServerAnswer& answer) {
      if (request.method != "PUT" || ++writes_ > 5) return;
      objects_.put("k", "before");
      answer = {.status = status == 0 ? 200 : status, .reset = status == 0};
    });
    write("after!");
    EXPECT_EQ(objects_.get("k"), "after!");
    EXPECT_EQ(writes_, 6);
  }
}

TEST_P(LostAnswer, IsNoneThatSaysThatNothingWasDone) {
  int looks = 0;
  objects_.set_fault([&](const ServerRequest& request, ServerAnswer& answer) {
    looks += request.method == "HEAD";
    const bool ends = request.method == "PUT" || !request.parameter("upload").empty();
    if (!ends || request.method == "DELETE" || !request.parameter("part").empty()) return;
    ++writes_;
    answer = {.status = 503};
  });
  EXPECT_EQ(code_of([&] { write("after!"); }), ErrorCode::io);
  EXPECT_EQ(looks, 0);
  EXPECT_EQ(writes_, quick().max_attempts);
}

TEST_P(LostAnswer, BesideAnotherWriterLeavesADoubt) {
  for (const std::string theirs : {"theirs", "after!"}) {
    objects_.put("k", "before");
    writes_ = 0;
    at_first_write([&](ServerAnswer& answer) {
      objects_.put("k", theirs);  // equal bytes are not ours either
      objects_.name_write("k", "another");
      answer.reset = true;
    });
    try {
      write("after!");
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_TRUE(is_in_doubt(error)) << error.what();
    }
    EXPECT_EQ(objects_.get("k"), theirs);
    EXPECT_EQ(objects_.uploads(), 0u);
  }
}

// Somebody on the way has sent the end of the upload twice, and this is the second answer.
TEST_P(LostAnswer, OfAnUploadThatIsGoneIsWhatIsThere) {
  if (GetParam() > 5) GTEST_SKIP() << "of uploads";
  at_first_write([](ServerAnswer& answer) { answer = {.status = 404}; });
  EXPECT_EQ(write("after!"), ObjectServer::etag("after!"));
  writes_ = 0;
  store_->set("k", bytes_of("without a condition"));
  EXPECT_EQ(objects_.get("k"), "without a condition");
  writes_ = 0;
  at_first_write([&](ServerAnswer& answer) {
    objects_.put("k", "before");
    objects_.name_write("k", "another");
    answer = {.status = 404};
  });
  EXPECT_EQ(code_of([&] { write("after!"); }), ErrorCode::io);
  EXPECT_EQ(objects_.get("k"), "before");
}

TEST_P(LostAnswer, HidesNoConflict) {
  objects_.put("k", "theirs");
  EXPECT_EQ(code_of([&] { write("after!"); }), ErrorCode::conflict);
  EXPECT_EQ(objects_.get("k"), "theirs");
}

INSTANTIATE_TEST_SUITE_P(WholeAndInParts, LostAnswer, testing::Values(1 << 20, 4));

}  // namespace
}  // namespace headrace
