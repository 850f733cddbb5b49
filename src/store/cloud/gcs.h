#pragma once

// Google Cloud Storage by its XML API, not the one of JSON: its lists and uploads in parts are S3's
// (JSON has no parts that go at the same time), HMAC keys sign it, and a read is one request whose
// headers have the generation.
// https://cloud.google.com/storage/docs/xml-api/overview

#include <memory>
#include <optional>
#include <string>

#include "store/cloud/sigv4.h"
#include "store/cloud/token.h"
#include "store/http/protocol.h"

namespace headrace {

struct GcsOptions {
  std::string bucket{};
  std::string prefix{};
  std::string endpoint = "https://storage.googleapis.com";
  std::string billed_project{};  // who pays, of buckets whose requester does
  // One of them; neither: anonymous.
  std::shared_ptr<Tokens> tokens{};
  std::optional<AwsKeys> hmac{};
};

std::shared_ptr<ObjectProtocol> make_gcs_protocol(GcsOptions options);

}  // namespace headrace
