#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace::cli {

// The name that is most like `word`; empty when none is.
std::string nearest(std::string_view word, const std::vector<std::string>& names);

// The end of a message about a name that there is not: "; did you mean t2m?", else what there is by
// `kind` ("there are"), which may be empty.
std::string did_you_mean(std::string_view word,
                         const std::vector<std::string>& names,
                         std::string_view kind = "");

}  // namespace headrace::cli
