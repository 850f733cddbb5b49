// Options of Google Cloud Storage by the names of gcsfs and obstore.

#include <utility>

#include "headrace/error.h"
#include "store/cloud/gcs_credentials.h"
#include "store/cloud/open.h"
#include "store/cloud/option_names.h"

namespace headrace {

namespace {

std::shared_ptr<Tokens> tokens_of_file(const std::string& path, const Surroundings& around) {
  const std::optional<std::string> text = read_small_file(path);
  if (!text) {
    throw Error(ErrorCode::not_found, "Google credentials: there is no file " + path);
  }
  return gcs_tokens_of(*text, path, around);
}

// gcsfs' option "token": a word, a document, the path of one, or a token itself. Null: anonymous.
std::shared_ptr<Tokens> tokens_of_word(const std::string& token,
                                       const OptionReader& options,
                                       const Surroundings& around) {
  if (token == "anon") return nullptr;
  if (token == "google_default") return gcs_default_tokens(around);
  if (token == "cloud") return gcs_metadata_tokens(around);
  if (token == "browser" || token == "cache") {
    options.refuse("token=\"" + token +
                   "\" is for gcsfs: use \"google_default\" after gcloud auth application-default "
                   "login");
  }
  if (token.starts_with('{')) return gcs_tokens_of(token, "the option token", around);
  if (token.starts_with('/') || token.starts_with("~/") || token.ends_with(".json")) {
    return tokens_of_file(
        token.starts_with("~/") ? in_home(around, std::string_view(token).substr(2)) : token,
        around);
  }
  return fixed_token(token);
}

}  // namespace

GcsOptions take_gcs_options(const CloudPlace& place,
                            OptionReader& options,
                            const Surroundings& around) {
  GcsOptions gcs;
  gcs.bucket = place.bucket;
  gcs.prefix = place.prefix;

  const auto token = take_text(options, {"token", "bearer_token", "google_token"});
  const auto path = take_text(options,
                              {"service_account",
                               "google_service_account",
                               "service_account_path",
                               "google_service_account_path",
                               "application_credentials",
                               "google_application_credentials"});
  const auto document = take_text(options, {"service_account_key", "google_service_account_key"});
  const auto hmac_id = take_text(options, {"key", "access_key_id"});
  const auto hmac_secret = take_text(options, {"secret", "secret_access_key"});
  const bool anonymous =
      take_flag(options, {"anon", "skip_signature", "google_skip_signature"}).value_or(false);
  if (hmac_id.has_value() != hmac_secret.has_value()) {
    options.refuse("key and secret go together: one of them is missing");
  }
  const int given =
      token.has_value() + path.has_value() + document.has_value() + hmac_id.has_value() + anonymous;
  if (given > 1) options.refuse("more than one kind of credentials is given");

  auto endpoint = take_text(options, {"endpoint_url", "endpoint", "google_base_url"});
  const auto emulator = around.variable("STORAGE_EMULATOR_HOST");
  if (!endpoint && emulator) {
    endpoint = emulator->find("://") == std::string::npos ? "http://" + *emulator : *emulator;
  }
  if (endpoint) gcs.endpoint = check_endpoint(options, *endpoint);
  take_flag(options, {"allow_http"});

  const auto project = take_text(options, {"project", "google_project", "quota_project"});
  if (const auto pays = take_text(options, {"requester_pays"}); pays && *pays != "false") {
    gcs.billed_project = *pays == "true" ? project.value_or("") : *pays;
    if (gcs.billed_project.empty()) options.refuse("requester_pays=true wants a project");
  }

  const auto around_id = around.variable("GS_ACCESS_KEY_ID");
  const auto around_secret = around.variable("GS_SECRET_ACCESS_KEY");
  if (anonymous) return gcs;
  if (token) {
    gcs.tokens = tokens_of_word(*token, options, around);
  } else if (path) {
    gcs.tokens = tokens_of_file(*path, around);
  } else if (document) {
    gcs.tokens = gcs_tokens_of(*document, "the option service_account_key", around);
  } else if (hmac_id) {
    gcs.hmac = AwsKeys{*hmac_id, *hmac_secret, ""};
  } else if (endpoint && emulator) {
    // An emulator wants none.
  } else if (const auto file = around.variable("GOOGLE_SERVICE_ACCOUNT")) {
    gcs.tokens = tokens_of_file(*file, around);
  } else if (const auto text = around.variable("GOOGLE_SERVICE_ACCOUNT_KEY")) {
    gcs.tokens = gcs_tokens_of(*text, "GOOGLE_SERVICE_ACCOUNT_KEY", around);
  } else if (around_id && around_secret) {
    gcs.hmac = AwsKeys{*around_id, *around_secret, ""};
  } else {
    gcs.tokens = gcs_default_tokens(around);
  }
  return gcs;
}

}  // namespace headrace
