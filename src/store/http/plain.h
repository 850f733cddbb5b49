#pragma once

// Objects of a web server that knows nothing of stores: read by their URLs, written and listed by
// nobody.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/http/protocol.h"

namespace headrace {

// `url` may have a query, which goes with every request (a shared signature), but no name and
// password: those are a header. Messages show neither.
std::shared_ptr<ObjectProtocol> make_plain_protocol(std::string_view url,
                                                    std::vector<HttpHeader> headers);

// As "%20".
void append_encoded(std::string& out, char c);

// A key as a part of a URL's path: what RFC 3986 calls unreserved stays, and '/'.
std::string percent_encode_key(std::string_view key);

}  // namespace headrace
