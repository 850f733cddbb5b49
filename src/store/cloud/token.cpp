#include "store/cloud/token.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.h"
#include "headrace/error.h"
#include "store/cloud/digest.h"
#include "store/cloud/request.h"

namespace headrace {

namespace {

using Json = nlohmann::json;

// A number, which Azure writes as text.
std::optional<std::int64_t> number(const Json& answer, const char* name) {
  const auto found = answer.find(name);
  if (found == answer.end()) return std::nullopt;
  if (found->is_number_integer()) return found->get<std::int64_t>();
  if (!found->is_string()) return std::nullopt;
  const auto& text = found->get_ref<const std::string&>();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::shared_ptr<Tokens> fixed_token(std::string token) {
  auto kept = std::make_shared<const std::string>(std::move(token));
  return std::make_shared<Tokens>([kept] { return Tokens::Fetched{kept}; });
}

std::function<void(HttpRequest&)> bearer_signing(std::shared_ptr<Tokens> tokens) {
  return [tokens = std::move(tokens)](HttpRequest& attempt) {
    const std::shared_ptr<const std::string> token = tokens->latest();
    if (token) set_header(attempt, "Authorization", "Bearer " + *token);
  };
}

Tokens::Fetched token_of(const HttpResponse& response, const std::string& who) {
  const Json answer = Json::parse(expect_answer(response, who), nullptr, false);
  const auto token = answer.is_object() ? answer.find("access_token") : answer.end();
  if (!answer.is_object() || token == answer.end() || !token->is_string()) {
    throw Error(ErrorCode::corrupt, who + " answered without a token");
  }
  Tokens::Fetched fetched{std::make_shared<const std::string>(token->get<std::string>())};
  const Tokens::Time now = std::chrono::system_clock::now();
  constexpr std::int64_t kLongest = 366 * 24 * 3600;
  if (const auto seconds = number(answer, "expires_in"); seconds && *seconds < kLongest) {
    fetched.end = now + std::chrono::seconds(std::max<std::int64_t>(*seconds, 0));
  } else if (const auto at = number(answer, "expires_on")) {
    fetched.end = time_at(*at);
  }
  return fetched;
}

std::string form_text(const FormFields& fields) {
  std::string text;
  for (const auto& [name, value] : fields) {
    if (!text.empty()) text += '&';
    text += name + "=" + uri_encode(value, Slash::encoded);
  }
  return text;
}

HttpRequest form_request(const std::string& url, const std::string& body) {
  HttpRequest request;
  request.method = "POST";
  request.url = url;
  request.headers = {{"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}};
  request.body = {bytes_of(body)};
  return request;
}

Tokens::Fetched ask_for_token(HttpClient& client,
                              const std::string& url,
                              const FormFields& fields,
                              const std::string& who) {
  const std::string body = form_text(fields);
  return token_of(client.ask(form_request(url, body)), who);
}

}  // namespace headrace
