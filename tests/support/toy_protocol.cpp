#include "support/toy_protocol.h"

#include <sstream>

#include "store/http/plain.h"
#include "support/http_server.h"

namespace headrace::test {

namespace {

class ToyProtocol final : public ObjectProtocol {
 public:
  ToyProtocol(std::string url, const ProtocolAbilities& abilities, std::string secret)
      : url_(std::move(url)),
        abilities_(abilities),
        secret_(std::move(secret)),
        plain_(make_plain_protocol(url_, {})) {}

  std::string url() const override { return url_; }
  std::string identity() const override { return url_; }
  ProtocolAbilities abilities() const override { return abilities_; }

  HttpRequest read(std::string_view key,
                   const Extent& extent,
                   const std::string& if_version) override {
    return finished(plain_->read(key, extent, if_version));
  }
  HttpRequest look_up(std::string_view key) override { return finished(plain_->look_up(key)); }
  HttpRequest put(std::string_view key,
                  std::span<const ConstBytes> parts,
                  const WriteCondition& condition) override {
    HttpRequest request = make("PUT", key, "");
    request.body.assign(parts.begin(), parts.end());
    add(request, condition);
    return request;
  }
  HttpRequest erase(std::span<const std::string> keys) override {
    return make("DELETE", keys.front(), "");
  }
  HttpRequest erase_if(std::string_view key, const std::string& version) override {
    HttpRequest request = make("DELETE", key, "");
    add(request, WriteCondition::if_version(version));
    return request;
  }
  const char* write_name_header() const override { return "X-Write"; }
  HttpRequest list(std::string_view prefix, bool delimiter, const std::string& from) override {
    return make("GET",
                "",
                "?prefix=" + percent_encode_key(prefix) + "&from=" + percent_encode_key(from) +
                    (delimiter ? "&delimiter=1" : ""));
  }
  HttpRequest begin_upload(std::string_view key) override { return make("POST", key, "?begin"); }
  std::string upload_of(const HttpResponse& response) override {
    return std::string(text_of(response.body.bytes()));
  }
  HttpRequest put_part(std::string_view key,
                       const std::string& upload,
                       int number,
                       std::span<const ConstBytes> part) override {
    HttpRequest request = make("PUT", key, "?upload=" + upload + "&part=" + std::to_string(number));
    request.body.assign(part.begin(), part.end());
    return request;
  }
  std::string part_of(const HttpResponse& response) override { return *response.header("ETag"); }
  HttpRequest finish_upload(std::string_view key,
                            const std::string& upload,
                            std::span<const std::string> parts,
                            const WriteCondition& condition) override {
    HttpRequest request = make("POST", key, "?upload=" + upload);
    auto names = std::make_shared<std::string>();
    for (const std::string& part : parts) *names += part + "\n";
    request.body.push_back(bytes_of(*names));
    request.body_owner = names;
    add(request, condition);
    return request;
  }
  HttpRequest abort_upload(std::string_view key, const std::string& upload) override {
    return make("DELETE", key, "?upload=" + upload);
  }

  std::string version_of(const HttpResponse& response) const override {
    return plain_->version_of(response);
  }
  ListPage page_of(const HttpResponse& response) const override {
    ListPage page;
    std::istringstream lines{std::string(text_of(response.body.bytes()))};
    for (std::string kind, key; lines >> kind >> key;) {
      key = decode(key);
      if (kind == "object") {
        std::uint64_t nbytes = 0;
        lines >> nbytes;
        page.objects.push_back({key, nbytes, ""});
      } else if (kind == "prefix") {
        page.prefixes.push_back(key);
      } else {
        page.next = key;
      }
    }
    return page;
  }
  void check_erased(const HttpResponse&) const override {}
  Error error_of(const HttpRequest& request, const HttpResponse& response) const override {
    return plain_->error_of(request, response);
  }

 private:
  HttpRequest make(const char* method, std::string_view key, const std::string& query) const {
    HttpRequest request;
    request.method = method;
    request.url = url_ + "/" + percent_encode_key(key) + query;
    return finished(std::move(request));
  }
  HttpRequest finished(HttpRequest request) const {
    if (secret_.empty()) return request;
    request.sign = [secret = secret_](HttpRequest& attempt) {
      attempt.headers.push_back({"Authorization", "Bearer " + secret});
    };
    return request;
  }
  static void add(HttpRequest& request, const WriteCondition& condition) {
    if (condition.kind == WriteCondition::Kind::missing) {
      request.headers.push_back({"If-None-Match", "*"});
    } else if (condition.kind == WriteCondition::Kind::version) {
      request.headers.push_back({"If-Match", condition.version});
    }
  }

  const std::string url_;
  const ProtocolAbilities abilities_;
  const std::string secret_;
  const std::shared_ptr<ObjectProtocol> plain_;
};

}  // namespace

std::shared_ptr<ObjectProtocol> make_toy_protocol(const std::string& url,
                                                  const ProtocolAbilities& abilities,
                                                  const std::string& secret) {
  return std::make_shared<ToyProtocol>(url, abilities, secret);
}

}  // namespace headrace::test
