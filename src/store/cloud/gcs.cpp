#include "store/cloud/gcs.h"

#include <array>
#include <utility>

#include "headrace/error.h"
#include "store/cloud/cloud_protocol.h"
#include "store/cloud/digest.h"
#include "store/cloud/s3_xml.h"
#include "store/http/content_range.h"

namespace headrace {

namespace {

class GcsProtocol final : public S3Dialect {
 public:
  explicit GcsProtocol(GcsOptions options)
      : S3Dialect("gs|" + options.endpoint + "|" + options.bucket, options.prefix),
        options_(std::move(options)) {}

  std::string url() const override { return "gs://" + options_.bucket + root_.below(); }

  ProtocolAbilities abilities() const override {
    ProtocolAbilities abilities;
    // One request takes an object of any size, and uploads in parts know no conditions.
    abilities.conditional_uploads = false;
    return abilities;
  }

  std::uint64_t credentials() const override {
    return options_.tokens ? options_.tokens->number() : 0;
  }

  bool have_ended(const HttpResponse& response, std::uint64_t credentials) override {
    if (response.status != 401 || !options_.tokens) return false;
    options_.tokens->doubt(credentials);
    return true;
  }

  void prepare() override {
    if (options_.tokens) options_.tokens->get();
  }

  HttpRequest read(std::string_view key,
                   const Extent& extent,
                   const std::string& if_version) override {
    HttpRequest request = get_of(key, extent);
    // As it is stored: what has Content-Encoding: gzip would be unpacked on its way.
    request.headers.push_back({"Accept-Encoding", "gzip"});
    if (if_version.find_first_not_of("0123456789") != std::string::npos) {
      add_read_condition(request, if_version);  // an ETag, as references have it
    } else if (!if_version.empty()) {
      request.headers.push_back({"x-goog-if-generation-match", if_version});
    }
    return finished(std::move(request));
  }

  HttpRequest look_up(std::string_view key) override {
    HttpRequest request = about("HEAD", key);
    request.headers.push_back({"Accept-Encoding", "gzip"});
    return finished(std::move(request));
  }

  HttpRequest put(std::string_view key,
                  std::span<const ConstBytes> parts,
                  const WriteCondition& condition) override {
    HttpRequest request = put_of(key, "", parts);
    add_part_checksum(request);
    if (condition.kind != WriteCondition::Kind::none) {
      const bool missing = condition.kind == WriteCondition::Kind::missing;
      request.headers.push_back({"x-goog-if-generation-match", missing ? "0" : condition.version});
      request.repeatable = false;
    }
    return finished(std::move(request));
  }

  HttpRequest erase(std::span<const std::string> keys) override {
    return finished(about("DELETE", keys.front()));
  }

  HttpRequest erase_if(std::string_view key, const std::string& version) override {
    HttpRequest request = about("DELETE", key);
    request.headers.push_back({"x-goog-if-generation-match", version});
    request.repeatable = false;
    return finished(std::move(request));
  }

  const char* write_name_header() const override { return "x-goog-meta-headrace-write"; }

  HttpRequest finish_upload(std::string_view key,
                            const std::string& upload,
                            std::span<const std::string> parts,
                            const WriteCondition& condition) override {
    if (condition.kind != WriteCondition::Kind::none) {
      throw Error(ErrorCode::unsupported,
                  url() + ": an upload in parts can not depend on what is there");
    }
    return S3Dialect::finish_upload(key, upload, parts, condition);
  }

  std::string version_of(const HttpResponse& response) const override {
    return header_or_empty(response, "x-goog-generation");
  }

  ListPage page_of(const HttpResponse& response) const override {
    return parse_object_list(response.body, root_, "Generation");
  }

  void check_erased(const HttpResponse&) const override {}  // one at a time: the status says it

