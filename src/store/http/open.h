#pragma once

// From a URL to a store over HTTP.

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "headrace/store.h"
#include "store/http/client.h"
#include "store/option_reader.h"

namespace headrace {

class ObjectProtocol;
class StoreDriver;

// What a store across a network is made of.
struct RemoteParts {
  std::shared_ptr<ObjectProtocol> protocol;
  std::shared_ptr<ObjectProtocol> anonymous;  // the same place, asked by nobody; null: so it is
  HttpOptions http;
};

// Changes what the options say about connections, before anything is made of them; may be empty.
using HttpAdjustment = std::function<void(HttpOptions&)>;

// Nothing: not a scheme of a store over HTTP.
std::optional<RemoteParts> http_parts(std::string_view scheme,
                                      std::string_view place,
                                      OptionReader& options,
                                      const HttpAdjustment& adjust = {});

// Null: not a scheme of a store over HTTP. `place` is the URL as it was given, `scheme` what it
// begins with, in lower case.
std::shared_ptr<StoreDriver> open_http(std::string_view scheme,
                                       std::string_view place,
                                       StoreMode mode,
                                       OptionReader& options);

// The options that all of these stores know: README.md here.
HttpOptions take_http_options(OptionReader& options);

}  // namespace headrace
