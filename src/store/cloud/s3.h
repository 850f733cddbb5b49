#pragma once

// Amazon S3, and what speaks like it: R2, MinIO, Ceph.
// https://docs.aws.amazon.com/AmazonS3/latest/API/

#include <memory>
#include <string>

#include "store/cloud/aws_credentials.h"
#include "store/http/protocol.h"

namespace headrace {

struct S3Options {
  enum class Addressing {
    virtual_host,  // https://bucket.host/key
    path,          // https://host/bucket/key
  };
  // What a write is checked by, on its way and in the store.
  enum class Checksum { none, crc32c, md5, sha256 };
  // Whether the signature covers the body.
  enum class Payload {
    hashed,
    unhashed,  // TLS and the checksum protect it, and a hash of it costs a second a gigabyte
  };

  std::string bucket{};
  std::string prefix{};    // without slashes at its ends
  std::string endpoint{};  // "https://host:port"; empty: AWS's of the region
  std::string region{};    // empty: AWS is asked for the bucket's
  Addressing addressing = Addressing::virtual_host;
  Checksum checksum = Checksum::none;
  Payload payload = Payload::unhashed;
  bool requester_pays = false;
  std::shared_ptr<AwsCredentials> credentials{};  // null: requests are anonymous
  std::shared_ptr<HttpClient> client{};           // asks for the region
};

std::shared_ptr<ObjectProtocol> make_s3_protocol(S3Options options);

}  // namespace headrace
