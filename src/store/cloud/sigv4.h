#pragma once

// Signature version 4 of AWS, in headers, and Google's of the same shape for HMAC keys:
// https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html
// https://cloud.google.com/storage/docs/authentication/signatures

#include <chrono>
#include <string>
#include <string_view>

#include "store/http/client.h"

namespace headrace {

struct AwsKeys {
  std::string access_key_id{};
  std::string secret_access_key{};
  std::string session_token{};  // of keys that end

  bool operator==(const AwsKeys&) const = default;
};

// How one provider calls what all have.
struct SigningDialect {
  std::string_view algorithm;       // "AWS4-HMAC-SHA256"
  std::string_view key_prefix;      // "AWS4"
  std::string_view scope_end;       // "aws4_request"
  std::string_view date_header;     // "x-amz-date"
  std::string_view content_header;  // "x-amz-content-sha256"
  std::string_view token_header;    // "x-amz-security-token"
};
extern const SigningDialect kAwsSigning;
extern const SigningDialect kGoogleSigning;

struct SigningScope {
  const SigningDialect& dialect = kAwsSigning;
  std::string region{};
  std::string service = "s3";
};

using SystemTime = std::chrono::system_clock::time_point;

// The hash that stands for a body that is not signed.
inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";

// Whether a request's hash goes out as a header of its own, which S3 wants of every request and
// other services do not know.
enum class ContentHeader : std::uint8_t { sent, left_out };

// Sets the date, the token and Authorization, over what stood there from an attempt before. The
// URL's path counts as it stands (S3's rule: encoded once, "//" and "." kept), all headers are
// signed but those that somebody on the way may change. `payload_hash`: hex(sha256(body)), or
// kUnsignedPayload.
void sign_v4(HttpRequest& request,
             const AwsKeys& keys,
             const SigningScope& scope,
             SystemTime now,
             std::string_view payload_hash,
             ContentHeader content = ContentHeader::sent);

// For the tests: what is signed of a request that has all headers.
std::string canonical_request(const HttpRequest& request, std::string_view payload_hash);

// "20150830T123600Z"
std::string compact_time(SystemTime time);

}  // namespace headrace
