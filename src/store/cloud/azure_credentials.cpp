#include "store/cloud/azure_credentials.h"

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <map>
#include <utility>
#include <vector>

#include "headrace/error.h"
#include "store/cloud/digest.h"
#include "store/cloud/request.h"
#include "store/store.h"

namespace headrace {

namespace {

constexpr char kResource[] = "https://storage.azure.com/";

std::string header_of(const HttpRequest& request, std::string_view name) {
  for (const HttpHeader& header : request.headers) {
    if (lower(header.name) == name) return header.value;
  }
  return "";
}

// "Mon, 23 Nov 2026 07:00:00 GMT", in English whatever the locale.
std::string http_date(SystemTime time) {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {
      "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  const std::size_t nbytes = std::strftime(text, sizeof text, ", %d @ %Y %H:%M:%S GMT", &parts);
  std::string out = kDays[parts.tm_wday] + std::string(text, nbytes);
  return out.replace(out.find('@'), 1, kMonths[parts.tm_mon]);
}

std::string trim_slashes(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

}  // namespace

std::string shared_key_text(const HttpRequest& request, const std::string& account) {
  const std::uint64_t nbytes = total_size(request.body);
  std::string out = request.method + "\n";
  out += header_of(request, "content-encoding") + "\n";
  out += header_of(request, "content-language") + "\n";
  out += (nbytes == 0 ? "" : std::to_string(nbytes)) + "\n";
  out += header_of(request, "content-md5") + "\n";
  out += header_of(request, "content-type") + "\n";
  out += "\n";  // Date: x-ms-date stands for it
  out += header_of(request, "if-modified-since") + "\n";
  out += header_of(request, "if-match") + "\n";
  out += header_of(request, "if-none-match") + "\n";
  out += header_of(request, "if-unmodified-since") + "\n";
  out += header_of(request, "range") + "\n";

  std::map<std::string, std::string> own;
  for (const HttpHeader& header : request.headers) {
    if (std::string name = lower(header.name); name.starts_with("x-ms-")) {
      own[std::move(name)] = header.value;
    }
  }
  for (const auto& [name, value] : own) out += name + ":" + value + "\n";

  std::string_view rest = request.url;
  rest.remove_prefix(rest.find("://") + 3);
  rest.remove_prefix(std::min(rest.find_first_of("/?"), rest.size()));
  const std::size_t question = std::min(rest.find('?'), rest.size());
  const std::string_view path = rest.substr(0, question);
  out += "/" + account + (path.empty() ? "/" : std::string(path));
  std::map<std::string, std::vector<std::string>> query;
  rest.remove_prefix(std::min(question + 1, rest.size()));
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view item = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t equals = std::min(item.find('='), item.size());
    query[lower(uri_decode(item.substr(0, equals)))].push_back(
        uri_decode(item.substr(std::min(equals + 1, item.size()))));
  }
  for (auto& [name, values] : query) {
    std::sort(values.begin(), values.end());
    out += "\n" + name + ":";
    for (std::size_t i = 0; i < values.size(); ++i) out += (i == 0 ? "" : ",") + values[i];
  }
  return out;
}

void sign_shared_key(HttpRequest& request,
                     const std::string& account,
                     const std::string& key,
                     SystemTime now) {
  set_header(request, "x-ms-date", http_date(now));
  set_header(
      request,
      "Authorization",
      "SharedKey " + account + ":" + base64(hmac_sha256(key, shared_key_text(request, account))));
}

std::map<std::string, std::string> parse_connection_string(std::string_view text) {
  std::map<std::string, std::string> fields;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(';'), text.size());
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (item.empty()) continue;
    // Keys end with "=" signs of their own.
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      throw Error(ErrorCode::invalid_argument,
                  "connection_string: wanted \"Name=value;Name=value\"");
    }
    fields[lower(item.substr(0, equals))] = std::string(item.substr(equals + 1));
  }
  return fields;
}

std::shared_ptr<Tokens> azure_client_tokens(const AzureClient& client, const Surroundings& around) {
  const std::string authority = trim_slashes(
      around.variable("AZURE_AUTHORITY_HOST").value_or("https://login.microsoftonline.com"));
  const std::string url =
      authority + "/" + uri_encode(client.tenant_id, Slash::encoded) + "/oauth2/v2.0/token";
  return std::make_shared<Tokens>([=, sender = around.client] {
    FormFields fields{{"grant_type", "client_credentials"},
                      {"client_id", client.client_id},
                      {"scope", std::string(kResource) + ".default"}};
    if (!client.client_secret.empty()) {
      fields.emplace_back("client_secret", client.client_secret);
    } else {
      const std::optional<std::string> token = read_small_file(client.federated_token_file);
      if (!token) {
        throw Error(ErrorCode::permission_denied,
                    "Azure credentials: there is no file " + client.federated_token_file +
                        " with a federated token");
      }
      fields.emplace_back("client_assertion_type",
                          "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
      fields.emplace_back("client_assertion", *token);
    }
    return ask_for_token(
        *sender, url, fields, "Microsoft Entra for the client " + client.client_id);
  });
}

std::shared_ptr<Tokens> azure_managed_tokens(const std::string& client_id,
                                             const Surroundings& around) {
  const auto endpoint = around.variable("IDENTITY_ENDPOINT");
  const auto secret = around.variable("IDENTITY_HEADER");
  const bool of_service = endpoint && secret;  // App Service, Functions, Container Apps
  const std::string host =
      around.variable("AZURE_POD_IDENTITY_AUTHORITY_HOST").value_or("http://169.254.169.254");
  std::string url =
      of_service ? *endpoint + "?api-version=2019-08-01"
                 : trim_slashes(host) + "/metadata/identity/oauth2/token?api-version=2018-02-01";
  url += "&resource=" + uri_encode(kResource, Slash::encoded);
  if (!client_id.empty()) url += "&client_id=" + uri_encode(client_id, Slash::encoded);
  return std::make_shared<Tokens>([=, client = around.local_client] {
    HttpRequest request;
    request.url = url;
    if (of_service) {
      request.headers = {{"X-IDENTITY-HEADER", *secret}};
    } else {
      request.headers = {{"Metadata", "true"}};
    }
    const HttpResponse answer = client->ask(std::move(request));
    const std::string who = "the machine's managed identity";
    expect_service(answer,
                   who,
                   "Azure credentials: none were found in options, in the environment "
                   "(AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, "
                   "AZURE_STORAGE_CONNECTION_STRING, AZURE_CLIENT_ID) or of a managed identity. A "
                   "public container is read with anon=true");
    return token_of(answer, who);
  });
}

}  // namespace headrace
