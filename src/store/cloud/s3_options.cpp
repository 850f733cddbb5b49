// Options of S3 by the names of s3fs, boto and obstore.

#include <utility>

#include "headrace/error.h"
#include "store/cloud/open.h"
#include "store/cloud/option_names.h"
#include "store/cloud/request.h"

namespace headrace {

namespace {

// A name that may stand in front of a host of AWS under its certificate for *.s3.region: without
// dots and capitals.
bool fits_host(const std::string& bucket) {
  for (const char c : bucket) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) return false;
  }
  return bucket.size() >= 3 && bucket.size() <= 63 && bucket.front() != '-' && bucket.back() != '-';
}

S3Options::Checksum checksum_of(const std::string& name, const OptionReader& options) {
  const std::string lowered = lower(name);
  if (lowered == "none") return S3Options::Checksum::none;
  if (lowered == "crc32c") return S3Options::Checksum::crc32c;
  if (lowered == "md5") return S3Options::Checksum::md5;
  if (lowered == "sha256") return S3Options::Checksum::sha256;
  options.refuse(
      "option checksum_algorithm: wanted \"crc32c\", \"sha256\", \"md5\" or \"none\", got \"" +
      name + "\"");
}

struct Found {
  std::optional<std::string> endpoint;
  std::optional<std::string> region;
  std::optional<bool> virtual_host;
};

// What fsspec hands to botocore as it is.
void take_client_kwargs(OptionReader& options, Found& found) {
  if (auto client = take_nested(options, "client_kwargs")) {
    if (auto endpoint = take_text(*client, {"endpoint_url"})) found.endpoint = std::move(endpoint);
    if (auto region = take_text(*client, {"region_name"})) found.region = std::move(region);
    client->finish("an S3");
  }
  auto config = take_nested(options, "config_kwargs");
  if (!config) return;
  take_text(*config, {"signature_version"});  // there is one only
  if (auto s3 = take_nested(*config, "s3")) {
    const std::string style = take_text(*s3, {"addressing_style"}).value_or("auto");
    if (style != "auto") found.virtual_host = style == "virtual";
    s3->finish("an S3");
  }
  config->finish("an S3");
}

std::optional<AwsKeys> take_keys(OptionReader& options) {
  const auto id = take_text(options, {"key", "aws_access_key_id", "access_key_id", "username"});
  const auto secret =
      take_text(options, {"secret", "aws_secret_access_key", "secret_access_key", "password"});
  const auto token =
      take_text(options, {"token", "aws_session_token", "session_token", "aws_token"});
  if (id.has_value() != secret.has_value()) {
    options.refuse("key and secret go together: one of them is missing");
  }
  if (token && !id) options.refuse("a session token wants its key and secret beside it");
  if (!id) return std::nullopt;
  return AwsKeys{*id, *secret, token.value_or("")};
}

}  // namespace

S3Options take_s3_options(const CloudPlace& place,
                          OptionReader& options,
                          const Surroundings& around) {
  S3Options s3;
  s3.bucket = place.bucket;
  s3.prefix = place.prefix;
  s3.client = around.client;

  Found found;
  found.endpoint =
      take_text(options, {"endpoint_url", "endpoint", "aws_endpoint", "aws_endpoint_url"});
  found.region = take_text(
      options, {"region", "aws_region", "region_name", "default_region", "aws_default_region"});
  found.virtual_host =
      take_flag(options, {"virtual_hosted_style_request", "aws_virtual_hosted_style_request"});
  take_client_kwargs(options, found);
  AwsCredentialOptions credentials;
  credentials.keys = take_keys(options);
  credentials.profile = take_text(options, {"profile", "aws_profile"}).value_or("");
  const bool anonymous =
      take_flag(options, {"anon", "skip_signature", "aws_skip_signature"}).value_or(false);
  if (anonymous && credentials.keys) options.refuse("anon wants no key and secret");

  const auto from_around = [&](std::initializer_list<const char*> variables, const char* setting) {
    std::optional<std::string> value;
    for (const char* variable : variables) {
      if (!value) value = around.variable(variable);
    }
    return value ? value : profile_setting(credentials.profile, setting, around);
  };
  if (!found.endpoint) {
    found.endpoint = from_around({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "endpoint_url");
  }
  if (!found.region) {
    found.region = from_around({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region");
  }
  if (found.endpoint) s3.endpoint = check_endpoint(options, *found.endpoint);
  s3.region = found.region.value_or("");

  const bool tls = take_flag(options, {"use_ssl"}).value_or(true);
  const auto allow_http = take_flag(options, {"allow_http", "aws_allow_http"});
  if (s3.endpoint.starts_with("http://") && allow_http == false) {
    options.refuse("the endpoint is of http, which allow_http=false forbids");
  }
  if (!tls && !s3.endpoint.starts_with("http://")) {
    options.refuse("use_ssl=false wants endpoint_url=\"http://...\"");
  }

  const bool of_aws = s3.endpoint.empty();
  using Addressing = S3Options::Addressing;
  s3.addressing = found.virtual_host.value_or(of_aws && fits_host(s3.bucket))
                      ? Addressing::virtual_host
                      : Addressing::path;
  // Other servers may not know it, and TLS keeps what is on its way.
  s3.checksum = of_aws ? S3Options::Checksum::crc32c : S3Options::Checksum::none;
  if (const auto name = take_text(options, {"checksum_algorithm", "aws_checksum_algorithm"})) {
    s3.checksum = checksum_of(*name, options);
  }
  const bool encrypted = !s3.endpoint.starts_with("http://");
  s3.payload = take_flag(options, {"unsigned_payload", "aws_unsigned_payload"}).value_or(encrypted)
                   ? S3Options::Payload::unhashed
                   : S3Options::Payload::hashed;
  s3.requester_pays =
      take_flag(options, {"requester_pays", "request_payer", "aws_request_payer"}).value_or(false);

  credentials.region = s3.region;
  if (!anonymous) s3.credentials = make_aws_credentials(credentials, around);
  return s3;
}

}  // namespace headrace
