// Options of Azure by the names of adlfs and obstore.

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "headrace/error.h"
#include "store/cloud/digest.h"
#include "store/cloud/open.h"
#include "store/cloud/option_names.h"
#include "store/cloud/request.h"

namespace headrace {

namespace {

// Known to everybody: of the emulator.
constexpr char kEmulatorAccount[] = "devstoreaccount1";
constexpr char kEmulatorKey[] =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

// A host in one of Azure's clouds. Any other may be of whoever wrote the URL, which may come from a
// list of references: what the environment proves to Azure is not sent there.
bool is_of_azure(std::string_view host) {
  static constexpr std::array<std::string_view, 6> kDomains = {".core.windows.net",
                                                               ".core.usgovcloudapi.net",
                                                               ".core.chinacloudapi.cn",
                                                               ".core.cloudapi.de",
                                                               ".storage.azure.net",
                                                               ".fabric.microsoft.com"};
  const std::string name = lower(host.substr(0, host.find(':')));
  return std::ranges::any_of(kDomains,
                             [&](std::string_view domain) { return name.ends_with(domain); });
}

struct Given {
  std::optional<std::string> account{};
  std::optional<std::string> key{};
  std::optional<std::string> sas{};
  std::optional<std::string> token{};
  std::optional<std::string> endpoint{};
  AzureClient client{};

