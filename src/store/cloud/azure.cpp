#include "store/cloud/azure.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <random>
#include <utility>

#include "headrace/error.h"
#include "store/cloud/cloud_protocol.h"
#include "store/cloud/digest.h"
#include "store/cloud/s3_xml.h"
#include "store/cloud/xml.h"

namespace headrace {

namespace {

// The first that has lists with encoded names is 2021-02-12; large single writes came before.
constexpr char kVersion[] = "2021-12-02";

// A list has ETags bare, headers have them in quotes.
std::string quoted(std::string etag) {
  if (etag.empty() || etag.ends_with('"')) return etag;
  return '"' + std::move(etag) + '"';
}

// Unique to an upload, so that two writers of one blob do not take each other's blocks. All ids of
// a blob's blocks have one length.
std::string new_upload() {
  std::random_device random;
  std::string bytes;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = random();
    bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  return hex(bytes);
}

std::string block_id(const std::string& upload, std::size_t number) {
  const std::string digits = std::to_string(number);
  return base64(upload + "-" + std::string(6 - std::min<std::size_t>(6, digits.size()), '0') +
                digits);
}

// "sig=..." of a shared access signature.
std::string signature_of(std::string_view sas) {
  constexpr std::string_view kName = "sig=";
  for (std::size_t at = 0; at < sas.size();) {
    const std::size_t end = std::min(sas.find('&', at), sas.size());
    const std::string_view field = sas.substr(at, end - at);
    if (field.starts_with(kName)) return std::string(field.substr(kName.size()));
    at = end + 1;
  }
  return "";
}

// As URLs have it. A pickle opens this place again: that of the same cloud.
std::string files_host(const AzureOptions& options) {
  if (options.host.empty()) return options.account + ".dfs.core.windows.net";
  std::string host = options.host;
  const std::string_view blobs = ".blob.";
  if (const std::size_t at = host.find(blobs); at != std::string::npos) {
    host.replace(at, blobs.size(), ".dfs.");
  }
  return host;
}

class AzureProtocol final : public CloudProtocol {
 public:
  explicit AzureProtocol(AzureOptions options)
      : CloudProtocol("az|" + options.endpoint + "|" + options.container, options.prefix),
        options_(std::move(options)) {}

  std::string url() const override {
    return "abfss://" + options_.container + "@" + files_host(options_) + root_.below();
  }

  ProtocolAbilities abilities() const override {
    ProtocolAbilities abilities;
    abilities.suffix_ranges = false;
    return abilities;
  }

  std::uint64_t credentials() const override {
    return options_.credentials.tokens ? options_.credentials.tokens->number() : 0;
  }

  bool have_ended(const HttpResponse& response, std::uint64_t credentials) override {
    if (response.status != 401 || !options_.credentials.tokens) return false;
    options_.credentials.tokens->doubt(credentials);
    return true;
  }

  void prepare() override {
    if (options_.credentials.tokens) options_.credentials.tokens->get();
  }

  HttpRequest read(std::string_view key,
                   const Extent& extent,
                   const std::string& if_version) override {
    HttpRequest request = get_of(key, extent);
    add_read_condition(request, if_version);
    return finished(std::move(request));
  }

  HttpRequest put(std::string_view key,
                  std::span<const ConstBytes> parts,
                  const WriteCondition& condition) override {
    HttpRequest request = put_of(key, "", parts);
    request.headers.push_back({"x-ms-blob-type", "BlockBlob"});
    add_condition(request, condition);
    return finished(std::move(request));
  }

  HttpRequest erase(std::span<const std::string> keys) override {
    HttpRequest request = about("DELETE", keys.front());
    // Without it a blob that has snapshots can not be erased.
    request.headers.push_back({"x-ms-delete-snapshots", "include"});
    return finished(std::move(request));
  }

  HttpRequest erase_if(std::string_view key, const std::string& version) override {
    const std::string name(key);
    HttpRequest request = erase({&name, 1});
    add_condition(request, WriteCondition::if_version(version));
    return request;
  }

