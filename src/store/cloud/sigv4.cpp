#include "store/cloud/sigv4.h"

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <map>
#include <utility>
#include <vector>

#include "store/cloud/digest.h"
#include "store/cloud/request.h"

namespace headrace {

const SigningDialect kAwsSigning{"AWS4-HMAC-SHA256",
                                 "AWS4",
                                 "aws4_request",
                                 "x-amz-date",
                                 "x-amz-content-sha256",
                                 "x-amz-security-token"};
const SigningDialect kGoogleSigning{"GOOG4-HMAC-SHA256",
                                    "GOOG4",
                                    "goog4_request",
                                    "x-goog-date",
                                    "x-goog-content-sha256",
                                    "x-goog-security-token"};

namespace {

// What is set by the client or changed by proxies; AWS's own libraries leave out the same.
constexpr std::string_view kUnsigned[] = {
    "authorization", "connection", "expect", "transfer-encoding", "user-agent", "x-amzn-trace-id"};

struct UrlParts {
  std::string host;
  std::string_view path;
  std::string_view query;
};

// As libcurl makes the header of it: without a port that the scheme implies.
std::string host_header(std::string_view scheme, std::string_view authority) {
  authority.remove_prefix(authority.rfind('@') + 1);  // npos + 1 is 0
  const std::string_view implied = scheme == "https" ? ":443" : ":80";
  if (authority.ends_with(implied)) authority.remove_suffix(implied.size());
  return std::string(authority);
}

UrlParts parts_of(std::string_view url) {
  UrlParts parts;
  const std::size_t scheme_end = url.find("://");
  const std::string_view scheme = url.substr(0, scheme_end);
  std::string_view rest = url.substr(scheme_end + 3);
  const std::size_t authority_end = std::min(rest.find_first_of("/?"), rest.size());
  parts.host = host_header(scheme, rest.substr(0, authority_end));
  rest.remove_prefix(authority_end);
  const std::size_t question = rest.find('?');
  parts.path = rest.substr(0, question);
  if (question != std::string_view::npos) parts.query = rest.substr(question + 1);
  return parts;
}

std::string canonical_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view item = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (item.empty()) continue;
    const std::size_t equals = item.find('=');
    pairs.emplace_back(uri_encode_rest(item.substr(0, equals), Slash::encoded),
                       equals == std::string_view::npos
                           ? std::string()
                           : uri_encode_rest(item.substr(equals + 1), Slash::encoded));
  }
  std::sort(pairs.begin(), pairs.end());
  std::string out;
  for (const auto& [name, value] : pairs) {
    if (!out.empty()) out += '&';
    out += name + "=" + value;
  }
  return out;
}

// Without spaces around it, and one where there are several.
std::string trimmed(std::string_view value) {
  std::string out;
  for (const char c : value) {
    const bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!space) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

std::map<std::string, std::string> canonical_headers(const HttpRequest& request) {
  std::map<std::string, std::string> headers;
  headers["host"] = parts_of(request.url).host;
  for (const HttpHeader& header : request.headers) {
    std::string name = lower(header.name);
    if (std::find(std::begin(kUnsigned), std::end(kUnsigned), name) != std::end(kUnsigned)) {
      continue;
    }
    std::string value = trimmed(header.value);
    const auto [at, added] = headers.try_emplace(std::move(name), value);
    if (!added && at->first == "host") {
      at->second = std::move(value);
    } else if (!added) {
      at->second += "," + value;
    }
  }
  return headers;
}

std::string signed_names(const std::map<std::string, std::string>& headers) {
  std::string names;
  for (const auto& [name, value] : headers) {
    if (!names.empty()) names += ';';
    names += name;
  }
  return names;
}

}  // namespace

std::string compact_time(SystemTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const std::size_t nbytes = std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts);
  return {text, nbytes};
}

std::string canonical_request(const HttpRequest& request, std::string_view payload_hash) {
  const UrlParts parts = parts_of(request.url);
  const std::map<std::string, std::string> headers = canonical_headers(request);
  std::string out = request.method + "\n";
  out += parts.path.empty() ? "/" : uri_encode_rest(parts.path, Slash::kept);
  out += "\n" + canonical_query(parts.query) + "\n";
  for (const auto& [name, value] : headers) out += name + ":" + value + "\n";
  out += "\n" + signed_names(headers) + "\n";
  out += payload_hash;
  return out;
}

void sign_v4(HttpRequest& request,
             const AwsKeys& keys,
             const SigningScope& scope,
             SystemTime now,
             std::string_view payload_hash,
             ContentHeader content) {
  const SigningDialect& dialect = scope.dialect;
  const std::string time = compact_time(now);
  const std::string date = time.substr(0, 8);
  set_header(request, dialect.date_header, time);
  if (content == ContentHeader::sent) {
    set_header(request, dialect.content_header, std::string(payload_hash));
  }
  if (!keys.session_token.empty()) {
    set_header(request, dialect.token_header, keys.session_token);
  } else {
    remove_header(request, dialect.token_header);
  }

  const std::string place =
      date + "/" + scope.region + "/" + scope.service + "/" + std::string(dialect.scope_end);
  const std::string to_sign = std::string(dialect.algorithm) + "\n" + time + "\n" + place + "\n" +
                              hex(sha256(canonical_request(request, payload_hash)));
  std::string key = std::string(dialect.key_prefix) + keys.secret_access_key;
  key = hmac_sha256(key, date);
  key = hmac_sha256(key, scope.region);
  key = hmac_sha256(key, scope.service);
  key = hmac_sha256(key, dialect.scope_end);
  set_header(request,
             "Authorization",
             std::string(dialect.algorithm) + " Credential=" + keys.access_key_id + "/" + place +
                 ", SignedHeaders=" + signed_names(canonical_headers(request)) +
                 ", Signature=" + hex(hmac_sha256(key, to_sign)));
}

}  // namespace headrace
