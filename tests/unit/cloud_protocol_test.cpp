// What the protocols ask servers for, and what they make of their answers.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "store/cloud/azure.h"
#include "store/cloud/digest.h"
#include "store/cloud/gcs.h"
#include "store/cloud/s3.h"
#include "store/cloud/s3_xml.h"
#include "store/http/driver.h"
#include "store/http/write.h"
#include "tests/conformance/error_code.h"
#include "tests/unit/cloud_kit.h"

namespace headrace {
namespace {

using kit::answer;
using kit::Asked;
using kit::asked_of;
using kit::FunctionClient;

S3Options s3_options() {
  S3Options options;
  options.bucket = "bucket";
  options.prefix = "data/a.zarr";
  options.region = "eu-west-1";
  const AwsKeys keys{"AKID", "SECRETKEY", "SESSIONTOKEN"};
  options.credentials = std::make_shared<AwsCredentials>(
      [keys] { return AwsCredentials::Fetched{std::make_shared<const AwsKeys>(keys)}; });
  return options;
}

std::shared_ptr<ObjectProtocol> prepared(std::shared_ptr<ObjectProtocol> protocol) {
  protocol->prepare();
  return protocol;
}

TEST(S3Protocol, AddressesBucketsByHostAndByPath) {
  S3Options options = s3_options();
  const Asked host = asked_of(prepared(make_s3_protocol(options))->look_up("c/a=b d*+~%"));
  EXPECT_EQ(host.url,
            "https://bucket.s3.eu-west-1.amazonaws.com/data/a.zarr/c/a%3Db%20d%2A%2B~%25");
  EXPECT_EQ(host.method, "HEAD");
  EXPECT_NE(host.headers.at("authorization").find("/eu-west-1/s3/aws4_request"), std::string::npos);
  EXPECT_EQ(host.headers.at("x-amz-content-sha256"), "UNSIGNED-PAYLOAD");
  EXPECT_EQ(host.headers.at("x-amz-security-token"), "SESSIONTOKEN");

  options.addressing = S3Options::Addressing::path;
  options.endpoint = "http://127.0.0.1:9000";
  options.payload = S3Options::Payload::hashed;
  const Asked path = asked_of(prepared(make_s3_protocol(options))->look_up("k"));
  EXPECT_EQ(path.url, "http://127.0.0.1:9000/bucket/data/a.zarr/k");
  EXPECT_EQ(path.headers.at("x-amz-content-sha256"), hex(sha256("")));

  options.addressing = S3Options::Addressing::virtual_host;
  options.endpoint = "https://bucket.r2.example";  // has the bucket in front already
  EXPECT_EQ(asked_of(prepared(make_s3_protocol(options))->look_up("k")).url,
            "https://bucket.r2.example/data/a.zarr/k");
  options.endpoint = "https://r2.example";
  EXPECT_EQ(asked_of(prepared(make_s3_protocol(options))->look_up("k")).url,
            "https://bucket.r2.example/data/a.zarr/k");
  options.endpoint.clear();
  options.region = "cn-north-1";
  options.prefix.clear();
  EXPECT_EQ(asked_of(prepared(make_s3_protocol(options))->look_up("k")).url,
            "https://bucket.s3.cn-north-1.amazonaws.com.cn/k");
}

TEST(S3Protocol, AsksForRangesAndVersions) {
  S3Options options = s3_options();
  options.checksum = S3Options::Checksum::crc32c;
  options.requester_pays = true;
  const auto s3 = prepared(make_s3_protocol(options));
  const Asked range = asked_of(s3->read("k", Extent::range(5, 10), "\"e\""));
  EXPECT_EQ(range.headers.at("range"), "bytes=5-14");
  EXPECT_EQ(range.headers.at("if-match"), "\"e\"");
  EXPECT_EQ(range.headers.at("x-amz-request-payer"), "requester");
  EXPECT_FALSE(range.headers.contains("x-amz-checksum-mode"));
  EXPECT_EQ(asked_of(s3->read("k", Extent::suffix(8), "")).headers.at("range"), "bytes=-8");
  const Asked whole = asked_of(s3->read("k", Extent::whole(), ""));
  EXPECT_FALSE(whole.headers.contains("range"));
  EXPECT_EQ(whole.headers.at("x-amz-checksum-mode"), "ENABLED");
}

TEST(CloudProtocols, SetNoConditionThatNeverHolds) {
  const auto azure = make_azure_protocol({.account = "a", .container = "c"});
  for (const auto& protocol : {prepared(make_s3_protocol(s3_options())), azure}) {
    const auto headers = [&](const char* version) {
      return asked_of(protocol->read("k", Extent::whole(), version)).headers;
    };
    EXPECT_EQ(headers("\"e\"").at("if-match"), "\"e\"");
    EXPECT_FALSE(headers("W/\"e\"").contains("if-match"));
    EXPECT_FALSE(headers("").contains("if-match"));
  }
}

// Pages that name nothing are passed over, and those that name what the last one did; not for ever.
TEST(CloudProtocols, ListsEndWhereNothingNewIsNamed) {
  const auto list = [](int pages, const char* item) {
    const auto client = std::make_shared<FunctionClient>([&, at = 0](const Asked&) mutable {
      std::string text = "<EnumerationResults><Blobs>";
      text += item;
      text += "</Blobs><NextMarker>";
      if (++at < pages) text += std::to_string(at);
      return answer(200, text + "</NextMarker></EnumerationResults>");
    });
    const auto protocol = make_azure_protocol({.account = "a", .container = "c"});
    return make_http_driver(protocol, client, HttpAccess::read_only)->list_dir("");
  };
  constexpr char kFolder[] = "<BlobPrefix><Name>c/</Name></BlobPrefix>";
  EXPECT_TRUE(list(20'000, "").empty());
  EXPECT_EQ(list(20'000, kFolder).size(), 1U);
  for (const char* item : {"", kFolder}) {
    EXPECT_EQ(code_of([&] { list(1 << 30, item); }), ErrorCode::corrupt) << item;
  }
}

TEST(S3Protocol, WritesWithConditionsAndChecksums) {
  const std::string zeros(32, '\0');
  const ConstBytes parts[] = {bytes_of(zeros).first(3), bytes_of(zeros).subspan(3)};
  S3Options options = s3_options();
  options.checksum = S3Options::Checksum::crc32c;
  const auto s3 = prepared(make_s3_protocol(options));
  HttpRequest request = s3->put("k", parts, {});
  EXPECT_TRUE(request.repeatable);
  const Asked put = asked_of(std::move(request));
  EXPECT_EQ(put.method, "PUT");
  EXPECT_EQ(put.body, zeros);
  EXPECT_EQ(put.headers.at("x-amz-checksum-crc32c"), "ipE2qg==");
  request = s3->put("k", parts, {WriteCondition::Kind::missing, ""});
  EXPECT_FALSE(request.repeatable);
  EXPECT_EQ(asked_of(std::move(request)).headers.at("if-none-match"), "*");
  EXPECT_EQ(asked_of(s3->put("k", parts, {WriteCondition::Kind::version, "\"v\""}))
                .headers.at("if-match"),
            "\"v\"");
  options.checksum = S3Options::Checksum::md5;
  EXPECT_EQ(
      asked_of(prepared(make_s3_protocol(options))->put("k", parts, {})).headers.at("content-md5"),
      base64(md5(parts)));
}

TEST(S3Protocol, WritesInParts) {
  S3Options options = s3_options();
  options.checksum = S3Options::Checksum::crc32c;
  const auto s3 = prepared(make_s3_protocol(options));
  const Asked begin = asked_of(s3->begin_upload("k"));
  EXPECT_EQ(begin.method, "POST");
  EXPECT_TRUE(begin.url.ends_with("/k?uploads="));
  EXPECT_EQ(begin.headers.at("x-amz-checksum-algorithm"), "CRC32C");
  EXPECT_EQ(s3->upload_of(answer(200, "<R><UploadId>u/1=</UploadId></R>")), "u/1=");
  const ConstBytes part = bytes_of("part");
  const Asked put = asked_of(s3->put_part("k", "u/1=", 2, {&part, 1}));
  EXPECT_TRUE(put.url.ends_with("/k?partNumber=2&uploadId=u%2F1%3D"));
  EXPECT_EQ(s3->part_of(answer(200, "", {{"ETag", "\"e\""}, {"x-amz-checksum-crc32c", "A=="}})),
            "\"e\" A==");
  EXPECT_EQ(code_of([&] { s3->part_of(answer(200, "")); }), ErrorCode::corrupt);
  const std::string names[] = {"\"e\" A=="};
  HttpRequest request = s3->finish_upload("k", "u/1=", names, {WriteCondition::Kind::missing, ""});
  EXPECT_FALSE(request.repeatable);
  const Asked finish = asked_of(std::move(request));
  EXPECT_EQ(finish.headers.at("if-none-match"), "*");
  EXPECT_EQ(finish.body, upload_parts_xml(names));
  EXPECT_EQ(finish.headers.at("x-amz-content-sha256"), hex(sha256(finish.body)));
  EXPECT_EQ(asked_of(s3->abort_upload("k", "u/1=")).method, "DELETE");
  // A success that is an error in words, whatever it is said to be.
  const std::string blanks(5000, ' ');
  for (const std::string& before : {std::string("<?xml?>\n"), "\n" + blanks + "<?xml?>", blanks}) {
    for (const char* type :
         {"application/xml", "application/xml; charset=utf-8", "", "text/html"}) {
      const std::string body = before + "<Error><Code>InternalError</Code></Error>";
      EXPECT_EQ(code_of([&] {
                  s3->check_answer(answer(200, body, {{"Content-Type", type}}));
                }),
                ErrorCode::io)
          << type;
      s3->check_answer(answer(200, body, {{"Content-Type", "application/octet-stream"}}));
    }
  }
  s3->check_answer(answer(200, "<CompleteMultipartUploadResult/>"));
  s3->check_answer(answer(200, "<Errors/>"));
}

TEST(S3Protocol, ErasesOneAndSeveral) {
  const auto s3 = prepared(make_s3_protocol(s3_options()));
  const std::string keys[] = {"a", "b&"};
  EXPECT_EQ(asked_of(s3->erase({keys, 1})).method, "DELETE");
  const Asked several = asked_of(s3->erase(keys));
  EXPECT_EQ(several.method, "POST");
  EXPECT_EQ(several.url, "https://bucket.s3.eu-west-1.amazonaws.com/?delete=");
  const ConstBytes body = bytes_of(several.body);
  EXPECT_EQ(several.headers.at("content-md5"), base64(md5({&body, 1})));
  EXPECT_NE(several.body.find("<Key>data/a.zarr/b&amp;</Key>"), std::string::npos);
  s3->check_erased(answer(204, ""));
  s3->check_erased(answer(200, "<DeleteResult></DeleteResult>"));
  std::string message;
  EXPECT_EQ(code_of(
                [&] {
                  s3->check_erased(answer(200,
                                          "<DeleteResult><Error><Key>data/a.zarr/a</Key><Code>"
                                          "AccessDenied</Code></Error></DeleteResult>"));
                },
                &message),
            ErrorCode::permission_denied);
  EXPECT_NE(message.find("data/a.zarr/a"), std::string::npos);
  const auto failed = [](const std::string& key, const std::string& code) {
    return "<Error><Key>" + key + "</Key><Code>" + code + "</Code></Error>";
  };
  s3->check_erased(answer(200, "<DeleteResult>" + failed("a", "NoSuchKey") + "</DeleteResult>"));
  EXPECT_EQ(code_of([&] {
              s3->check_erased(answer(200,
                                      "<DeleteResult>" + failed("a", "AccessDenied") +
                                          failed("b", "NoSuchKey") + "</DeleteResult>"));
            }),
            ErrorCode::permission_denied);
  // Nobody says that anything was erased.
  for (const char* page : {"<html>please log in<br></html>", "please log in", "<DeleteResult>"}) {
    EXPECT_EQ(code_of([&] { s3->check_erased(answer(200, page)); }), ErrorCode::corrupt) << page;
  }
  EXPECT_EQ(code_of([&] { s3->check_erased(answer(200, failed("", "SlowDown"))); }), ErrorCode::io);
}

// Nothing that is no word on the objects is one that they are gone.
TEST(S3Protocol, ErasesOneByOneWhereNothingIsSaidOfSeveral) {
  std::set<std::string> objects;
  std::function<HttpResponse()> of_several;
  const auto client = std::make_shared<FunctionClient>([&](const Asked& asked) {
    if (asked.method == "POST") return of_several();
    objects.erase(asked.url.substr(asked.url.rfind('/') + 1));
    return answer(204, "");
  });
  const auto protocol = prepared(make_s3_protocol(s3_options()));
  const std::vector<std::string> keys = {"a", "b", "c"};
  const auto erase = [&] {
    objects = {"a", "b", "c"};
    erase_objects(*protocol, *client, keys);
  };
  of_several = [] { return answer(200, " \n"); };
  erase();
  EXPECT_TRUE(objects.empty());
  of_several = [] { return answer(200, "<DeleteResult/>"); };
  erase();
  EXPECT_EQ(objects.size(), 3u);
  of_several = [] { return answer(404, "<Error><Code>NoSuchKey</Code></Error>"); };
  EXPECT_THROW(erase(), Error);
  of_several = [] { return answer(404, "", {{"x-amz-request-id", "1"}}); };
  EXPECT_THROW(erase(), Error);
}

TEST(CloudProtocols, AMissingBucketIsNoMissingObject) {
  const std::string gone = "<Error><Code>NoSuchBucket</Code></Error>";
  const std::string missing = "<Error><Code>NoSuchKey</Code></Error>";
  for (const auto& protocol :
       {prepared(make_s3_protocol(s3_options())), prepared(make_gcs_protocol({.bucket = "b"}))}) {
    const auto is_missing = [&](const char* method, const HttpResponse& response) {
      HttpRequest asked;
      asked.method = method;
      return protocol->is_missing_object(asked, response);
    };
    EXPECT_TRUE(is_missing("GET", answer(404, missing)));
    EXPECT_TRUE(is_missing("HEAD", answer(404, "")));
    EXPECT_TRUE(is_missing("GET", answer(404, "", {{"X-Amz-Request-Id", "1"}})));
    EXPECT_TRUE(is_missing("GET", answer(404, "", {{"x-goog-hash", "1"}})));
    HttpResponse cut = answer(404, "", {{"X-Amz-Request-Id", "1"}});
    cut.cut_short = true;  // it may have been another bucket's
    EXPECT_FALSE(is_missing("GET", cut));
    EXPECT_FALSE(is_missing("GET", answer(404, gone)));
    const std::string version = "<Error><Code>NoSuchVersion</Code></Error>";
    EXPECT_FALSE(is_missing("GET", answer(404, version)));
    EXPECT_TRUE(is_missing("DELETE", answer(404, version)));
    for (const char* code : {"", "NoSuchAccessPoint", "NoSuchTenant", "MethodNotAllowed"}) {
      const std::string document = std::string("<Error><Code>") + code + "</Code></Error>";
      EXPECT_FALSE(is_missing("GET", answer(404, document, {{"x-amz-request-id", "1"}}))) << code;
      HttpRequest asked;
      const Error error = protocol->error_of(asked, answer(404, document));
      EXPECT_EQ(error.code() == ErrorCode::not_found, document.find("NoSuch") != document.npos);
    }
    // What stands in between has nothing to say about objects.
    for (const char* page :
         {"", "default backend - 404", "<html>404 Not Found</html>", "404 page not found\n"}) {
      EXPECT_FALSE(is_missing("GET", answer(404, page))) << page;
      EXPECT_FALSE(is_missing("DELETE", answer(404, page))) << page;
    }
  }
  const auto azure = make_azure_protocol({.account = "a", .container = "c"});
  EXPECT_TRUE(azure->is_missing_object({}, answer(404, "", {{"x-ms-error-code", "BlobNotFound"}})));
  for (const char* code : {"ContainerNotFound", "ResourceNotFound", "FeatureVersionMismatch"}) {
    EXPECT_FALSE(azure->is_missing_object({}, answer(404, "", {{"x-ms-error-code", code}})))
        << code;
  }
  EXPECT_FALSE(azure->is_missing_object({}, answer(404, "default backend - 404")));

  // As a read meets it.
  const auto client = std::make_shared<FunctionClient>(
      [&](const Asked& asked) { return answer(404, asked.method == "HEAD" ? "" : gone); });
  const auto store =
      make_http_driver(prepared(make_s3_protocol(s3_options())), client, HttpAccess::read_only);
  Buffer buffer;
  std::string message;
  EXPECT_EQ(code_of([&] { store->get("k", buffer); }, &message), ErrorCode::not_found);
  EXPECT_NE(message.find("no such bucket"), std::string::npos) << message;
}

struct SaidError {
  int status;
  const char* code;
  std::vector<HttpHeader> headers;
  ErrorCode means;
  const char* says;
};

TEST(S3Protocol, SaysWhatToDoAboutAnError) {
  const auto s3 = prepared(make_s3_protocol(s3_options()));
  HttpRequest request = s3->read("k", Extent::whole(), "");
  const SaidError errors[] = {
      {301,
       "PermanentRedirect",
       {{"x-amz-bucket-region", "us-west-2"}},
       ErrorCode::io,
       "region=\"us-west-2\""},
      {400,
       "AuthorizationHeaderMalformed",
       {{"x-amz-bucket-region", "us-west-2"}},
       ErrorCode::io,
       "region=\"us-west-2\""},
      {403,
       "RequestTimeTooSkewed",
       {{"Date", "Mon, 23 Nov 2026 07:00:00 GMT"}},
       ErrorCode::permission_denied,
       "clock"},
      {400, "ExpiredToken", {}, ErrorCode::permission_denied, "expired"},
      {403, "InvalidAccessKeyId", {}, ErrorCode::permission_denied, "endpoint"},
      {403, "SignatureDoesNotMatch", {}, ErrorCode::permission_denied, "secret key"},
      {403, "AccessDenied", {}, ErrorCode::permission_denied, "do not allow"},
      {404, "NoSuchBucket", {}, ErrorCode::not_found, "no such bucket"},
      {412, "PreconditionFailed", {}, ErrorCode::conflict, "another writer"},
      {409, "ConditionalRequestConflict", {}, ErrorCode::conflict, "another writer"},
      {503, "SlowDown", {}, ErrorCode::io, "503 SlowDown"},
      {501, "NotImplemented", {}, ErrorCode::unsupported, "does not know"},
  };
  for (const SaidError& given : errors) {
    SCOPED_TRACE(given.code);
    // A server that says back what it was sent.
    const HttpResponse response =
        answer(given.status,
               "<Error><Code>" + std::string(given.code) +
                   "</Code><Message>SECRETKEY SESSIONTOKEN</Message></Error>",
               given.headers);
    const Error error = s3->error_of(request, response);
    const std::string message = error.what();
    EXPECT_EQ(error.code(), given.means) << message;
    EXPECT_NE(message.find(given.says), std::string::npos) << message;
    EXPECT_NE(message.find("data/a.zarr/k"), std::string::npos) << message;
    EXPECT_EQ(message.find("SECRET"), std::string::npos) << message;
    EXPECT_EQ(message.find("SESSION"), std::string::npos) << message;
  }
  S3Options anonymous = s3_options();
  anonymous.credentials = nullptr;
  EXPECT_NE(
      std::string(prepared(make_s3_protocol(anonymous))->error_of(request, answer(403, "")).what())
          .find("not public"),
      std::string::npos);
}

// Of what was revoked, or ends before its time.
TEST(CloudProtocols, FetchCredentialsAnewThatAServerTakesForEnded) {
  int fetches = 0;
  const auto token = [&] {
    return Tokens::Fetched{std::make_shared<const std::string>(std::to_string(++fetches))};
  };
  const auto s3 = [&] {
    S3Options options = s3_options();
    options.credentials = std::make_shared<AwsCredentials>([&] {
      const AwsKeys keys{"AK" + std::to_string(++fetches), "S", "T"};
      return AwsCredentials::Fetched{std::make_shared<const AwsKeys>(keys)};
    });
    return make_s3_protocol(options);
  };
  struct Case {
    std::shared_ptr<ObjectProtocol> protocol;
    int status;
    const char* code;
  };
  const Case cases[] = {
      {s3(), 400, "ExpiredToken"},
      {s3(), 403, "InvalidAccessKeyId"},
      {make_gcs_protocol({.bucket = "b", .tokens = std::make_shared<Tokens>(token)}), 401, ""},
      {make_azure_protocol({.account = "a",
                            .container = "c",
                            .credentials = {.tokens = std::make_shared<Tokens>(token)}}),
       401,
       "InvalidAuthenticationInfo"},
  };
  for (const auto& [protocol, status, code] : cases) {
    fetches = 0;
    const auto fail = [&](int answered, const std::string& said) {
      const HttpRequest request = protocol->read("k", Extent::whole(), "");
      const std::string body = "<Error><Code>" + said + "</Code></Error>";
      EXPECT_NE(protocol->error_of(request, answer(answered, body)).code(), ErrorCode::conflict);
    };
    protocol->prepare();
    fail(403, "AccessDenied");
    fail(503, "SlowDown");
    protocol->prepare();
    EXPECT_EQ(fetches, 1) << code;
    fail(status, code);
    protocol->prepare();
    EXPECT_EQ(fetches, 2) << code;
    const std::string sent =
        asked_of(protocol->read("k", Extent::whole(), "")).headers.at("authorization");
    EXPECT_TRUE(sent.starts_with("Bearer 2") || sent.find("AK2/") != sent.npos) << sent;
    protocol->prepare();
    EXPECT_EQ(fetches, 2) << code;
  }
}

TEST(S3Protocol, AsksAwsForARegionThatNobodySaid) {
  S3Options options = s3_options();
  options.region.clear();
  std::string region = "ap-south-1";
  const auto client = std::make_shared<FunctionClient>([&](const Asked&) {
    return region.empty() ? answer(404, "") : answer(403, "", {{"x-amz-bucket-region", region}});
  });
  options.client = client;
  const auto s3 = prepared(make_s3_protocol(options));
  s3->prepare();
  ASSERT_EQ(client->all().size(), 1U);
  EXPECT_EQ(client->all()[0].url, "https://bucket.s3.amazonaws.com/");
  EXPECT_FALSE(client->all()[0].headers.contains("authorization"));
  const Asked read = asked_of(s3->look_up("k"));
  EXPECT_EQ(read.url, "https://bucket.s3.ap-south-1.amazonaws.com/data/a.zarr/k");
  EXPECT_NE(read.headers.at("authorization").find("/ap-south-1/s3/"), std::string::npos);
  region.clear();
  EXPECT_EQ(code_of([&] { make_s3_protocol(options)->prepare(); }), ErrorCode::not_found);
}

TEST(S3Protocol, IsTheSamePlaceWhateverTheRegionAndHasNoSecrets) {
  S3Options options = s3_options();
  const auto one = make_s3_protocol(options);
  options.region = "us-east-1";
  const auto other = make_s3_protocol(options);
  EXPECT_EQ(one->identity(), other->identity());
  EXPECT_EQ(one->url(), "s3://bucket/data/a.zarr");
  EXPECT_EQ(one->identity().find("SECRET"), std::string::npos);
  options.endpoint = "http://127.0.0.1:9000";
  EXPECT_NE(make_s3_protocol(options)->identity(), one->identity());
}

TEST(GcsProtocol, SendsTokensGenerationsAndChecksums) {
  GcsOptions options;
  options.bucket = "b";
  options.prefix = "p";
  options.tokens = fixed_token("TOKEN");
  const auto gcs = prepared(make_gcs_protocol(options));
  const Asked read = asked_of(gcs->read("a=b", Extent::suffix(4), "17"));
  EXPECT_EQ(read.url, "https://storage.googleapis.com/b/p/a%3Db");
  EXPECT_EQ(read.headers.at("authorization"), "Bearer TOKEN");
  EXPECT_EQ(read.headers.at("x-goog-if-generation-match"), "17");
  // Of references that know an ETag.
  const Asked by_etag = asked_of(gcs->read("a", Extent::whole(), "\"e1\""));
  EXPECT_EQ(by_etag.headers.at("if-match"), "\"e1\"");
  EXPECT_FALSE(by_etag.headers.contains("x-goog-if-generation-match"));
  const ConstBytes part = bytes_of("x");
  EXPECT_EQ(asked_of(gcs->put("k", {&part, 1}, {WriteCondition::Kind::missing, ""}))
                .headers.at("x-goog-if-generation-match"),
            "0");
  EXPECT_EQ(asked_of(gcs->put("k", {&part, 1}, {})).headers.at("x-goog-hash"),
            "crc32c=" + base64(crc32c_bytes({&part, 1})));
  EXPECT_EQ(gcs->version_of(answer(200, "", {{"X-Goog-Generation", "18"}})), "18");
  const std::string message = gcs->error_of(HttpRequest{.url = "https://h/b/k"},
                                            answer(401, "<Error><Message>TOKEN</Message></Error>"))
                                  .what();
  EXPECT_EQ(message.find("TOKEN"), std::string::npos) << message;
  EXPECT_NE(message.find("expired"), std::string::npos) << message;

  GcsOptions hmac;
  hmac.bucket = "b";
  hmac.hmac = AwsKeys{"GOOG1", "S", ""};
  const Asked keyed = asked_of(prepared(make_gcs_protocol(hmac))->look_up("k"));
  EXPECT_TRUE(keyed.headers.at("authorization").starts_with("GOOG4-HMAC-SHA256 Credential=GOOG1/"));
  EXPECT_NE(keyed.headers.at("authorization").find("/auto/storage/goog4_request"),
            std::string::npos);
  EXPECT_FALSE(keyed.headers.contains("x-amz-date"));
}

AzureOptions azure_options() {
  AzureOptions options;
  options.account = "acc";
  options.container = "con";
  options.prefix = "p";
  options.endpoint = "https://acc.blob.core.windows.net";
  return options;
}

TEST(AzureProtocol, SendsWhatAzureWants) {
  AzureOptions options = azure_options();
  options.credentials.account_key = "key";
  const auto azure = prepared(make_azure_protocol(options));
  EXPECT_FALSE(azure->abilities().suffix_ranges);
  const ConstBytes part = bytes_of("x");
  const Asked put = asked_of(azure->put("a b", {&part, 1}, {WriteCondition::Kind::missing, ""}));
  EXPECT_EQ(put.url, "https://acc.blob.core.windows.net/con/p/a%20b");
  EXPECT_EQ(put.headers.at("x-ms-blob-type"), "BlockBlob");
  EXPECT_EQ(put.headers.at("if-none-match"), "*");
  EXPECT_TRUE(put.headers.at("authorization").starts_with("SharedKey acc:"));
  EXPECT_TRUE(azure->begin_upload("k").method.empty());
  const std::string upload = azure->upload_of({});
  EXPECT_NE(upload, azure->upload_of({}));
  const std::string url = asked_of(azure->put_part("k", upload, 12, {&part, 1})).url;
  const std::string ids[] = {"block", "block"};
  const std::string list = asked_of(azure->finish_upload("k", upload, ids, {})).body;
  EXPECT_NE(list.find("<Latest>" + base64(upload + "-000002") + "</Latest></BlockList>"),
            std::string::npos)
      << list;
  EXPECT_TRUE(url.ends_with("?comp=block&blockid=" +
                            uri_encode(base64(upload + "-000012"), Slash::encoded)));
  EXPECT_EQ(azure->url(), "abfss://con@acc.dfs.core.windows.net/p");
}

TEST(AzureProtocol, ShowsNoSharedAccessSignature) {
  AzureOptions options = azure_options();
  options.credentials.sas = "sv=1&sig=SECRET%3D";
  const auto azure = prepared(make_azure_protocol(options));
  const HttpRequest list = azure->list("a/", true, "m n");
  EXPECT_EQ(list.url,
            "https://acc.blob.core.windows.net/con?restype=container&comp=list&maxresults=5000&"
            "prefix=p%2Fa%2F&delimiter=%2F&marker=m%20n&sv=1&sig=SECRET%3D");
  const HttpRequest read = azure->look_up("k");
  EXPECT_EQ(read.url, "https://acc.blob.core.windows.net/con/p/k?sv=1&sig=SECRET%3D");
  const std::string message =
      azure->error_of(read, answer(403, "", {{"x-ms-error-code", "AuthenticationFailed"}})).what();
  EXPECT_EQ(message.find("SECRET"), std::string::npos) << message;
  EXPECT_NE(message.find("403 AuthenticationFailed"), std::string::npos) << message;
  EXPECT_EQ(azure->identity().find("SECRET"), std::string::npos);
}

TEST(AzureProtocol, ReadsLists) {
  const auto azure = make_azure_protocol(azure_options());
  const ListPage page = azure->page_of(answer(
      200,
      "\xef\xbb\xbf<?xml version=\"1.0\"?><EnumerationResults><Prefix>p/</Prefix><Blobs>"
      "<Blob><Name>p/a</Name><Properties><Etag>0x1</Etag><Content-Length>5</Content-Length>"
      "<Last-Modified>Mon, 23 Nov 2026 07:00:01 "
      "GMT</Last-Modified></Properties></Blob><BlobPrefix><Name>p/d/</Name></BlobPrefix>"
      "<Blob><Name Encoded=\"true\">p/b%01</Name><Properties><Content-Length>6</Content-Length>"
      "</Properties></Blob></Blobs><NextMarker>m</NextMarker></EnumerationResults>"));
  ASSERT_EQ(page.objects.size(), 2U);
  EXPECT_EQ(page.objects[0].key, "a");
  EXPECT_EQ(page.objects[0].version, "\"0x1\"");
  ASSERT_TRUE(page.objects[0].written);
  EXPECT_EQ(page.objects[0].written->earliest.time_since_epoch().count(), 1795417201'000'000'000);
  EXPECT_FALSE(page.objects[1].written);
  EXPECT_EQ(page.objects[1].key, "b\x01");
  EXPECT_EQ(page.objects[1].nbytes, 6U);
  EXPECT_EQ(page.prefixes, std::vector<std::string>{"d/"});
  EXPECT_EQ(page.next, "m");
  EXPECT_EQ(code_of([&] { azure->page_of(answer(200, "<html></html>")); }), ErrorCode::corrupt);
}

}  // namespace
}  // namespace headrace
