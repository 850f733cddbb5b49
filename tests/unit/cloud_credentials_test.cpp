#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "headrace/error.h"
#include "store/cloud/aws_credentials.h"
#include "store/cloud/aws_profile.h"
#include "store/cloud/azure_credentials.h"
#include "store/cloud/digest.h"
#include "store/cloud/gcs_credentials.h"
#include "tests/conformance/error_code.h"
#include "tests/conformance/temp_folder.h"
#include "tests/unit/cloud_kit.h"

namespace headrace {
namespace {

using kit::answer;
using kit::Asked;
using kit::FunctionClient;
using kit::surroundings;
using std::chrono::system_clock;
using test::TempFolder;

std::shared_ptr<FunctionClient> nobody() {
  return std::make_shared<FunctionClient>([](const Asked&) { return kit::no_answer(); });
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string in_seconds(int seconds) {
  const std::string text = compact_time(system_clock::now() + std::chrono::seconds(seconds));
  return text.substr(0, 4) + "-" + text.substr(4, 2) + "-" + text.substr(6, 5) + ":" +
         text.substr(11, 2) + ":" + text.substr(13, 3);
}

TEST(Renewed, IsFetchedOnceByManyThreads) {
  std::atomic<int> fetches{0};
  Renewed<int> number([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return Renewed<int>::Fetched{std::make_shared<const int>(++fetches),
                                 system_clock::now() + std::chrono::hours(1)};
  });
  EXPECT_EQ(number.latest(), nullptr);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { EXPECT_EQ(*number.get(), 1); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*number.latest(), 1);
  EXPECT_EQ(fetches, 1);
}

TEST(Renewed, AFailureIsThatOfAllWhoWaitedForIt) {
  std::atomic<int> fetches{0};
  Renewed<int> number([&]() -> Renewed<int>::Fetched {
    ++fetches;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    throw Error(ErrorCode::io, "nobody answers");
  });
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(code_of([&] { number.get(); }), ErrorCode::io); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(3000));
  EXPECT_LT(fetches, 15);
  const int before = fetches;
  EXPECT_EQ(code_of([&] { number.get(); }), ErrorCode::io);  // who comes later tries it
  EXPECT_EQ(fetches, before + 1);
}

TEST(Credentials, EndAtTimesAsServersWriteThem) {
  const auto at = parse_time("2026-11-23T07:00:00Z");
  EXPECT_EQ(system_clock::to_time_t(at), 1795417200);
  EXPECT_EQ(parse_time("2026-11-23T07:00:00.123456Z"), at);
  EXPECT_EQ(parse_time("2026-11-23T07:00:00"), at);
  EXPECT_EQ(parse_time("2026-11-23T09:30:00+02:30"), at);
  EXPECT_EQ(parse_time("2026-11-23T07:00:00+0000"), at);
  EXPECT_EQ(parse_time("2026-11-23T01:00:00.5-06:00"), at);
  // Behind the end of a clock of nanoseconds; libc++'s, of microseconds, gets there.
  EXPECT_GT(parse_time("9999-12-31T23:59:59Z"), parse_time("2262-04-11T23:47:15Z"));
  EXPECT_EQ(time_at(INT64_MAX), system_clock::time_point::max());
  EXPECT_LT(time_at(INT64_MIN), system_clock::now());
  for (const char* text :
       {"", "tomorrow", "2026-11-23", "2026-11-23T07:00:00 or so", "2026-11-23T07:00:00+"}) {
    EXPECT_EQ(code_of([&] { parse_time(text); }), ErrorCode::corrupt) << text;
  }
  const auto token = [](const std::string& rest) {
    return token_of(answer(200, R"({"access_token": "t", )" + rest + "}"), "a server");
  };
  const auto ended = token(R"("expires_in": -9223372036854775808)").end;
  EXPECT_LE(ended, system_clock::now());
  EXPECT_GT(ended, system_clock::now() - std::chrono::minutes(1));
  EXPECT_EQ(token(R"("expires_on": "9223372036854775807")").end, system_clock::time_point::max());
}

TEST(Renewed, IsFetchedAnewBeforeItEndsAndKeepsWhatHoldsWhenThatFails) {
  int fetches = 0;
  bool works = true;
  Renewed<int> number([&] {
    ++fetches;
    if (!works) throw Error(ErrorCode::io, "down");
    return Renewed<int>::Fetched{std::make_shared<const int>(fetches),
                                 system_clock::now() + std::chrono::seconds(2)};
  });
  EXPECT_EQ(*number.get(), 1);
  EXPECT_EQ(*number.get(), 1);  // half of its time is not over
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  works = false;
  EXPECT_EQ(*number.get(), 1);
  EXPECT_EQ(fetches, 2);
  EXPECT_EQ(*number.get(), 1);  // not asked again at once
  EXPECT_EQ(fetches, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  EXPECT_EQ(code_of([&] { number.get(); }), ErrorCode::io);
  works = true;
  EXPECT_EQ(*number.get(), 4);
}

TEST(AwsCredentials, ComeFromOptionsBeforeTheEnvironmentBeforeFiles) {
  const TempFolder folder;
  write(folder.path() + "/credentials",
        "[default]\naws_access_key_id = FILE\naws_secret_access_key=s # comment\n"
        "[work]\naws_access_key_id=WORK\naws_secret_access_key=w;x\naws_session_token = t\n");
  write(folder.path() + "/config",
        "; comment\n[default]\nregion = eu-north-1\n[profile work]\n region=ignored\n"
        "s3 =\n  endpoint_url = http://nested\nendpoint_url = http://own\nregion=us-west-2\n");
  kit::Variables variables{{"AWS_SHARED_CREDENTIALS_FILE", folder.path() + "/credentials"},
                           {"AWS_CONFIG_FILE", folder.path() + "/config"}};
  const auto id = [&](const AwsCredentialOptions& options) {
    return make_aws_credentials(options, surroundings(variables, nobody()))->get()->access_key_id;
  };
  EXPECT_EQ(id({}), "FILE");
  const auto work =
      make_aws_credentials({std::nullopt, "work", ""}, surroundings(variables, nobody()))->get();
  EXPECT_EQ(work->access_key_id, "WORK");
  EXPECT_EQ(work->secret_access_key, "w;x");
  EXPECT_EQ(work->session_token, "t");
  EXPECT_EQ(profile_setting("work", "region", surroundings(variables, nobody())), "us-west-2");
  EXPECT_EQ(profile_setting("work", "endpoint_url", surroundings(variables, nobody())),
            "http://own");
  EXPECT_EQ(profile_setting("", "region", surroundings(variables, nobody())), "eu-north-1");
  EXPECT_EQ(profile_setting("none", "region", surroundings(variables, nobody())), std::nullopt);

  variables["AWS_PROFILE"] = "work";
  EXPECT_EQ(id({}), "WORK");
  variables["AWS_ACCESS_KEY_ID"] = "ENV";
  variables["AWS_SECRET_ACCESS_KEY"] = "e";
  EXPECT_EQ(id({}), "ENV");
  EXPECT_EQ(id({std::nullopt, "work", ""}), "WORK");  // asked for by name
  EXPECT_EQ(id({AwsKeys{"GIVEN", "g", ""}, "", ""}), "GIVEN");
  std::string message;
  EXPECT_EQ(code_of(
                [&] {
                  id({std::nullopt, "absent", ""});
                },
                &message),
            ErrorCode::permission_denied);
  EXPECT_NE(message.find("\"absent\""), std::string::npos);
}

TEST(AwsCredentials, OfAProcessNameTheWayRound) {
  const TempFolder folder;
  write(folder.path() + "/config", "[profile p]\nsso_session = x\n");
  std::string message;
  EXPECT_EQ(code_of(
                [&] {
                  make_aws_credentials(
                      {std::nullopt, "p", ""},
                      surroundings({{"AWS_CONFIG_FILE", folder.path() + "/config"}}, nobody()));
                },
                &message),
            ErrorCode::unsupported);
  EXPECT_NE(message.find("export-credentials --profile p"), std::string::npos) << message;
}

constexpr char kRoleAnswer[] =
    "<AssumeRoleResponse><R><Credentials><AccessKeyId>ROLE</AccessKeyId><SecretAccessKey>sec"
    "</SecretAccessKey><SessionToken>tok</SessionToken><Expiration>2099-01-01T00:00:00.123Z"
    "</Expiration></Credentials></R></AssumeRoleResponse>";

TEST(AwsCredentials, OfAWebIdentityAskForARole) {
  const TempFolder folder;
  write(folder.path() + "/token", "a.b+c=");
  const auto client =
      std::make_shared<FunctionClient>([](const Asked&) { return answer(200, kRoleAnswer); });
  const auto keys =
      make_aws_credentials({std::nullopt, "", "eu-west-1"},
                           surroundings({{"AWS_WEB_IDENTITY_TOKEN_FILE", folder.path() + "/token"},
                                         {"AWS_ROLE_ARN", "arn:aws:iam::1:role/r"},
                                         {"AWS_ROLE_SESSION_NAME", "session"}},
                                        client));
  EXPECT_EQ(keys->get()->session_token, "tok");
  EXPECT_EQ(keys->get()->access_key_id, "ROLE");
  const auto all = client->all();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].url, "https://sts.eu-west-1.amazonaws.com/");
  EXPECT_EQ(all[0].body,
            "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3A"
            "role%2Fr&RoleSessionName=session&WebIdentityToken=a.b%2Bc%3D");
  EXPECT_FALSE(all[0].headers.contains("authorization"));
}

TEST(AwsCredentials, OfAProfileWithARoleSignForIt) {
  const TempFolder folder;
  write(folder.path() + "/config",
        "[profile base]\naws_access_key_id=BASE\naws_secret_access_key=b\n"
        "[profile r]\nrole_arn=arn:r\nsource_profile=base\nexternal_id=e x\n"
        "[profile a]\nrole_arn=arn:a\nsource_profile=b\n[profile b]\nrole_arn=arn:b\n"
        "source_profile=a\n");
  const auto client =
      std::make_shared<FunctionClient>([](const Asked&) { return answer(200, kRoleAnswer); });
  const auto around = surroundings({{"AWS_CONFIG_FILE", folder.path() + "/config"},
                                    {"AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1"}},
                                   client);
  EXPECT_EQ(make_aws_credentials({std::nullopt, "r", ""}, around)->get()->access_key_id, "ROLE");
  const auto all = client->all();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].url, "http://127.0.0.1:1/");
  EXPECT_NE(all[0].body.find("ExternalId=e%20x"), std::string::npos);
  EXPECT_NE(all[0].headers.at("authorization").find("Credential=BASE/"), std::string::npos);
  EXPECT_NE(all[0].headers.at("authorization").find("/us-east-1/sts/"), std::string::npos);
  EXPECT_FALSE(all[0].headers.contains("x-amz-content-sha256"));
  EXPECT_EQ(code_of([&] {
              make_aws_credentials({std::nullopt, "a", ""}, around);
            }),
            ErrorCode::permission_denied);
}