  // Somebody on the way may pack what is stored otherwise, as gzip was allowed.
  void check_answer(const HttpResponse& response) const override {
    S3Dialect::check_answer(response);
    const std::string& coding = header_or_empty(response, "content-encoding");
    const std::string& stored = header_or_empty(response, "x-goog-stored-content-encoding");
    if (coding.empty() || same_name(coding, "identity") || stored.empty() ||
        same_name(coding, stored)) {
      return;
    }
    throw Error(ErrorCode::corrupt,
                url() + ": an object that is stored as " + stored + " came as " + coding);
  }

  Error error_of(const HttpRequest& request, const HttpResponse& response) const override {
    const ServerError error = parse_server_error(response.body);
    if (response.status == 401 && options_.tokens) options_.tokens->doubt();
    ErrorCode code = ErrorCode::io;
    std::string advice;
    if (response.status == 412 || response.status == 409) {
      code = ErrorCode::conflict;
      advice = "another writer was there before";
    } else if (response.status == 401 || response.status == 403) {
      code = ErrorCode::permission_denied;
      advice = refusal_advice(error);
    } else if (response.status == 404 && error.code.starts_with("NoSuch")) {
      code = ErrorCode::not_found;
      if (error.code == "NoSuchBucket") advice = "there is no such bucket";
    } else if (response.status == 404 && !error.is_document) {
      advice = kAnsweredByAnother;
    } else if (response.status == 501) {
      code = ErrorCode::unsupported;
    } else if (error.code == "UserProjectMissing") {
      code = ErrorCode::permission_denied;
      advice = "who asks pays for this bucket: set requester_pays to a project that is billed";
    }
    return Error(
        code,
        scrubbed(url() + ": " + request_line(request) + " answered " +
                 described(error, response.status) + (advice.empty() ? "" : ": " + advice)));
  }

 private:
  std::string listed_url() const override { return base(); }

  std::string base() const override {
    return options_.endpoint + "/" + uri_encode(options_.bucket, Slash::encoded);
  }

  void add_part_checksum(HttpRequest& request) const override {
    request.headers.push_back({"x-goog-hash", "crc32c=" + base64(crc32c_bytes(request.body))});
  }

  HttpRequest finished(HttpRequest request) const override {
    if (!options_.billed_project.empty()) {
      request.headers.push_back({"x-goog-user-project", options_.billed_project});
    }
    if (options_.tokens) {
      request.sign = bearer_signing(options_.tokens);
    } else if (options_.hmac) {
      request.sign = [keys = *options_.hmac](HttpRequest& attempt) {
        sign_v4(attempt,
                keys,
                {kGoogleSigning, "auto", "storage"},
                std::chrono::system_clock::now(),
                kUnsignedPayload);
      };
    }
    return request;
  }

  std::string refusal_advice(const ServerError& error) const {
    if (error.code == "RequestTimeTooSkewed") return "this machine's clock is wrong";
    if (error.code == "SignatureDoesNotMatch") {
      return "the secret is not that of the HMAC key, or somebody on the way changes requests";
    }
    if (!options_.tokens && !options_.hmac) {
      return "it is not public: give credentials (token, or GOOGLE_APPLICATION_CREDENTIALS)";
    }
    return "these credentials do not allow it, or the token has expired; of a missing object "
           "Google says the same unless storage.objects.list is allowed";
  }

  std::string scrubbed(std::string text) const override {
    const std::shared_ptr<const std::string> token =
        options_.tokens ? options_.tokens->latest() : nullptr;
    const std::array<std::string_view, 3> secrets{
        token ? std::string_view(*token) : "",
        options_.hmac ? std::string_view(options_.hmac->secret_access_key) : "",
        options_.hmac ? std::string_view(options_.hmac->access_key_id) : ""};
    return scrub(std::move(text), secrets);
  }

  const GcsOptions options_;
};

}  // namespace

std::shared_ptr<ObjectProtocol> make_gcs_protocol(GcsOptions options) {
  return std::make_shared<GcsProtocol>(std::move(options));
}

}  // namespace headrace
