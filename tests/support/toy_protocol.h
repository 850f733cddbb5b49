#pragma once

// What ObjectServer speaks, for tests of the driver alone.

#include <memory>
#include <string>

#include "store/http/protocol.h"

namespace headrace::test {

// A secret that is not empty goes along with each request, as signatures do.
std::shared_ptr<ObjectProtocol> make_toy_protocol(const std::string& url,
                                                  const ProtocolAbilities& abilities,
                                                  const std::string& secret = "");

}  // namespace headrace::test