TEST(AwsCredentials, OfAContainerAreAskedForWithItsToken) {
  const TempFolder folder;
  write(folder.path() + "/token", "of file\n");
  const auto client = std::make_shared<FunctionClient>([](const Asked&) {
    return answer(200,
                  R"({"AccessKeyId":"C","SecretAccessKey":"s","Token":"t","Expiration":")" +
                      in_seconds(3600) + "\"}");
  });
  const auto keys = make_aws_credentials(
      {},
      surroundings({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"},
                    {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", folder.path() + "/token"}},
                   client));
  EXPECT_EQ(keys->get()->access_key_id, "C");
  EXPECT_EQ(client->all().at(0).headers.at("authorization"), "of file");
  // The token would go to anybody in the clear.
  for (const char* url : {"http://evil.example/",
                          "http://127.evil.example/",
                          "http://127.0.0.1@evil.example/",
                          "http://[::1]@evil.example/",
                          "http://localhost.evil.example/",
                          "ftp://localhost/"}) {
    EXPECT_EQ(code_of([&] {
                make_aws_credentials({},
                                     surroundings({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url},
                                                   {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "x"}},
                                                  client));
              }),
              ErrorCode::permission_denied)
        << url;
  }
  for (const char* url : {"http://127.0.0.1:80/x",
                          "http://localhost:1",
                          "http://[::1]:8080/",
                          "http://[fd00:ec2::23]/v1",
                          "https://anybody.example/"}) {
    make_aws_credentials({}, surroundings({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url}}, client));
  }
}

