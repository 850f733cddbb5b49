#include "store/cloud/s3.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "headrace/error.h"
#include "store/cloud/cloud_protocol.h"
#include "store/cloud/digest.h"
#include "store/cloud/renewed.h"
#include "store/cloud/s3_xml.h"
#include "store/cloud/sigv4.h"

namespace headrace {

namespace {

using Checksum = S3Options::Checksum;

std::string aws_endpoint(const std::string& region) {
  return "https://s3." + region + ".amazonaws.com" + (region.starts_with("cn-") ? ".cn" : "");
}

// "https://host" with the bucket in front of the host, unless it is there.
std::string with_bucket_host(const std::string& endpoint, const std::string& bucket) {
  const std::size_t host = endpoint.find("://") + 3;
  if (endpoint.compare(host, bucket.size() + 1, bucket + ".") == 0) return endpoint;
  return endpoint.substr(0, host) + bucket + "." + endpoint.substr(host);
}

bool has_expired(const ServerError& error) {
  return error.code == "ExpiredToken" || error.code == "TokenRefreshRequired" ||
         error.code == "RequestExpired";
}

bool ends_credentials(const ServerError& error) {
  return has_expired(error) || error.code == "InvalidAccessKeyId";
}

class S3Protocol final : public S3Dialect {
 public:
  explicit S3Protocol(S3Options options)
      // Buckets of AWS have one name the world over, whichever host is asked.
      : S3Dialect("s3|" + options.endpoint + "|" + options.bucket, options.prefix),
        options_(std::move(options)),
        region_(std::make_shared<Renewed<std::string>>([options = options_] {
          return Renewed<std::string>::Fetched{
              std::make_shared<const std::string>(ask_for_region(options))};
        })) {}

  std::string url() const override { return "s3://" + options_.bucket + root_.below(); }

  ProtocolAbilities abilities() const override {
    ProtocolAbilities abilities;
    abilities.max_erased_at_once = 1000;
    return abilities;
  }

  void prepare() override {
    region_->get();
    if (options_.credentials) options_.credentials->get();
  }

  std::uint64_t credentials() const override {
    return options_.credentials ? options_.credentials->number() : 0;
  }

  bool have_ended(const HttpResponse& response, std::uint64_t credentials) override {
    if (!options_.credentials) return false;
    // An answer to HEAD has no words.
    const std::string& lies_in = header_or_empty(response, "x-amz-bucket-region");
    const bool may_have = response.status == 400 && response.body.size() == 0 &&
                          (lies_in.empty() || lies_in == region());
    if (!may_have && !ends_credentials(parse_server_error(response.body))) return false;
    options_.credentials->doubt(credentials);
    return true;
  }

  HttpRequest read(std::string_view key,
                   const Extent& extent,
                   const std::string& if_version) override {
    HttpRequest request = get_of(key, extent);
    if (extent.kind == Extent::Kind::whole && options_.checksum != Checksum::none) {
      request.headers.push_back({"x-amz-checksum-mode", "ENABLED"});
    }
    add_read_condition(request, if_version);
    return finished(std::move(request));
  }

  HttpRequest put(std::string_view key,
                  std::span<const ConstBytes> parts,
                  const WriteCondition& condition) override {
    HttpRequest request = put_of(key, "", parts);
    add_checksum(request);
    add_condition(request, condition);
    return finished(std::move(request));
  }

  HttpRequest erase(std::span<const std::string> keys) override {
    if (keys.size() == 1) return finished(about("DELETE", keys.front()));
    HttpRequest request;
    request.method = "POST";
    request.url = base() + "/?delete=";
    set_body(request, erased_objects_xml(root_, keys));
    request.headers = {{"Content-Type", "application/xml"},
                       {"Content-MD5", base64(md5(request.body))}};
    return finished(std::move(request));
  }

  HttpRequest erase_if(std::string_view key, const std::string& version) override {
    HttpRequest request = about("DELETE", key);
    add_condition(request, WriteCondition::if_version(version));
    return finished(std::move(request));
  }

  const char* write_name_header() const override { return "x-amz-meta-headrace-write"; }

