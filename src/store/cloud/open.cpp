#include "store/cloud/open.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "headrace/error.h"
#include "store/cloud/option_names.h"
#include "store/http/driver.h"
#include "store/http/open.h"
#include "store/store.h"

namespace headrace {

namespace {

enum class Cloud { s3, gcs, azure, none };

Cloud cloud_of(std::string_view scheme) {
  if (scheme == "s3" || scheme == "s3a") return Cloud::s3;
  if (scheme == "gs" || scheme == "gcs") return Cloud::gcs;
  if (scheme == "az" || scheme == "azure" || scheme == "abfs" || scheme == "abfss") {
    return Cloud::azure;
  }
  return Cloud::none;
}

// As obstore has them, in a dict of their own, or beside the others.
HttpOptions take_client_options(OptionReader& options) {
  std::optional<OptionReader> client = take_nested(options, "client_options");
  if (!client) return take_http_options(options);
  take_flag(*client, {"allow_http"});  // an endpoint says so itself
  const HttpOptions http = take_http_options(*client);
  client->finish("an HTTP");
  return http;
}

// Whether there is nothing below the root: mode w- promises not to meet anything.
void check_empty(ObjectProtocol& protocol, HttpClient& client, const std::string& place) {
  protocol.prepare();
  HttpRequest request = protocol.list("", true, "");
  const HttpResponse response = client.ask(request);
  if (response.error) std::rethrow_exception(response.error);
  if (!response.ok()) throw protocol.error_of(request, response);
  const ListPage page = protocol.page_of(response);
  if (!page.objects.empty() || !page.prefixes.empty()) {
    refuse_place(ErrorCode::invalid_argument, place, "exists and is not empty (mode w-)");
  }
}

// "account.dfs.core.windows.net": what speaks of blobs has another name.
std::string blob_host(std::string host) {
  const std::string_view files = ".dfs.";
  if (const std::size_t at = host.find(files); at != std::string::npos) {
    host.replace(at, files.size(), ".blob.");
  }
  return host;
}

}  // namespace

CloudPlace parse_cloud_place(std::string_view scheme, std::string_view place) {
  std::string_view rest = place.substr(place.find("://") + 3);
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  CloudPlace parsed;
  parsed.bucket = std::string(rest.substr(0, slash));
  std::string_view prefix = rest.substr(std::min(slash + 1, rest.size()));
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  parsed.prefix = std::string(prefix);

  const std::size_t at = parsed.bucket.rfind('@');
  if (at != std::string::npos && cloud_of(scheme) == Cloud::azure) {
    parsed.host = blob_host(parsed.bucket.substr(at + 1));
    const bool is_host = std::ranges::all_of(parsed.host, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '.' || c == '-' || c == '_' || c == ':';
    });
    if (!is_host || parsed.host.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  "store " + std::string(scheme) + "://: wants a host behind the @, as in " +
                      std::string(scheme) + "://container@account.dfs.core.windows.net/a.zarr");
    }
    parsed.bucket.resize(at);
    parsed.account = parsed.host.substr(0, parsed.host.find('.'));
  } else if (at != std::string::npos) {
    // What stands in front of it may be a password, and is not said.
    throw Error(ErrorCode::invalid_argument,
                "store " + std::string(scheme) + "://...@" + parsed.bucket.substr(at + 1) +
                    ": keys do not stand in a URL, but in storage_options");
  }
  if (parsed.bucket.empty() || parsed.bucket.find_first_of(":@?#\\ ") != std::string::npos ||
      key_fault(parsed.bucket) != nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "store " + std::string(scheme) + "://: wants a bucket, as in " +
                    std::string(scheme) + "://bucket/a.zarr");
  }
  if (parsed.prefix.starts_with('/')) {
    throw Error(ErrorCode::invalid_argument,
                "store " + std::string(place) +
                    ": objects whose names begin with a slash are not read; one slash behind the "
                    "bucket is meant?");
  }
  for (const std::string_view segment : {std::string_view(".."), std::string_view(".")}) {
    // A server, or a proxy in front of it, may take it for a way elsewhere.
    const std::string within = "/" + parsed.prefix + "/";
    if (within.find("/" + std::string(segment) + "/") != std::string::npos) {
      throw Error(
          ErrorCode::invalid_argument,
          "store " + std::string(place) + ": \"" + std::string(segment) + "\" is no part of a key");
    }
  }
  return parsed;
}

namespace {

template <typename Options>
void add_protocols(RemoteParts& parts,
                   Options options,
                   bool proves,
                   std::shared_ptr<ObjectProtocol> (*make)(Options)) {
  parts.protocol = make(options);
  if (!proves) return;
  if constexpr (std::is_same_v<Options, GcsOptions>) {
    options.tokens = nullptr;
    options.hmac.reset();
  } else {
    options.credentials = {};
  }
  parts.anonymous = make(std::move(options));
}

}  // namespace

std::optional<RemoteParts> cloud_parts(std::string_view scheme,
                                       std::string_view place,
                                       OptionReader& options,
                                       const HttpAdjustment& adjust) {
  const Cloud cloud = cloud_of(scheme);
  if (cloud == Cloud::none) return std::nullopt;
  const CloudPlace parsed = parse_cloud_place(scheme, place);
  RemoteParts parts;
  parts.http = take_client_options(options);
  if (adjust) adjust(parts.http);
  const Surroundings around = real_surroundings(parts.http);
  if (cloud == Cloud::s3) {
    const S3Options s3 = take_s3_options(parsed, options, around);
    options.finish("an S3");
    add_protocols(parts, s3, s3.credentials != nullptr, make_s3_protocol);
  } else if (cloud == Cloud::gcs) {
    const GcsOptions gcs = take_gcs_options(parsed, options, around);
    options.finish("a Google Cloud");
    add_protocols(parts, gcs, gcs.tokens != nullptr || gcs.hmac, make_gcs_protocol);
  } else {
    const AzureOptions azure = take_azure_options(parsed, options, around);
    options.finish("an Azure");
    const AzureCredentials& has = azure.credentials;
    const bool proves = !has.account_key.empty() || !has.sas.empty() || has.tokens != nullptr;
    add_protocols(parts, azure, proves, make_azure_protocol);
  }
  return parts;
}

std::shared_ptr<StoreDriver> open_cloud(std::string_view scheme,
                                        std::string_view place,
                                        StoreMode mode,
                                        OptionReader& options) {
  std::optional<RemoteParts> parts = cloud_parts(scheme, place, options);
  if (!parts) return nullptr;
  const std::shared_ptr<ObjectProtocol> protocol = std::move(parts->protocol);
  std::shared_ptr<HttpClient> client = make_http_client(parts->http);
  if (mode == StoreMode::create) check_empty(*protocol, *client, protocol->url());
  return make_http_driver(protocol,
                          std::move(client),
                          mode == StoreMode::read ? HttpAccess::read_only : HttpAccess::read_write);
}

}  // namespace headrace
