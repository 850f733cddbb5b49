#pragma once

// A store of a protocol and a client.

#include <memory>
#include <span>
#include <string_view>

#include "store/async_driver.h"
#include "store/http/protocol.h"

namespace headrace {

enum class HttpAccess { read_only, read_write };

// What set_parts() of the driver is, with a condition: `conflict` where that does not hold.
class ConditionalWrites {
 public:
  virtual ~ConditionalWrites() = default;
  virtual void set_parts_if(std::string_view key,
                            std::span<const ConstBytes> parts,
                            const WriteCondition& condition) = 0;
};

class HttpDriver : public AsyncDriver, public ConditionalWrites {};

std::shared_ptr<HttpDriver> make_http_driver(std::shared_ptr<ObjectProtocol> protocol,
                                             std::shared_ptr<HttpClient> client,
                                             HttpAccess access);

}  // namespace headrace
