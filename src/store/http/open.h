#pragma once

// From a URL to a store over HTTP.

#include <memory>
#include <string_view>

#include "headrace/store.h"
#include "store/http/client.h"
#include "store/option_reader.h"

namespace headrace {

class StoreDriver;

// Null: not a scheme of a store over HTTP. `place` is the URL as it was given, `scheme` what it
// begins with, in lower case.
std::shared_ptr<StoreDriver> open_http(std::string_view scheme,
                                       std::string_view place,
                                       StoreMode mode,
                                       OptionReader& options);

// The options that all of these stores know: README.md here.
HttpOptions take_http_options(OptionReader& options);

}  // namespace headrace
