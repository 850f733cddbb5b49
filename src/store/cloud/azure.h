#pragma once

// Azure's blobs, of block type, those of Data Lake Storage too.
// https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api

#include <memory>
#include <string>

#include "store/cloud/azure_credentials.h"
#include "store/http/protocol.h"

namespace headrace {

struct AzureOptions {
  std::string account{};
  std::string container{};
  std::string prefix{};
  std::string host{};  // of the URL, "account.blob.core.windows.net"; empty: that of the account
  std::string endpoint{};  // "https://account.blob.core.windows.net", without a slash at its end
  AzureCredentials credentials{};
};

std::shared_ptr<ObjectProtocol> make_azure_protocol(AzureOptions options);

}  // namespace headrace