TEST(Credentials, AreNotWaitedForInAPipe) {
  const TempFolder folder;
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(code_of([&] { read_small_file(pipe); }), ErrorCode::io);
  EXPECT_EQ(read_small_file("/dev/null"), "");
}

TEST(AwsCredentials, OfAnInstanceAskForASessionFirst) {
  const auto client = std::make_shared<FunctionClient>([](const Asked& asked) {
    if (asked.method == "PUT") return answer(200, "session");
    if (asked.headers.at("x-aws-ec2-metadata-token") != "session") return answer(401, "");
    if (asked.url.ends_with("/security-credentials/")) return answer(200, "my role\n");
    return answer(200,
                  R"({"Code":"Success","AccessKeyId":"I","SecretAccessKey":"s","Token":"t",)"
                  R"("Expiration":")" +
                      in_seconds(1) + "\"}");
  });
  const auto keys = make_aws_credentials(
      {}, surroundings({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://[::1]:9/"}}, client));
  EXPECT_EQ(keys->get()->access_key_id, "I");
  const auto all = client->all();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].url, "http://[::1]:9/latest/api/token");
  EXPECT_EQ(all[2].url, "http://[::1]:9/latest/meta-data/iam/security-credentials/my%20role");
}

TEST(AwsCredentials, ThatAreNowhereSayWhereToPutThem) {
  std::string message;
  EXPECT_EQ(code_of([] { make_aws_credentials({}, surroundings({}, nobody()))->get(); }, &message),
            ErrorCode::permission_denied);
  EXPECT_NE(message.find("anon=true"), std::string::npos) << message;
  EXPECT_NE(message.find("nobody listens"), std::string::npos) << message;
  EXPECT_EQ(
      code_of([] {
        make_aws_credentials({}, surroundings({{"AWS_EC2_METADATA_DISABLED", "TRUE"}}, nobody()));
      }),
      ErrorCode::permission_denied);
}

