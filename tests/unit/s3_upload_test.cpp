// The end of an upload in parts, which S3 answers before it knows what comes of it.

#include <gtest/gtest.h>

#include <string>

#include "cloud_kit.h"
#include "conformance/error_code.h"
#include "headrace/error.h"
#include "store/cloud/s3.h"
#include "store/http/driver.h"

namespace headrace {
namespace {

using kit::answer;
using kit::Asked;

// A bucket of one object.
class UploadServer {
 public:
  // What of its ends is carried out, and answered.
  std::function<bool(int)> carries_out = [](int) { return true; };
  std::function<std::string(int)> says = [](int) { return ""; };
  int ends = 0;
  int aborts = 0;
  bool exists = false;

  HttpResponse serve(const Asked& asked) {
    if (asked.method == "POST" && asked.url.ends_with("?uploads=")) {
      name_ = asked.headers.at("x-amz-meta-headrace-write");
      return answer(200, "<R><UploadId>u</UploadId></R>");
    }
    if (asked.method == "PUT") return answer(200, "", {{"ETag", "\"part\""}});
    if (asked.method == "DELETE") {
      ++aborts;
      return answer(204, "");
    }
    if (asked.method == "HEAD") {
      if (!exists) return answer(404, "");
      return answer(200, "", {{"ETag", "\"whole-5\""}, {"x-amz-meta-headrace-write", name_}});
    }
    const int number = ++ends;
    if (exists) return answer(404, "<Error><Code>NoSuchUpload</Code></Error>");
    exists = carries_out(number);
    return answer(200, says(number), {{"Content-Type", "application/xml"}});
  }

 private:
  std::string name_;
};

class S3Upload : public testing::TestWithParam<WriteCondition::Kind> {
 protected:
  std::string write() {
    const auto client =
        std::make_shared<kit::FunctionClient>([this](const Asked& a) { return server_.serve(a); });
    S3Options options;
    options.bucket = "bucket";
    options.region = "us-east-1";
    options.client = client;
    const auto store = make_http_driver(make_s3_protocol(options), client, HttpAccess::read_write);
    const std::string bytes((std::size_t{64} << 20) + 1, 'x');
    const ConstBytes parts = bytes_of(bytes);
    return store->set_if("k", {&parts, 1}, {.kind = GetParam()});
  }

  UploadServer server_;
};

constexpr char kResult[] =
    "<?xml version=\"1.0\"?>\n  <CompleteMultipartUploadResult xmlns=\"http://s3.amazonaws.com/"
    "doc/2006-03-01/\"><ETag>&quot;whole-5&quot;</ETag></CompleteMultipartUploadResult>";
constexpr char kError[] = "  <Error><Code>InternalError</Code><Message>Again</Message></Error>";

TEST_P(S3Upload, IsDoneWhereItsResultCame) {
  server_.says = [](int) { return kResult; };
  write();
  EXPECT_EQ(server_.ends, 1);
  EXPECT_EQ(server_.aborts, 0);
}

TEST_P(S3Upload, IsLookedForWhereNoResultCame) {
  for (const std::string said : {"", " ", kError, "<html>", "not XML"}) {
    server_ = {};
    server_.says = [&](int) { return said; };
    EXPECT_EQ(write(), "\"whole-5\"") << said;
    EXPECT_EQ(server_.ends, 1) << said;
    EXPECT_EQ(server_.aborts, 0) << said;
  }
}

TEST_P(S3Upload, IsEndedAgainWhereItIsNotThere) {
  for (const std::string said : {"", kError}) {
    server_ = {};
    server_.carries_out = [](int number) { return number == 3; };
    server_.says = [&](int number) { return number == 3 ? kResult : said; };
    write();
    EXPECT_TRUE(server_.exists);
    EXPECT_EQ(server_.ends, 3) << said;
    EXPECT_EQ(server_.aborts, 0) << said;
  }
}

TEST_P(S3Upload, FailsWhereItIsNeverThere) {
  for (const std::string said : {"", kError}) {
    server_ = {};
    server_.carries_out = [](int) { return false; };
    server_.says = [&](int) { return said; };
    std::string message;
    EXPECT_EQ(code_of([&] { write(); }, &message), ErrorCode::io) << said;
    EXPECT_NE(message.find("the end of an upload"), std::string::npos) << message;
    EXPECT_EQ(message.find("InternalError") != std::string::npos, !said.empty()) << message;
    EXPECT_EQ(server_.aborts, 1) << said;
  }
}

// The first end was carried out late: the second finds no upload.
TEST_P(S3Upload, IsThereWhereItsUploadIsGone) {
  server_.carries_out = [](int) { return false; };
  server_.says = [&](int number) {
    if (number == 1) return std::string();
    server_.exists = true;
    return std::string(kError);
  };
  write();
  EXPECT_EQ(server_.ends, 2);
  EXPECT_EQ(server_.aborts, 0);
}

INSTANTIATE_TEST_SUITE_P(Conditions,
                         S3Upload,
                         testing::Values(WriteCondition::Kind::none,
                                         WriteCondition::Kind::missing));

}  // namespace
}  // namespace headrace
