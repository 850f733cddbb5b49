#pragma once

// What ObjectServer speaks, for tests of the driver alone.

#include <chrono>
#include <memory>
#include <string>

#include "store/http/client.h"
#include "store/http/protocol.h"

namespace headrace::test {

// Of clients whose attempts follow each other at once.
inline HttpOptions quick() {
  using namespace std::chrono_literals;
  HttpOptions options;
  options.backoff = 1ms;
  options.max_backoff = 5ms;
  options.idle_timeout = 10s;  // on a busy machine a request waits behind many others
  options.timeout = 60s;
  options.max_attempts = 6;
  return options;
}

// A secret that is not empty goes along with each request, as signatures do.
std::shared_ptr<ObjectProtocol> make_toy_protocol(const std::string& url,
                                                  const ProtocolAbilities& abilities,
                                                  const std::string& secret = "");

}  // namespace headrace::test
