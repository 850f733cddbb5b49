#pragma once

// How options of object stores are read, beside OptionReader.

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "store/option_reader.h"

namespace headrace {

// As OptionReader::take_any(), but None of Python ("null") and "" are as if left out.
std::optional<std::string> take_text(OptionReader& options,
                                     std::initializer_list<std::string_view> names);
// Nothing: none of them is given.
std::optional<bool> take_flag(OptionReader& options, std::initializer_list<std::string_view> names);
// The option, in JSON: {"endpoint_url": "...", "region_name": "..."}. What nobody took of it is an
// error as it is of the options themselves. Nothing: it is not given.
std::optional<OptionReader> take_nested(OptionReader& options, std::string_view name);

// "http://host:port/path/" without the slash at its end; `invalid_argument` for what is no URL of
// HTTP, or has a password or query in it.
std::string check_endpoint(const OptionReader& options, std::string endpoint);

}  // namespace headrace
