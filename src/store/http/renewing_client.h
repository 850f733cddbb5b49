#pragma once

// A client whose requests are asked once more, signed anew, where their server takes the
// credentials of the first time for ended: their end was not known, or not to be trusted (another
// clock, a file that a tool of the user's writes anew, a role that was revoked). Nothing was done
// by then, so that writes are asked again, too. It takes a thread of its own to fetch others, for
// those of a client must not wait.

#include <memory>

#include "store/http/client.h"
#include "store/http/protocol.h"

namespace headrace {

std::shared_ptr<HttpClient> make_renewing_client(std::shared_ptr<ObjectProtocol> protocol,
                                                 std::shared_ptr<HttpClient> client);

}  // namespace headrace