std::string new_rsa_key(std::string* public_pem) {
  EVP_PKEY* key = EVP_RSA_gen(2048);
  const auto pem_of = [&](auto&& write_to) {
    BIO* bio = BIO_new(BIO_s_mem());
    write_to(bio);
    char* data = nullptr;
    const long nbytes = BIO_get_mem_data(bio, &data);
    std::string pem(data, static_cast<std::size_t>(nbytes));
    BIO_free(bio);
    return pem;
  };
  std::string pem = pem_of(
      [&](BIO* bio) { PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr); });
  *public_pem = pem_of([&](BIO* bio) { PEM_write_bio_PUBKEY(bio, key); });
  EVP_PKEY_free(key);
  return pem;
}

std::string from_base64url(std::string text) {
  for (char& c : text) c = c == '-' ? '+' : c == '_' ? '/' : c;
  while (text.size() % 4 != 0) text += '=';
  return from_base64(text);
}

bool verifies(const std::string& public_pem,
              const std::string& text,
              const std::string& signature) {
  BIO* bio = BIO_new_mem_buf(public_pem.data(), static_cast<int>(public_pem.size()));
  EVP_PKEY* key = PEM_read_bio_PUBKEY(bio, nullptr, nullptr, nullptr);
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_DigestVerifyInit(context, nullptr, EVP_sha256(), nullptr, key);
  const bool good = EVP_DigestVerify(context,
                                     reinterpret_cast<const unsigned char*>(signature.data()),
                                     signature.size(),
                                     reinterpret_cast<const unsigned char*>(text.data()),
                                     text.size()) == 1;
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(key);
  BIO_free(bio);
  return good;
}

TEST(GcsCredentials, OfAServiceAccountSignForAToken) {
  std::string public_pem;
  const std::string pem = new_rsa_key(&public_pem);
  const auto client = std::make_shared<FunctionClient>([](const Asked&) {
    return answer(200, R"({"access_token":"ya29.x","expires_in":3599,"token_type":"Bearer"})");
  });
  const nlohmann::json document{{"type", "service_account"},
                                {"client_email", "me@project"},
                                {"private_key", pem},
                                {"private_key_id", "kid1"},
                                {"token_uri", "http://127.0.0.1:2/token"}};
  const auto tokens = gcs_tokens_of(document.dump(), "key.json", surroundings({}, client));
  EXPECT_EQ(*tokens->get(), "ya29.x");
  EXPECT_EQ(*tokens->get(), "ya29.x");
  const auto all = client->all();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].url, "http://127.0.0.1:2/token");
  const std::string start =
      "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=";
  ASSERT_TRUE(all[0].body.starts_with(start)) << all[0].body;
  const std::string jwt = all[0].body.substr(start.size());
  const std::size_t first = jwt.find('.');
  const std::size_t second = jwt.find('.', first + 1);
  const auto header = nlohmann::json::parse(from_base64url(jwt.substr(0, first)));
  const auto claims =
      nlohmann::json::parse(from_base64url(jwt.substr(first + 1, second - first - 1)));
  EXPECT_EQ(header["alg"], "RS256");
  EXPECT_EQ(header["kid"], "kid1");
  EXPECT_EQ(claims["iss"], "me@project");
  EXPECT_EQ(claims["aud"], "http://127.0.0.1:2/token");
  EXPECT_EQ(claims["exp"].get<std::int64_t>() - claims["iat"].get<std::int64_t>(), 3600);
  EXPECT_TRUE(verifies(public_pem, jwt.substr(0, second), from_base64url(jwt.substr(second + 1))));
}

