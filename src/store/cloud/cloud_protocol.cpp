#include "store/cloud/cloud_protocol.h"

#include <algorithm>
#include <utility>

#include "headrace/error.h"
#include "store/cloud/digest.h"
#include "store/cloud/request.h"
#include "store/cloud/s3_xml.h"
#include "store/http/content_range.h"

namespace headrace {

namespace {

constexpr char kObjectType[] = "application/octet-stream";
// Of an error in an answer of success.
constexpr std::size_t kLongestError = 64 << 10;

}  // namespace

HttpRequest CloudProtocol::about(std::string_view method,
                                 std::string_view key,
                                 std::string_view query) const {
  HttpRequest request;
  request.method = method;
  request.url = base() + "/" + uri_encode(root_.object(key), Slash::kept);
  request.url += query;
  return request;
}

HttpRequest CloudProtocol::get_of(std::string_view key, const Extent& extent) const {
  HttpRequest request = about("GET", key);
  if (std::string range = range_header(extent); !range.empty()) {
    request.headers.push_back({"Range", std::move(range)});
  }
  return request;
}

HttpRequest CloudProtocol::put_of(std::string_view key,
                                  std::string_view query,
                                  std::span<const ConstBytes> parts) const {
  HttpRequest request = about("PUT", key, query);
  request.body.assign(parts.begin(), parts.end());
  request.headers.push_back({"Content-Type", kObjectType});
  return request;
}

HttpRequest CloudProtocol::look_up(std::string_view key) { return finished(about("HEAD", key)); }

void add_condition(HttpRequest& request, const WriteCondition& condition) {
  switch (condition.kind) {
    case WriteCondition::Kind::none:
      return;
    case WriteCondition::Kind::missing:
      request.headers.push_back({"If-None-Match", "*"});
      break;
    case WriteCondition::Kind::version:
      request.headers.push_back({"If-Match", condition.version});
      break;
  }
  // A second try of one that was carried out finds its own object in the way.
  request.repeatable = false;
}

void add_read_condition(HttpRequest& request, const std::string& if_version) {
  if (if_version.empty() || if_version.starts_with("W/")) return;
  request.headers.push_back({"If-Match", if_version});
}

HttpRequest S3Dialect::list(std::string_view prefix, bool delimiter, const std::string& from) {
  HttpRequest request;
  request.url = listed_url() + "?list-type=2&encoding-type=url&max-keys=1000&prefix=" +
                uri_encode(root_.prefix(prefix), Slash::encoded);
  if (delimiter) request.url += "&delimiter=%2F";
  if (!from.empty()) request.url += "&continuation-token=" + uri_encode(from, Slash::encoded);
  return finished(std::move(request));
}

namespace {

std::string query_of(const std::string& upload) {
  return "?uploadId=" + uri_encode(upload, Slash::encoded);
}

}  // namespace

HttpRequest S3Dialect::begin_upload(std::string_view key) {
  HttpRequest request = about("POST", key, "?uploads=");
  request.headers.push_back({"Content-Type", kObjectType});
  announce_checksum(request);
  return finished(std::move(request));
}

std::string S3Dialect::upload_of(const HttpResponse& response) {
  return parse_upload_id(response.body);
}

HttpRequest S3Dialect::put_part(std::string_view key,
                                const std::string& upload,
                                int number,
                                std::span<const ConstBytes> part) {
  HttpRequest request = put_of(
      key,
      "?partNumber=" + std::to_string(number) + "&uploadId=" + uri_encode(upload, Slash::encoded),
      part);
  add_part_checksum(request);
  return finished(std::move(request));
}

std::string S3Dialect::part_of(const HttpResponse& response) {
  const std::string& etag = header_or_empty(response, "etag");
  if (etag.empty()) {
    throw Error(ErrorCode::corrupt, url() + ": a part was stored, an answer without ETag came");
  }
  return etag;
}

HttpRequest S3Dialect::finish_upload(std::string_view key,
                                     const std::string& upload,
                                     std::span<const std::string> parts,
                                     const WriteCondition& condition) {
  HttpRequest request = about("POST", key, query_of(upload));
  set_body(request, upload_parts_xml(parts));
  request.headers.push_back({"Content-Type", "application/xml"});
  add_condition(request, condition);
  // Of one that was carried out there is no upload any more.
  request.repeatable = false;
  return finished(std::move(request));
}

bool S3Dialect::says_finished(const HttpResponse& response) const {
  return is_upload_result(response.body);
}

void S3Dialect::check_answer(const HttpResponse& response) const {
  // What was stored by this library has this type, whatever it looks like.
  if (header_or_empty(response, "content-type") == kObjectType) return;
  // Blanks keep the connection open until it is known.
  const std::string_view body = text_of(response.body.bytes());
  const std::size_t begin = body.find_first_not_of(" \t\r\n");
  if (begin == body.npos || body[begin] != '<' || body.size() - begin > kLongestError) return;
  const ServerError error = parse_server_error(bytes_of(body.substr(begin)));
  if (!error.is_document) return;
  throw Error(ErrorCode::io, scrubbed(url() + ": " + described(error, response.status)));
}

bool S3Dialect::is_missing_object(const HttpRequest& asked, const HttpResponse& response) const {
  if (asked.method == "HEAD") return true;  // which is answered without a word
  const ServerError error = parse_server_error(response.body);
  // There are as many others as there are servers: of buckets, accounts, methods.
  if (error.is_document) {
    return error.code == "NoSuchKey" || (asked.method == "DELETE" && error.code == "NoSuchVersion");
  }
  if (response.cut_short) return false;
  if (text_of(response.body.bytes()) == "Not Found\n") return true;  // of fake-gcs-server
  return std::ranges::any_of(response.headers, [](const HttpHeader& header) {
    const std::string name = lower(header.name);
    return name.starts_with("x-amz") || name.starts_with("x-goog-") ||
           name.starts_with("x-guploader-");
  });
}

HttpRequest S3Dialect::abort_upload(std::string_view key, const std::string& upload) {
  return finished(about("DELETE", key, query_of(upload)));
}

}  // namespace headrace
