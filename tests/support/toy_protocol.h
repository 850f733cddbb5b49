#pragma once

// What ObjectServer speaks, for tests of the driver alone.

#include <memory>
#include <string>

#include "store/http/protocol.h"

namespace headrace::test {

std::shared_ptr<ObjectProtocol> make_toy_protocol(const std::string& url,
                                                  const ProtocolAbilities& abilities);

}  // namespace headrace::test
