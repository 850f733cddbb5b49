#pragma once

// What proves to Azure who asks: the account's key, a shared access signature, or a token.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "store/cloud/environment.h"
#include "store/cloud/sigv4.h"
#include "store/cloud/token.h"

namespace headrace {

// One of them; none: anonymous.
struct AzureCredentials {
  std::string account_key{};  // decoded
  std::string sas{};          // "sv=...&sig=...", added to each query
  std::shared_ptr<Tokens> tokens{};
};

// Of an application that is registered with Microsoft Entra.
struct AzureClient {
  std::string tenant_id{};
  std::string client_id{};
  std::string client_secret{};
  std::string federated_token_file{};
};

// By its secret, or by the token that the platform puts into a file (Kubernetes).
std::shared_ptr<Tokens> azure_client_tokens(const AzureClient& client, const Surroundings& around);
// Of the machine itself, of that identity of several; empty: its only one.
std::shared_ptr<Tokens> azure_managed_tokens(const std::string& client_id,
                                             const Surroundings& around);

// "AccountName=...;AccountKey=...;..." by the names in lower case.
std::map<std::string, std::string> parse_connection_string(std::string_view text);

// Sets x-ms-date and Authorization by the account's key:
// https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
void sign_shared_key(HttpRequest& request,
                     const std::string& account,
                     const std::string& key,
                     SystemTime now);

// For the tests: what is signed of a request that has all headers.
std::string shared_key_text(const HttpRequest& request, const std::string& account);

}  // namespace headrace
