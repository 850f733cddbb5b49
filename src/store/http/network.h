#pragma once

// What of the environment and the system counts for connections.

#include <string>

#include "store/http/client.h"

namespace headrace {

// Of one client: read once, by the thread that makes it, as the environment may change under who
// reads it in another one.
struct NetworkSettings {
  HttpOptions options;
  std::string ca_bundle;  // empty: as libcurl was built
  std::string http_proxy;
  std::string https_proxy;
  std::string no_proxy;
  std::string user_agent;
};

// invalid_argument for options that make no sense.
NetworkSettings network_settings(const HttpOptions& options);

}  // namespace headrace
