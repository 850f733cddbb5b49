#include "store/cloud/gcs_credentials.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "headrace/error.h"
#include "store/cloud/digest.h"

namespace headrace {

namespace {

using Json = nlohmann::json;

constexpr char kScope[] = "https://www.googleapis.com/auth/devstorage.read_write";
constexpr char kTokenUri[] = "https://oauth2.googleapis.com/token";

std::string field(const Json& document, const char* name) {
  const auto found = document.find(name);
  return found != document.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string wanted(const Json& document, const char* name, const std::string& what) {
  std::string value = field(document, name);
  if (value.empty()) {
    throw Error(ErrorCode::invalid_argument, what + " has no \"" + std::string(name) + "\"");
  }
  return value;
}

std::shared_ptr<Tokens> of_service_account(const Json& document,
                                           const std::string& what,
                                           const Surroundings& around) {
  const std::string email = wanted(document, "client_email", what);
  const std::string pem = wanted(document, "private_key", what);
  const std::string key_id = field(document, "private_key_id");
  const std::string uri = field(document, "token_uri");
  const std::string url = uri.empty() ? kTokenUri : uri;
  return std::make_shared<Tokens>([=, client = around.client] {
    return ask_for_token(
        *client,
        url,
        {{"grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"},
         {"assertion",
          service_account_assertion(email, pem, key_id, url, std::chrono::system_clock::now())}},
        "Google for the service account " + email);
  });
}

std::shared_ptr<Tokens> of_user(const Json& document,
                                const std::string& what,
                                const Surroundings& around) {
  const std::string id = wanted(document, "client_id", what);
  const std::string secret = wanted(document, "client_secret", what);
  const std::string refresh = wanted(document, "refresh_token", what);
  const std::string uri = field(document, "token_uri");
  return std::make_shared<Tokens>([=, client = around.client] {
    return ask_for_token(*client,
                         uri.empty() ? kTokenUri : uri,
                         {{"grant_type", "refresh_token"},
                          {"client_id", id},
                          {"client_secret", secret},
                          {"refresh_token", refresh}},
                         "Google for the user of " + what);
  });
}

}  // namespace

std::string service_account_assertion(const std::string& email,
                                      const std::string& private_key_pem,
                                      const std::string& key_id,
                                      const std::string& audience,
                                      std::chrono::system_clock::time_point now) {
  Json header{{"alg", "RS256"}, {"typ", "JWT"}};
  if (!key_id.empty()) header["kid"] = key_id;
  const std::int64_t issued = std::chrono::system_clock::to_time_t(now);
  const Json claims{{"iss", email},
                    {"scope", kScope},
                    {"aud", audience},
                    {"iat", issued},
                    {"exp", issued + 3600}};
  const std::string text = base64url(header.dump()) + "." + base64url(claims.dump());
  return text + "." + base64url(rsa_sha256(private_key_pem, text));
}

std::shared_ptr<Tokens> gcs_tokens_of(const std::string& text,
                                      const std::string& what,
                                      const Surroundings& around) {
  const Json document = Json::parse(text, nullptr, false);
  if (!document.is_object()) {
    throw Error(ErrorCode::invalid_argument, what + " is no JSON with credentials");
  }
  const std::string type = field(document, "type");
  if (type == "service_account") return of_service_account(document, what, around);
  if (type == "authorized_user") return of_user(document, what, around);
  throw Error(ErrorCode::unsupported,
              what + " has credentials of the type \"" + type +
                  "\"; headrace knows service_account and authorized_user. A token of any other "
                  "is given as the option \"token\" (gcloud auth print-access-token)");
}

std::shared_ptr<Tokens> gcs_metadata_tokens(const Surroundings& around) {
  const std::string host =
      around.variable("GCE_METADATA_HOST").value_or("metadata.google.internal");
  const std::string url =
      "http://" + host + "/computeMetadata/v1/instance/service-accounts/default/token";
  return std::make_shared<Tokens>([url, client = around.local_client] {
    HttpRequest request;
    request.url = url;
    request.headers = {{"Metadata-Flavor", "Google"}};
    const HttpResponse answer = client->ask(std::move(request));
    const std::string who = "Google's metadata server";
    expect_service(answer,
                   who,
                   "Google credentials: none were found in options, by "
                   "GOOGLE_APPLICATION_CREDENTIALS, by gcloud auth application-default login or at "
                   "a metadata server. A public bucket is read with token=\"anon\"");
    return token_of(answer, who);
  });
}

std::shared_ptr<Tokens> gcs_default_tokens(const Surroundings& around) {
  if (const auto path = around.variable("GOOGLE_APPLICATION_CREDENTIALS")) {
    const std::optional<std::string> text = read_small_file(*path);
    if (!text) {
      throw Error(ErrorCode::permission_denied,
                  "Google credentials: GOOGLE_APPLICATION_CREDENTIALS names " + *path +
                      ", which is missing");
    }
    return gcs_tokens_of(*text, *path, around);
  }
  const std::string folder =
      around.variable("CLOUDSDK_CONFIG").value_or(in_home(around, ".config/gcloud"));
  const std::string path = folder + "/application_default_credentials.json";
  if (const std::optional<std::string> text = read_small_file(path)) {
    return gcs_tokens_of(*text, path, around);
  }
  return gcs_metadata_tokens(around);
}

}  // namespace headrace