  // Of names of metadata those of C#'s identifiers are allowed.
  const char* write_name_header() const override { return "x-ms-meta-headrace_write"; }

  HttpRequest list(std::string_view prefix, bool delimiter, const std::string& from) override {
    HttpRequest request;
    request.url = base() + "?restype=container&comp=list&maxresults=5000&prefix=" +
                  uri_encode(root_.prefix(prefix), Slash::encoded);
    if (delimiter) request.url += "&delimiter=%2F";
    if (!from.empty()) request.url += "&marker=" + uri_encode(from, Slash::encoded);
    return finished(std::move(request));
  }

  // Blocks are sent without a beginning.
  HttpRequest begin_upload(std::string_view) override {
    HttpRequest nothing;
    nothing.method.clear();
    return nothing;
  }

  std::string upload_of(const HttpResponse&) override { return new_upload(); }

  HttpRequest put_part(std::string_view key,
                       const std::string& upload,
                       int number,
                       std::span<const ConstBytes> part) override {
    const std::string id = block_id(upload, static_cast<std::size_t>(number));
    return finished(put_of(key, "?comp=block&blockid=" + uri_encode(id, Slash::encoded), part));
  }

  std::string part_of(const HttpResponse&) override { return "block"; }  // its id says which

  HttpRequest finish_upload(std::string_view key,
                            const std::string& upload,
                            std::span<const std::string> parts,
                            const WriteCondition& condition) override {
    HttpRequest request = about("PUT", key, "?comp=blocklist");
    std::string body = R"(<?xml version="1.0" encoding="utf-8"?><BlockList>)";
    for (std::size_t i = 0; i < parts.size(); ++i) {
      body += "<Latest>" + block_id(upload, i + 1) + "</Latest>";
    }
    set_body(request, body + "</BlockList>");
    request.headers.push_back({"Content-Type", "text/plain; charset=UTF-8"});
    request.headers.push_back({"x-ms-blob-content-type", "application/octet-stream"});
    request.repeatable = false;
    add_condition(request, condition);
    return finished(std::move(request));
  }

  // Azure drops blocks that nobody listed after a week; there is no request for it.
  HttpRequest abort_upload(std::string_view, const std::string&) override {
    HttpRequest nothing;
    nothing.method.clear();
    return nothing;
  }

  std::string version_of(const HttpResponse& response) const override {
    return header_or_empty(response, "etag");
  }

  ListPage page_of(const HttpResponse& response) const override;

  void check_erased(const HttpResponse&) const override {}  // one at a time: the status says it

  bool is_missing_object(const HttpRequest&, const HttpResponse& response) const override {
    const std::string& code = header_or_empty(response, "x-ms-error-code");
    return code == "BlobNotFound" || code == "PathNotFound";  // of folders that are real ones
  }

  Error error_of(const HttpRequest& request, const HttpResponse& response) const override;

 private:
  std::string base() const override {
    return options_.endpoint + "/" + uri_encode(options_.container, Slash::encoded);
  }

  HttpRequest finished(HttpRequest request) const override {
    request.headers.push_back({"x-ms-version", kVersion});
    const AzureCredentials& credentials = options_.credentials;
    if (!credentials.account_key.empty()) {
      request.sign = [account = options_.account,
                      key = credentials.account_key](HttpRequest& attempt) {
        sign_shared_key(attempt, account, key, std::chrono::system_clock::now());
      };
    } else if (!credentials.sas.empty()) {
      request.url += (request.url.find('?') == std::string::npos ? "?" : "&") + credentials.sas;
    } else if (credentials.tokens) {
      request.sign = bearer_signing(credentials.tokens);
    }
    return request;
  }

  // A server may name the whole signature, the part of it that signs, or that decoded.
  std::string scrubbed(std::string text) const {
    const AzureCredentials& credentials = options_.credentials;
    const std::shared_ptr<const std::string> token =
        credentials.tokens ? credentials.tokens->latest() : nullptr;
    const std::string key = base64(credentials.account_key);
    const std::string signature = signature_of(credentials.sas);
    const std::string decoded = uri_decode(signature);
    const std::array<std::string_view, 5> secrets{
        credentials.sas, signature, decoded, key, token ? std::string_view(*token) : ""};
    return scrub(std::move(text), secrets);
  }