  std::string part_of(const HttpResponse& response) override {
    const std::string etag = S3Dialect::part_of(response);
    const std::string& sum = header_or_empty(response, "x-amz-checksum-crc32c");
    return options_.checksum == Checksum::crc32c && !sum.empty() ? etag + " " + sum : etag;
  }

  std::string version_of(const HttpResponse& response) const override {
    return header_or_empty(response, "etag");
  }

  ListPage page_of(const HttpResponse& response) const override {
    return parse_object_list(response.body, root_, "ETag");
  }

  void check_erased(const HttpResponse& response) const override {
    const std::optional<ServerError> found = parse_erase_error(response.body);
    if (!found) return;
    const ServerError& error = *found;
    throw Error(error.code == "AccessDenied" ? ErrorCode::permission_denied : ErrorCode::io,
                scrubbed(url() + ": " + error.key +
                         " was not erased: " + described(error, response.status)));
  }

  // Some servers say nothing where nothing failed, others where they did not come to the end.
  bool says_erased(const HttpResponse& response) const override {
    return text_of(response.body.bytes()).find_first_not_of(" \t\r\n") != std::string_view::npos;
  }

  Error error_of(const HttpRequest& request, const HttpResponse& response) const override;

 private:
  static std::string ask_for_region(const S3Options& options);

  std::string region() const {
    const std::shared_ptr<const std::string> region = region_->latest();
    return region ? *region : "us-east-1";
  }

  std::string listed_url() const override { return base() + "/"; }

  std::string base() const override {
    const std::string endpoint =
        options_.endpoint.empty() ? aws_endpoint(region()) : options_.endpoint;
    return options_.addressing == S3Options::Addressing::virtual_host
               ? with_bucket_host(endpoint, options_.bucket)
               : endpoint + "/" + uri_encode(options_.bucket, Slash::encoded);
  }

  void add_checksum(HttpRequest& request) const {
    switch (options_.checksum) {
      case Checksum::none:
        break;
      case Checksum::crc32c:
        request.headers.push_back({"x-amz-checksum-crc32c", base64(crc32c_bytes(request.body))});
        break;
      case Checksum::md5:
        request.headers.push_back({"Content-MD5", base64(md5(request.body))});
        break;
      case Checksum::sha256:
        request.headers.push_back({"x-amz-checksum-sha256", base64(sha256(request.body))});
        break;
    }
  }

  void announce_checksum(HttpRequest& request) const override {
    if (options_.checksum == Checksum::crc32c) {
      request.headers.push_back({"x-amz-checksum-algorithm", "CRC32C"});
    }
  }

  // Of a whole object in parts AWS takes the others only where they were announced.
  void add_part_checksum(HttpRequest& request) const override {
    if (options_.checksum == Checksum::crc32c || options_.checksum == Checksum::md5) {
      add_checksum(request);
    }
  }

  HttpRequest finished(HttpRequest request) const override {
    if (options_.requester_pays) {
      request.headers.push_back({"x-amz-request-payer", "requester"});
    }
    if (!options_.credentials) return request;
    const bool hashed = options_.payload == S3Options::Payload::hashed || request.body_owner;
    std::string hash = hashed ? hex(sha256(request.body)) : std::string(kUnsignedPayload);
    request.sign = [credentials = options_.credentials,
                    scope = SigningScope{kAwsSigning, region(), "s3"},
                    hash = std::move(hash)](HttpRequest& attempt) {
      const std::shared_ptr<const AwsKeys> keys = credentials->latest();
      if (keys) sign_v4(attempt, *keys, scope, std::chrono::system_clock::now(), hash);
    };
    return request;
  }

  std::string scrubbed(std::string text) const override {
    const std::shared_ptr<const AwsKeys> keys =
        options_.credentials ? options_.credentials->latest() : nullptr;
    if (!keys) return text;
    const std::array<std::string_view, 3> secrets{
        keys->secret_access_key, keys->session_token, keys->access_key_id};
    return scrub(std::move(text), secrets);
  }

  // What to do about an error; empty: nothing that is known.
  std::string advice(const ServerError& error, const HttpResponse& response) const;

