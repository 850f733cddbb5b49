#pragma once

// What the protocols of all clouds have in common: the name of a place, and the requests about one
// object.

#include <span>
#include <string>
#include <string_view>

#include "store/cloud/request.h"
#include "store/http/protocol.h"

namespace headrace {

class CloudProtocol : public ObjectProtocol {
 public:
  std::string identity() const final { return bucket_ + root_.below(); }
  HttpRequest look_up(std::string_view key) override;

 protected:
  // `bucket` is equal for all that reach one: "s3|endpoint|name". The keys lie below `path` in it.
  CloudProtocol(std::string bucket, std::string path)
      : root_(std::move(path)), bucket_(std::move(bucket)) {}

  // The URL of the bucket, without a slash at its end.
  virtual std::string base() const = 0;
  // With what each request has, and its signature.
  virtual HttpRequest finished(HttpRequest request) const = 0;

  // To be finished. `query` begins with "?".
  HttpRequest about(std::string_view method,
                    std::string_view key,
                    std::string_view query = "") const;
  HttpRequest get_of(std::string_view key, const Extent& extent) const;
  HttpRequest put_of(std::string_view key,
                     std::string_view query,
                     std::span<const ConstBytes> parts) const;

  const KeyRoot root_;

 private:
  const std::string bucket_;
};

// If-None-Match or If-Match.
void add_condition(HttpRequest& request, const WriteCondition& condition);
// If-Match, which no weak ETag (of a proxy that packs) ever holds: of those the answer's version is
// compared, as it always is.
void add_read_condition(HttpRequest& request, const std::string& if_version);

// What S3 and the XML API of Google Cloud Storage have in common: lists, and uploads in parts.
class S3Dialect : public CloudProtocol {
 public:
  HttpRequest list(std::string_view prefix, bool delimiter, const std::string& from) final;
  HttpRequest begin_upload(std::string_view key) final;
  std::string upload_of(const HttpResponse& response) final;
  HttpRequest put_part(std::string_view key,
                       const std::string& upload,
                       int number,
                       std::span<const ConstBytes> part) final;
  std::string part_of(const HttpResponse& response) override;
  HttpRequest finish_upload(std::string_view key,
                            const std::string& upload,
                            std::span<const std::string> parts,
                            const WriteCondition& condition) override;
  // The status is sent before it is known, and a connection that ends then leaves an empty answer.
  bool says_finished(const HttpResponse& response) const final;
  HttpRequest abort_upload(std::string_view key, const std::string& upload) final;
  // An answer that begins before it is known how it ends is 200, whatever came of it.
  void check_answer(const HttpResponse& response) const override;
  bool is_missing_object(const HttpRequest& asked, const HttpResponse& response) const final;

 protected:
  using CloudProtocol::CloudProtocol;

  // What is asked for lists.
  virtual std::string listed_url() const = 0;
  virtual void announce_checksum(HttpRequest&) const {}  // of an upload that begins
  virtual void add_part_checksum(HttpRequest& request) const = 0;
  // Without secrets, were the server to say them.
  virtual std::string scrubbed(std::string text) const = 0;
};

}  // namespace headrace