  bool anonymous() const {
    const AzureCredentials& credentials = options_.credentials;
    return credentials.account_key.empty() && credentials.sas.empty() && !credentials.tokens;
  }

  const AzureOptions options_;
};

ListPage AzureProtocol::page_of(const HttpResponse& response) const {
  ListPage page;
  std::vector<ListedObject> objects;
  bool in_prefix = false;
  bool seen = false;
  XmlReader xml(text_of(response.body.bytes()));
  const auto name_text = [&xml] {
    const bool encoded = xml.attribute("Encoded") == "true";
    std::string text = xml.text();
    return encoded ? uri_decode(text) : text;
  };
  while (xml.next()) {
    const std::string_view name = xml.name();
    if (name == "EnumerationResults") seen = true;
    if (name == "NextMarker") page.next = xml.text();
    if (name == "BlobPrefix") in_prefix = true;
    if (name == "Blob") {
      in_prefix = false;
      objects.emplace_back();
    }
    if (name == "Name" && in_prefix) {
      root_.add_prefix(page, name_text());
    } else if (name == "Name" && !objects.empty()) {
      objects.back().key = name_text();
    } else if (name == "Etag" && !objects.empty()) {
      objects.back().version = quoted(xml.text());
    } else if (name == "Last-Modified" && !objects.empty()) {
      objects.back().written = within_second(http_time(xml.text()));
    } else if (name == "Content-Length" && !objects.empty()) {
      const std::string text = xml.text();
      const auto [end, error] =
          std::from_chars(text.data(), text.data() + text.size(), objects.back().nbytes);
      if (error != std::errc() || end != text.data() + text.size()) {
        throw Error(ErrorCode::corrupt, "a list has a blob of size \"" + text + "\"");
      }
    }
  }
  if (!seen) throw Error(ErrorCode::corrupt, "a list was asked for, something else came");
  for (ListedObject& object : objects) root_.add_object(page, std::move(object));
  return page;
}

Error AzureProtocol::error_of(const HttpRequest& request, const HttpResponse& response) const {
  ServerError error = parse_server_error(response.body);
  // Where an answer has no body.
  if (error.code.empty()) error.code = header_or_empty(response, "x-ms-error-code");
  if (response.status == 401 && options_.credentials.tokens) options_.credentials.tokens->doubt();
  ErrorCode code = ErrorCode::io;
  std::string advice;
  if (response.status == 412 || response.status == 409 || error.code == "InvalidBlockList") {
    // Whoever lists blocks first drops those of the others.
    code = ErrorCode::conflict;
    advice = "another writer was there before";
  } else if (response.status == 401 || response.status == 403) {
    code = ErrorCode::permission_denied;
    if (anonymous()) {
      advice = "it is not public: give credentials (account_key, sas_token, connection_string)";
    } else if (error.code == "AuthenticationFailed") {
      advice =
          "the key is not that of the account, what is signed or the token has expired, or "
          "this machine's clock is wrong (the server says " +
          header_or_empty(response, "date") + ")";
    } else {
      advice = "these credentials do not allow it";
    }
  } else if (response.status == 404 && error.code.empty()) {
    advice = kAnsweredByAnother;
  } else if (response.status == 404) {
    // Of a missing container that is public to nobody, too.
    if (error.code.ends_with("NotFound")) code = ErrorCode::not_found;
    if (error.code == "ContainerNotFound") advice = "there is no such container";
  }
  return Error(code,
               scrubbed(url() + ": " + request_line(request) + " answered " +
                        described(error, response.status) + (advice.empty() ? "" : ": " + advice)));
}

}  // namespace

std::shared_ptr<ObjectProtocol> make_azure_protocol(AzureOptions options) {
  return std::make_shared<AzureProtocol>(std::move(options));
}

}  // namespace headrace