  bool proves() const {
    return key || sas || token || !client.client_secret.empty() ||
           !client.federated_token_file.empty();
  }
};

// What a connection string says, where nothing else says it.
void add_connection(Given& given, const std::string& text) {
  std::map<std::string, std::string> fields = parse_connection_string(text);
  const auto add = [&](const char* name, std::optional<std::string>& to) {
    const auto field = fields.find(name);
    if (field != fields.end() && !field->second.empty() && !to) to = field->second;
  };
  if (fields["usedevelopmentstorage"] == "true") {
    fields = {{"accountname", kEmulatorAccount},
              {"accountkey", kEmulatorKey},
              {"blobendpoint", "http://127.0.0.1:10000/devstoreaccount1"}};
  }
  add("accountname", given.account);
  add("accountkey", given.key);
  add("sharedaccesssignature", given.sas);
  add("blobendpoint", given.endpoint);
  if (!given.endpoint && given.account && fields.contains("endpointsuffix")) {
    const std::string& protocol = fields["defaultendpointsprotocol"];
    given.endpoint = (protocol.empty() ? "https" : protocol) + "://" + *given.account + ".blob." +
                     fields["endpointsuffix"];
  }
}

Given take_given(OptionReader& options) {
  Given given;
  given.account =
      take_text(options, {"account_name", "azure_storage_account_name", "storage_account_name"});
  given.key = take_text(options,
                        {"account_key",
                         "azure_storage_account_key",
                         "azure_storage_access_key",
                         "azure_storage_master_key",
                         "access_key"});
  given.sas = take_text(
      options, {"sas_token", "azure_storage_sas_token", "azure_storage_sas_key", "sas_key"});
  given.token = take_text(options, {"bearer_token", "token", "azure_storage_token"});
  given.endpoint =
      take_text(options, {"endpoint", "endpoint_url", "azure_storage_endpoint", "azure_endpoint"});
  AzureClient& client = given.client;
  client.tenant_id =
      take_text(options, {"tenant_id", "azure_storage_tenant_id", "authority_id"}).value_or("");
  client.client_id = take_text(options, {"client_id", "azure_storage_client_id"}).value_or("");
  client.client_secret =
      take_text(options, {"client_secret", "azure_storage_client_secret"}).value_or("");
  client.federated_token_file =
      take_text(options, {"federated_token_file", "azure_federated_token_file"}).value_or("");
  return given;
}

// Only where no option proves anything: the ones do not go with the others.
void add_environment(Given& given, const Surroundings& around) {
  const auto first = [&](std::initializer_list<const char*> names) {
    std::optional<std::string> value;
    for (const char* name : names) {
      if (!value) value = around.variable(name);
    }
    return value;
  };
  given.key = first({"AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCESS_KEY"});
  if (!given.key) given.sas = first({"AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"});
  if (!given.key && !given.sas) {
    if (const auto text = around.variable("AZURE_STORAGE_CONNECTION_STRING")) {
      add_connection(given, *text);
    }
  }
  if (!given.proves()) {
    AzureClient& client = given.client;
    client.tenant_id = around.variable("AZURE_TENANT_ID").value_or(client.tenant_id);
    client.client_id = around.variable("AZURE_CLIENT_ID").value_or(client.client_id);
    client.client_secret = around.variable("AZURE_CLIENT_SECRET").value_or("");
    client.federated_token_file = around.variable("AZURE_FEDERATED_TOKEN_FILE").value_or("");
  }
}

AzureCredentials credentials_of(const Given& given,
                                const OptionReader& options,
                                const Surroundings& around) {
  AzureCredentials credentials;
  if (given.key) {
    credentials.account_key = from_base64(*given.key);
    if (credentials.account_key.empty()) options.refuse("the account's key is no base64");
  } else if (given.sas) {
    std::string sas = *given.sas;
    while (sas.starts_with('?') || sas.starts_with('&')) sas.erase(0, 1);
    credentials.sas = std::move(sas);
  } else if (given.token) {
    credentials.tokens = fixed_token(*given.token);
  } else if (!given.client.client_secret.empty() || !given.client.federated_token_file.empty()) {
    if (given.client.tenant_id.empty() || given.client.client_id.empty()) {
      options.refuse("client_secret wants client_id and tenant_id beside it");
    }
    credentials.tokens = azure_client_tokens(given.client, around);
  } else {
    credentials.tokens = azure_managed_tokens(given.client.client_id, around);
  }
  return credentials;
}

}  // namespace

AzureOptions take_azure_options(const CloudPlace& place,
                                OptionReader& options,
                                const Surroundings& around) {
  AzureOptions azure;
  azure.container = place.bucket;
  azure.prefix = place.prefix;
  azure.host = place.host;

  Given given = take_given(options);
  const bool anonymous =
      take_flag(options, {"anon", "skip_signature", "azure_skip_signature"}).value_or(false);
  if (const auto text =
          take_text(options, {"connection_string", "azure_storage_connection_string"})) {
    add_connection(given, *text);
  }
  if (take_flag(options, {"use_emulator", "azure_storage_use_emulator"}).value_or(false)) {
    add_connection(given, "UseDevelopmentStorage=true");
  }
  take_flag(options, {"allow_http"});
  if (anonymous && given.proves()) options.refuse("anon wants no other credentials");
  const bool is_elsewhere = !given.endpoint && !place.host.empty() && !is_of_azure(place.host);
  if (!anonymous && !given.proves() && !is_elsewhere) add_environment(given, around);

  azure.account = !place.account.empty() ? place.account : given.account.value_or("");
  if (azure.account.empty()) {
    azure.account = around.variable("AZURE_STORAGE_ACCOUNT_NAME")
                        .value_or(around.variable("AZURE_STORAGE_ACCOUNT").value_or(""));
  }
  if (azure.account.empty()) {
    options.refuse("which account? Set account_name, or write " + std::string("abfs://") +
                   place.bucket + "@ACCOUNT.dfs.core.windows.net/...");
  }
  if (given.account && !place.account.empty() && *given.account != place.account) {
    options.refuse("account_name is not the account of the URL");
  }
  if (given.endpoint) {
    azure.endpoint = check_endpoint(options, *given.endpoint);
  } else if (!place.host.empty()) {
    azure.endpoint = "https://" + place.host;
  } else {
    azure.endpoint = "https://" + azure.account + ".blob.core.windows.net";
  }
  if (!anonymous && (given.proves() || !is_elsewhere)) {
    azure.credentials = credentials_of(given, options, around);
  }
  return azure;
}

}  // namespace headrace