TEST(GcsCredentials, OfAUserRefreshTheirToken) {
  const TempFolder folder;
  write(folder.path() + "/application_default_credentials.json",
        R"({"type":"authorized_user","client_id":"i","client_secret":"s&","refresh_token":"r"})");
  const auto client = std::make_shared<FunctionClient>(
      [](const Asked&) { return answer(200, R"({"access_token":"t"})"); });
  const auto tokens =
      gcs_default_tokens(surroundings({{"CLOUDSDK_CONFIG", folder.path()}}, client));
  EXPECT_EQ(*tokens->get(), "t");
  EXPECT_EQ(client->all().at(0).body,
            "grant_type=refresh_token&client_id=i&client_secret=s%26&refresh_token=r");
}

TEST(GcsCredentials, OfAMachineAndOfNobody) {
  const auto client = std::make_shared<FunctionClient>([](const Asked& asked) {
    if (!asked.headers.contains("metadata-flavor")) return answer(403, "");
    return answer(200, R"({"access_token":"m","expires_in":10})");
  });
  EXPECT_EQ(
      *gcs_default_tokens(surroundings({{"GCE_METADATA_HOST", "127.0.0.1:3"}}, client))->get(),
      "m");
  EXPECT_EQ(client->all().at(0).url,
            "http://127.0.0.1:3/computeMetadata/v1/instance/service-accounts/default/token");
  std::string message;
  EXPECT_EQ(code_of([] { gcs_default_tokens(surroundings({}, nobody()))->get(); }, &message),
            ErrorCode::permission_denied);
  EXPECT_NE(message.find("anon"), std::string::npos) << message;
  EXPECT_NE(message.find("nobody listens"), std::string::npos) << message;
  const auto wrong = [](const char* text) {
    return code_of([&] { gcs_tokens_of(text, "f", surroundings({}, nobody())); });
  };
  EXPECT_EQ(wrong("{"), ErrorCode::invalid_argument);
  EXPECT_EQ(wrong(R"({"type":"service_account"})"), ErrorCode::invalid_argument);
  EXPECT_EQ(wrong(R"({"type":"external_account"})"), ErrorCode::unsupported);
}

TEST(Credentials, ThatAreRefusedSayWhyAndNothingElse) {
  const auto client = std::make_shared<FunctionClient>([](const Asked& asked) {
    return answer(400, R"({"error":"invalid_grant","error_description":")" + asked.body + "\"}");
  });
  const auto tokens = gcs_tokens_of(
      R"({"type":"authorized_user","client_id":"i","client_secret":"SECRET","refresh_token":"r"})",
      "f",
      surroundings({}, client));
  std::string message;
  EXPECT_EQ(code_of([&] { tokens->get(); }, &message), ErrorCode::permission_denied);
  EXPECT_NE(message.find("400 invalid_grant"), std::string::npos) << message;
  EXPECT_EQ(message.find("SECRET"), std::string::npos) << message;
}

TEST(AzureCredentials, OfAClientAndOfAMachine) {
  const TempFolder folder;
  write(folder.path() + "/token", "fed");
  const auto client = std::make_shared<FunctionClient>([](const Asked&) {
    return answer(200, R"({"access_token":"t","expires_on":"4102444800"})");
  });
  const auto around = surroundings({{"AZURE_AUTHORITY_HOST", "http://127.0.0.1:4/"}}, client);
  EXPECT_EQ(*azure_client_tokens({"tenant", "id", "s", ""}, around)->get(), "t");
  EXPECT_EQ(*azure_client_tokens({"tenant", "id", "", folder.path() + "/token"}, around)->get(),
            "t");
  EXPECT_EQ(*azure_managed_tokens("me", around)->get(), "t");
  const auto all = client->all();
  EXPECT_EQ(all[0].url, "http://127.0.0.1:4/tenant/oauth2/v2.0/token");
  EXPECT_NE(all[0].body.find("&client_secret=s"), std::string::npos);
  EXPECT_NE(all[1].body.find("&client_assertion=fed"), std::string::npos);
  EXPECT_EQ(all[2].url,
            "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource="
            "https%3A%2F%2Fstorage.azure.com%2F&client_id=me");
  EXPECT_EQ(all[2].headers.at("metadata"), "true");
  std::string message;
  EXPECT_EQ(code_of([] { azure_managed_tokens("", surroundings({}, nobody()))->get(); }, &message),
            ErrorCode::permission_denied);
  EXPECT_NE(message.find("anon=true"), std::string::npos) << message;
  EXPECT_NE(message.find("nobody listens"), std::string::npos) << message;
}

