// URLs of object stores, and options by the names of fsspec and obstore.

#include <gtest/gtest.h>

#include "headrace/error.h"
#include "store/cloud/digest.h"
#include "store/cloud/open.h"
#include "tests/conformance/error_code.h"
#include "tests/unit/cloud_kit.h"

namespace headrace {
namespace {

using kit::Asked;
using kit::FunctionClient;
using kit::surroundings;

std::shared_ptr<FunctionClient> nobody() {
  return std::make_shared<FunctionClient>([](const Asked&) { return kit::no_answer(); });
}

TEST(CloudPlace, IsOfAllSchemes) {
  const CloudPlace s3 = parse_cloud_place("s3", "s3://bucket/a b/c%20d/");
  EXPECT_EQ(s3.bucket, "bucket");
  EXPECT_EQ(s3.prefix, "a b/c%20d");
  EXPECT_EQ(parse_cloud_place("gs", "gs://bucket").prefix, "");
  const CloudPlace azure =
      parse_cloud_place("abfss", "abfss://con@acc.dfs.core.windows.net/x.zarr");
  EXPECT_EQ(azure.bucket, "con");
  EXPECT_EQ(azure.account, "acc");
  EXPECT_EQ(azure.host, "acc.blob.core.windows.net");
  for (const char* bad :
       {"s3://", "s3:///a", "s3://b/../c", "s3://b/./c", "s3://b:1/c", "s3://../c"}) {
    EXPECT_EQ(code_of([&] { parse_cloud_place("s3", bad); }), ErrorCode::invalid_argument) << bad;
  }
  std::string message;
  EXPECT_EQ(code_of([] { parse_cloud_place("s3", "s3://KEY:SECRET@bucket/a"); }, &message),
            ErrorCode::invalid_argument);
  EXPECT_EQ(message.find("SECRET"), std::string::npos) << message;
}

S3Options s3_of(const StorageOptions& given, const kit::Variables& variables = {}) {
  OptionReader options(given, "s3://bucket/a");
  S3Options s3 = take_s3_options(
      parse_cloud_place("s3", "s3://bucket/a"), options, surroundings(variables, nobody()));
  options.finish("an S3");
  return s3;
}

std::string key_of(const S3Options& s3) {
  return s3.credentials ? s3.credentials->get()->access_key_id : "";
}

TEST(S3OptionNames, AreThoseOfFsspec) {
  const S3Options s3 =
      s3_of({{"key", "K"},
             {"secret", "S"},
             {"token", "T"},
             {"client_kwargs", R"({"endpoint_url": "http://localhost:1/", "region_name": "r"})"},
             {"config_kwargs", R"({"s3": {"addressing_style": "virtual"}})"},
             {"requester_pays", "true"},
             {"profile", "null"}});
  EXPECT_EQ(key_of(s3), "K");
  EXPECT_EQ(s3.endpoint, "http://localhost:1");
  EXPECT_EQ(s3.region, "r");
  EXPECT_EQ(s3.addressing, S3Options::Addressing::virtual_host);
  EXPECT_TRUE(s3.requester_pays);
  EXPECT_EQ(s3.payload, S3Options::Payload::hashed);  // nothing else protects it
  EXPECT_EQ(s3_of({{"anon", "true"}}).credentials, nullptr);
}

TEST(S3OptionNames, AreThoseOfObstore) {
  const S3Options s3 = s3_of({{"aws_access_key_id", "K"},
                              {"secret_access_key", "S"},
                              {"aws_session_token", "T"},
                              {"aws_region", "r"},
                              {"aws_endpoint", "https://e"},
                              {"checksum_algorithm", "SHA256"},
                              {"virtual_hosted_style_request", "false"}});
  EXPECT_EQ(key_of(s3), "K");
  EXPECT_EQ(s3.endpoint, "https://e");
  EXPECT_EQ(s3.checksum, S3Options::Checksum::sha256);
  EXPECT_EQ(s3.payload, S3Options::Payload::unhashed);
  EXPECT_EQ(s3.addressing, S3Options::Addressing::path);
  EXPECT_EQ(s3_of({{"skip_signature", "true"}}).credentials, nullptr);
}

TEST(S3OptionNames, ComeFromTheEnvironmentLast) {
  const kit::Variables variables{{"AWS_ACCESS_KEY_ID", "E"},
                                 {"AWS_SECRET_ACCESS_KEY", "e"},
                                 {"AWS_REGION", "er"},
                                 {"AWS_ENDPOINT_URL", "https://all"},
                                 {"AWS_ENDPOINT_URL_S3", "https://s3"}};
  const S3Options s3 = s3_of({}, variables);
  EXPECT_EQ(key_of(s3), "E");
  EXPECT_EQ(s3.region, "er");
  EXPECT_EQ(s3.endpoint, "https://s3");
  EXPECT_EQ(s3_of({{"region", "own"}}, variables).region, "own");
  const S3Options plain = s3_of({{"anon", "true"}});
  EXPECT_EQ(plain.endpoint, "");
  EXPECT_EQ(plain.region, "");
  EXPECT_EQ(plain.addressing, S3Options::Addressing::virtual_host);
  EXPECT_EQ(plain.checksum, S3Options::Checksum::crc32c);
}

TEST(S3OptionNames, ThatNobodyTookAreAnErrorThatNamesThem) {
  const auto refused = [](const StorageOptions& given, const char* says) {
    std::string message;
    EXPECT_EQ(code_of([&] { s3_of(given); }, &message), ErrorCode::invalid_argument);
    EXPECT_NE(message.find(says), std::string::npos) << message;
    EXPECT_EQ(message.find("SECRET"), std::string::npos) << message;
  };
  refused({{"anon", "true"}, {"kee", "SECRET"}}, "\"kee\"");
  refused({{"anon", "true"}, {"client_kwargs", R"({"certs": "SECRET"})"}}, "\"certs\"");
  refused({{"anon", "true"}, {"client_kwargs", "SECRET"}}, "client_kwargs");
  refused({{"secret", "SECRET"}}, "key and secret");
  refused({{"token", "SECRET"}}, "session token");
  refused({{"anon", "SECRET"}}, "anon");
  refused({{"key", "a"}, {"aws_access_key_id", "SECRET"}}, "one thing");
  refused({{"anon", "true"}, {"key", "SECRET"}, {"secret", "SECRET"}}, "anon");
  refused({{"anon", "true"}, {"endpoint_url", "https://u:SECRET@h"}}, "endpoint");
  refused({{"anon", "true"}, {"endpoint_url", "ftp://h"}}, "endpoint");
  refused({{"anon", "true"}, {"endpoint_url", "http://h"}, {"allow_http", "false"}}, "allow_http");
  refused({{"anon", "true"}, {"checksum_algorithm", "crc"}}, "checksum_algorithm");
}

GcsOptions gcs_of(const StorageOptions& given, const kit::Variables& variables = {}) {
  OptionReader options(given, "gs://bucket/a");
  GcsOptions gcs = take_gcs_options(
      parse_cloud_place("gs", "gs://bucket/a"), options, surroundings(variables, nobody()));
  options.finish("a Google Cloud");
  return gcs;
}

TEST(GcsOptionNames, AreThoseOfGcsfsAndObstore) {
  EXPECT_EQ(gcs_of({{"token", "anon"}}).tokens, nullptr);
  EXPECT_EQ(gcs_of({{"skip_signature", "true"}}).tokens, nullptr);
  EXPECT_EQ(*gcs_of({{"token", "ya29.x"}}).tokens->get(), "ya29.x");
  EXPECT_NE(gcs_of({{"token",
                     R"({"type":"authorized_user","client_id":"i","client_secret":"s",)"
                     R"("refresh_token":"r"})"}})
                .tokens,
            nullptr);
  const GcsOptions hmac = gcs_of({{"key", "K"}, {"secret", "S"}});
  EXPECT_EQ(hmac.hmac->access_key_id, "K");
  EXPECT_EQ(hmac.tokens, nullptr);
  const GcsOptions emulated = gcs_of({}, {{"STORAGE_EMULATOR_HOST", "localhost:4443"}});
  EXPECT_EQ(emulated.endpoint, "http://localhost:4443");
  EXPECT_EQ(emulated.tokens, nullptr);
  EXPECT_EQ(
      gcs_of({{"token", "anon"}, {"requester_pays", "true"}, {"project", "p"}}).billed_project,
      "p");
  EXPECT_EQ(
      gcs_of({}, {{"GS_ACCESS_KEY_ID", "K"}, {"GS_SECRET_ACCESS_KEY", "S"}}).hmac->access_key_id,
      "K");
  for (const StorageOptions& bad :
       {StorageOptions{{"token", "anon"}, {"key", "k"}, {"secret", "s"}},
        StorageOptions{{"key", "k"}},
        StorageOptions{{"token", "browser"}},
        StorageOptions{{"token", "anon"}, {"requester_pays", "true"}},
        StorageOptions{{"token", "anon"}, {"tokens", "x"}}}) {
    EXPECT_EQ(code_of([&] { gcs_of(bad); }), ErrorCode::invalid_argument);
  }
  EXPECT_EQ(code_of([] {
              gcs_of({{"service_account", "/nowhere/k.json"}});
            }),
            ErrorCode::not_found);
}

AzureOptions azure_of(const StorageOptions& given,
                      const std::string& url = "az://con/a",
                      const kit::Variables& variables = {}) {
  OptionReader options(given, url);
  AzureOptions azure = take_azure_options(parse_cloud_place(url.substr(0, url.find(':')), url),
                                          options,
                                          surroundings(variables, nobody()));
  options.finish("an Azure");
  return azure;
}

TEST(AzureOptionNames, AreThoseOfAdlfsAndObstore) {
  const AzureOptions key = azure_of({{"account_name", "acc"}, {"account_key", "a2V5"}});
  EXPECT_EQ(key.endpoint, "https://acc.blob.core.windows.net");
  EXPECT_EQ(key.credentials.account_key, "key");
  EXPECT_EQ(azure_of({{"azure_storage_account_name", "acc"}, {"sas_token", "?sv=1&sig=x"}})
                .credentials.sas,
            "sv=1&sig=x");
  const AzureOptions by_string = azure_of({{"connection_string",
                                            "DefaultEndpointsProtocol=https;AccountName=acc;"
                                            "AccountKey=a2V5;EndpointSuffix=c.example"}});
  EXPECT_EQ(by_string.endpoint, "https://acc.blob.c.example");
  EXPECT_EQ(by_string.account, "acc");
  EXPECT_EQ(by_string.credentials.account_key, "key");
  EXPECT_EQ(azure_of({{"use_emulator", "true"}}).endpoint,
            "http://127.0.0.1:10000/devstoreaccount1");
  const AzureOptions anonymous =
      azure_of({{"anon", "true"}}, "abfs://con@acc.dfs.core.usgovcloudapi.net/a");
  EXPECT_EQ(anonymous.endpoint, "https://acc.blob.core.usgovcloudapi.net");
  EXPECT_EQ(anonymous.credentials.tokens, nullptr);
  EXPECT_EQ(*azure_of({{"account_name", "a"}, {"bearer_token", "t"}}).credentials.tokens->get(),
            "t");
  EXPECT_EQ(azure_of({},
                     "az://con/a",
                     {{"AZURE_STORAGE_ACCOUNT_NAME", "e"}, {"AZURE_STORAGE_ACCOUNT_KEY", "a2V5"}})
                .credentials.account_key,
            "key");
  // A key of the environment does not go with a signature that was given.
  EXPECT_EQ(azure_of({{"account_name", "a"}, {"sas_token", "s"}},
                     "az://con/a",
                     {{"AZURE_STORAGE_ACCOUNT_KEY", "a2V5"}})
                .credentials.account_key,
            "");
  // Nor does anything of it go to a host that is not Azure's; what was given does.
  const kit::Variables variables{{"AZURE_STORAGE_SAS_TOKEN", "s"}};
  EXPECT_EQ(azure_of({}, "abfss://con@acc.DFS.core.windows.net/a", variables).credentials.sas, "s");
  for (const char* host : {"acc.dfs.example", "core.windows.net.example", "acc.windows.net:443"}) {
    const std::string url = std::string("abfss://con@") + host + "/a";
    const AzureOptions elsewhere = azure_of({}, url, variables);
    EXPECT_EQ(elsewhere.credentials.sas, "") << host;
    EXPECT_EQ(elsewhere.credentials.tokens, nullptr) << host;
    EXPECT_EQ(azure_of({{"sas_token", "own"}}, url, variables).credentials.sas, "own") << host;
  }
  for (const char* url : {"abfss://con@acc.example#.core.windows.net/a",
                          "abfss://con@acc.example?.core.windows.net/a",
                          "abfss://con@/a"}) {
    EXPECT_EQ(code_of([&] { azure_of({}, url, variables); }), ErrorCode::invalid_argument) << url;
  }
  for (const StorageOptions& bad :
       {StorageOptions{{"anon", "true"}},
        StorageOptions{{"account_name", "a"}, {"anon", "true"}, {"sas_token", "s"}},
        StorageOptions{{"account_name", "a"}, {"account_key", "no base64"}},
        StorageOptions{{"account_name", "a"}, {"client_secret", "s"}},
        StorageOptions{{"account_name", "a"}, {"anon", "true"}, {"acount_key", "s"}}}) {
    EXPECT_EQ(code_of([&] { azure_of(bad); }), ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace headrace
