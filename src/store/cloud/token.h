#pragma once

// Bearer tokens of OAuth 2, which Google and Azure give out.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/cloud/environment.h"
#include "store/cloud/renewed.h"

namespace headrace {

using Tokens = Renewed<std::string>;

// One that never ends, as far as anybody knows.
std::shared_ptr<Tokens> fixed_token(std::string token);

// Puts the latest of them into each attempt; get() was called before.
std::function<void(HttpRequest&)> bearer_signing(std::shared_ptr<Tokens> tokens);

// The token of an answer in JSON; `who` gave it, for messages.
Tokens::Fetched token_of(const HttpResponse& response, const std::string& who);

using FormFields = std::vector<std::pair<std::string, std::string>>;
// "a=b&c=d", encoded.
std::string form_text(const FormFields& fields);
// A POST of form_text(); `body` outlives the request.
HttpRequest form_request(const std::string& url, const std::string& body);
// Asks for a token by a form.
Tokens::Fetched ask_for_token(HttpClient& client,
                              const std::string& url,
                              const FormFields& fields,
                              const std::string& who);

}  // namespace headrace
