// Signatures that AWS publishes: its test suite (tests/golden/signatures), and the examples of S3
// at https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "store/cloud/digest.h"
#include "store/cloud/request.h"
#include "store/cloud/sigv4.h"

namespace headrace {
namespace {

SystemTime at(const char* text) {
  std::tm parts{};
  strptime(text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::chrono::system_clock::from_time_t(timegm(&parts));
}

std::string header_of(const HttpRequest& request, std::string_view name) {
  for (const HttpHeader& header : request.headers) {
    if (lower(header.name) == name) return header.value;
  }
  return "";
}

// "GET /a?b HTTP/1.1", headers, an empty line, the body.
HttpRequest parse_request(const std::string& text) {
  HttpRequest request;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  request.method = line.substr(0, first);
  std::string target = line.substr(first + 1, last - first - 1);
  while (std::getline(lines, line) && !line.empty()) {
    if (line.front() == ' ') {
      request.headers.back().value += "\n" + line;
      continue;
    }
    const std::size_t colon = line.find(':');
    request.headers.push_back({line.substr(0, colon), line.substr(colon + 1)});
  }
  std::string body;
  std::getline(lines, body, '\0');
  set_body(request, body);
  const std::size_t question = std::min(target.find('?'), target.size());
  request.url = "https://" + header_of(request, "host") +
                uri_encode_rest(target.substr(0, question), Slash::kept) + target.substr(question);
  return request;
}

TEST(SigV4Golden, IsThatOfTheTestSuite) {
  std::ifstream file(HEADRACE_SOURCE_DIR "/tests/golden/signatures/aws_v4.json");
  ASSERT_TRUE(file);
  const nlohmann::json suite = nlohmann::json::parse(file);
  ASSERT_EQ(suite["cases"].size(), 32U);
  for (const auto& given : suite["cases"]) {
    SCOPED_TRACE(given["name"]);
    HttpRequest request = parse_request(given["request"]);
    AwsKeys keys{given["access_key_id"], given["secret_access_key"], given["token"]};
    if (given["omit_session_token"]) keys.session_token.clear();
    const std::string hash = hex(sha256(request.body));
    sign_v4(request,
            keys,
            {kAwsSigning, given["region"], given["service"]},
            at(given["timestamp"].get<std::string>().c_str()),
            hash,
            given["sign_body"] ? ContentHeader::sent : ContentHeader::left_out);
    EXPECT_EQ(canonical_request(request, hash), given["canonical_request"].get<std::string>());
    const std::string authorization = header_of(request, "authorization");
    EXPECT_TRUE(authorization.ends_with("Signature=" + given["signature"].get<std::string>()))
        << authorization;
  }
}

struct S3Example {
  const char* method;
  const char* url;
  std::vector<HttpHeader> headers;
  const char* body;
  const char* signature;
};

TEST(SigV4Golden, IsThatOfTheExamplesOfS3) {
  const AwsKeys keys{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
  const S3Example examples[] = {
      {"GET",
       "https://examplebucket.s3.amazonaws.com/test.txt",
       {{"Range", "bytes=0-9"}},
       "",
       "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
      {"PUT",
       "https://examplebucket.s3.amazonaws.com/test%24file.text",
       {{"Date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
       "Welcome to Amazon S3.",
       "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
      {"GET",
       "https://examplebucket.s3.amazonaws.com/?lifecycle",
       {},
       "",
       "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
      {"GET",
       "https://examplebucket.s3.amazonaws.com/?prefix=J&max-keys=2",
       {},
       "",
       "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
  };
  for (const S3Example& example : examples) {
    SCOPED_TRACE(example.url);
    HttpRequest request;
    request.method = example.method;
    request.url = example.url;
    request.headers = example.headers;
    set_body(request, example.body);
    sign_v4(request,
            keys,
            {kAwsSigning, "us-east-1", "s3"},
            at("2013-05-24T00:00:00Z"),
            hex(sha256(request.body)));
    EXPECT_TRUE(header_of(request, "authorization").ends_with(example.signature))
        << canonical_request(request, hex(sha256(request.body)));
  }
}

TEST(SigV4, SignsAnAttemptAnewAsTheFirst) {
  HttpRequest request;
  request.url = "http://127.0.0.1:9000/bucket/a%3Db/c%20d%2A%2B~%25";
  const AwsKeys first{"ID", "secret", "token"};
  sign_v4(request, first, {}, at("2026-11-23T07:00:00Z"), kUnsignedPayload);
  const std::size_t headers = request.headers.size();
  const std::string before = header_of(request, "authorization");
  sign_v4(request, first, {}, at("2026-11-23T07:00:00Z"), kUnsignedPayload);
  EXPECT_EQ(header_of(request, "authorization"), before);
  EXPECT_EQ(request.headers.size(), headers);
  sign_v4(request, {"ID", "secret", ""}, {}, at("2026-11-23T07:00:01Z"), kUnsignedPayload);
  EXPECT_NE(header_of(request, "authorization"), before);
  EXPECT_EQ(header_of(request, "x-amz-security-token"), "");
}

TEST(SigV4, KeepsThePathAndWritesTheHostAsItIsSent) {
  HttpRequest request;
  request.url = "https://host.example:443/bucket//a%3Db/c%20d%2A%2B~%25?list-type=2&b=%2F&a";
  EXPECT_EQ(canonical_request(request, kUnsignedPayload),
            "GET\n/bucket//a%3Db/c%20d%2A%2B~%25\na=&b=%2F&list-type=2\nhost:host.example\n\nhost\n"
            "UNSIGNED-PAYLOAD");
  request.url = "http://host.example:8080";
  EXPECT_EQ(canonical_request(request, kUnsignedPayload),
            "GET\n/\n\nhost:host.example:8080\n\nhost\nUNSIGNED-PAYLOAD");
}

}  // namespace
}  // namespace headrace
