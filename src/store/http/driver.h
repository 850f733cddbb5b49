#pragma once

// A store of a protocol and a client.

#include <memory>
#include <span>
#include <string_view>

#include "store/async_driver.h"
#include "store/http/protocol.h"

namespace headrace {

enum class HttpAccess { read_only, read_write };

class HttpDriver : public AsyncDriver, public AsyncWrites {
 public:
  using AsyncReads::cancel;
  using AsyncReads::submit;
  using AsyncWrites::cancel;
  using AsyncWrites::submit;
};

std::shared_ptr<HttpDriver> make_http_driver(std::shared_ptr<ObjectProtocol> protocol,
                                             std::shared_ptr<HttpClient> client,
                                             HttpAccess access);

}  // namespace headrace