  const S3Options options_;
  const std::shared_ptr<Renewed<std::string>> region_;
};

std::string S3Protocol::ask_for_region(const S3Options& options) {
  if (!options.region.empty()) return options.region;
  if (!options.endpoint.empty()) return "us-east-1";
  HttpRequest request;
  request.method = "HEAD";
  request.url = options.addressing == S3Options::Addressing::virtual_host
                    ? "https://" + options.bucket + ".s3.amazonaws.com/"
                    : "https://s3.amazonaws.com/" + uri_encode(options.bucket, Slash::encoded);
  const HttpResponse response = options.client->ask(std::move(request));
  if (response.error) std::rethrow_exception(response.error);
  // It is said to everybody, also in refusals.
  if (const std::string& region = header_or_empty(response, "x-amz-bucket-region");
      !region.empty()) {
    return region;
  }
  if (response.status == 404) {
    throw Error(ErrorCode::not_found, "s3://" + options.bucket + ": there is no such bucket");
  }
  throw Error(ErrorCode::io,
              "s3://" + options.bucket + ": AWS does not say the bucket's region (it answered " +
                  std::to_string(response.status) + "): set the option region");
}

std::string S3Protocol::advice(const ServerError& error, const HttpResponse& response) const {
  std::string lies_in = header_or_empty(response, "x-amz-bucket-region");
  if (lies_in.empty()) lies_in = error.region;
  const std::string& code = error.code;
  if (!lies_in.empty() && lies_in != region() &&
      (response.status == 301 || response.status == 307 || response.status == 400)) {
    return "the bucket lies in another region: set region=\"" + lies_in + "\", which is \"" +
           region() + "\" now";
  }
  if (response.status == 301 || code == "PermanentRedirect") {
    return "the bucket lies in another region or behind another endpoint";
  }
  if (code == "RequestTimeTooSkewed") {
    const std::string& date =
        error.server_time.empty() ? header_or_empty(response, "date") : error.server_time;
    return "this machine's clock is wrong: it says " +
           compact_time(std::chrono::system_clock::now()) + ", the server " + date;
  }
  if (has_expired(error)) {
    return "the session token has expired: get new credentials";
  }
  if (code == "InvalidToken") return "the session token does not belong to these keys";
  if (code == "InvalidAccessKeyId") {
    return "this endpoint does not know the access key: look at key and endpoint_url";
  }
  if (code == "SignatureDoesNotMatch") {
    return "the secret key is not that of the access key, or somebody on the way changes requests";
  }
  if (response.status == 404 && !error.is_document) return kAnsweredByAnother;
  if (code == "NoSuchBucket") return "there is no such bucket: look at its name and endpoint_url";
  if (response.status == 401 || response.status == 403) {
    if (!options_.credentials) {
      return "it is not public: leave out anon, and give credentials (key, secret, profile, or "
             "AWS_ACCESS_KEY_ID)";
    }
    return "these credentials do not allow it; of a missing object AWS says the same unless "
           "s3:ListBucket is allowed, and of a bucket whose requester pays unless "
           "requester_pays=true is set";
  }
  if (code == "NotImplemented") return "the server does not know this kind of request";
  return "";
}

Error S3Protocol::error_of(const HttpRequest& request, const HttpResponse& response) const {
  const ServerError error = parse_server_error(response.body);
  if (options_.credentials && ends_credentials(error)) options_.credentials->doubt();
  ErrorCode code = ErrorCode::io;
  if (response.status == 412 || (response.status == 409 && request.method != "GET") ||
      error.code == "PreconditionFailed" || error.code == "ConditionalRequestConflict") {
    code = ErrorCode::conflict;
  } else if (response.status == 401 || response.status == 403 || error.code == "ExpiredToken" ||
             error.code == "InvalidToken") {
    code = ErrorCode::permission_denied;
  } else if (response.status == 404 && error.code.starts_with("NoSuch")) {
    code = ErrorCode::not_found;
  } else if (response.status == 501) {
    code = ErrorCode::unsupported;
  }
  const std::string what_to_do =
      code == ErrorCode::conflict ? "another writer was there before" : advice(error, response);
  return Error(
      code,
      scrubbed(url() + ": " + request_line(request) + " answered " +
               described(error, response.status) + (what_to_do.empty() ? "" : ": " + what_to_do)));
}

}  // namespace

std::shared_ptr<ObjectProtocol> make_s3_protocol(S3Options options) {
  return std::make_shared<S3Protocol>(std::move(options));
}

}  // namespace headrace