// A machine of another cloud has another's service, and one without a role has none to give.
TEST(Credentials, OfAServiceThatHasNoneSayWhereToPutThem) {
  for (const int status : {400, 403, 404, 405}) {
    const auto without = std::make_shared<FunctionClient>([&](const Asked& asked) {
      const bool aws_session = asked.method == "PUT" && status == 404;
      return aws_session ? answer(200, "session") : answer(status, "");
    });
    const Surroundings around = surroundings({}, without);
    const std::vector<std::function<void()>> calls = {
        [&] { make_aws_credentials({}, around)->get(); },
        [&] { gcs_metadata_tokens(around)->get(); },
        [&] { azure_managed_tokens("", around)->get(); }};
    for (const auto& call : calls) {
      std::string message;
      EXPECT_EQ(code_of(call, &message), ErrorCode::permission_denied);
      EXPECT_NE(message.find("none were found"), std::string::npos) << message;
      EXPECT_NE(message.find("answered " + std::to_string(status)), std::string::npos) << message;
    }
  }
  const Surroundings busy = surroundings(
      {}, std::make_shared<FunctionClient>([](const Asked&) { return answer(503, ""); }));
  EXPECT_EQ(code_of([&] { gcs_metadata_tokens(busy)->get(); }), ErrorCode::io);
}

// Who gives up is not told that there are no credentials.
TEST(Credentials, OfAServiceAreNotMissingWhereTheWaitWasCancelled) {
  const auto cancelled = std::make_shared<FunctionClient>([](const Asked&) {
    HttpResponse response;
    response.error = std::make_exception_ptr(Error(ErrorCode::cancelled, "enough"));
    return response;
  });
  const Surroundings around = surroundings({}, cancelled);
  EXPECT_EQ(code_of([&] { make_aws_credentials({}, around)->get(); }), ErrorCode::cancelled);
  EXPECT_EQ(code_of([&] { gcs_metadata_tokens(around)->get(); }), ErrorCode::cancelled);
  EXPECT_EQ(code_of([&] { azure_managed_tokens("", around)->get(); }), ErrorCode::cancelled);
}

// The example of https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key,
// with the headers that headrace sends.
TEST(AzureCredentials, OfAKeySignWhatMicrosoftSays) {
  HttpRequest request;
  request.url =
      "https://myaccount.blob.core.windows.net/mycontainer?restype=container&comp=metadata&a=2&A=1";
  request.headers = {{"x-ms-version", "2015-02-21"},
                     {"x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT"},
                     {"Range", "bytes=0-1"}};
  EXPECT_EQ(shared_key_text(request, "myaccount"),
            "GET\n\n\n\n\n\n\n\n\n\n\nbytes=0-1\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\n"
            "x-ms-version:2015-02-21\n/myaccount/mycontainer\na:1,2\ncomp:metadata\n"
            "restype:container");
  sign_shared_key(request, "myaccount", "key", system_clock::from_time_t(1435361952));
  std::string date;
  for (const HttpHeader& header : request.headers) {
    if (header.name == "x-ms-date") date = header.value;
  }
  EXPECT_EQ(date, "Fri, 26 Jun 2015 23:39:12 GMT");
}

TEST(AzureCredentials, OfAConnectionString) {
  const auto fields = parse_connection_string("AccountName=a;AccountKey=k==;;X=");
  EXPECT_EQ(fields.at("accountkey"), "k==");
  EXPECT_EQ(fields.at("accountname"), "a");
  std::string message;
  EXPECT_EQ(code_of([] { parse_connection_string("SECRET"); }, &message),
            ErrorCode::invalid_argument);
  EXPECT_EQ(message.find("SECRET"), std::string::npos);
}

}  // namespace
}  // namespace headrace
