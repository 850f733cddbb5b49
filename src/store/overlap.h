#pragma once

#include <string_view>

#include "headrace/store.h"

namespace headrace {

// Whether one of two prefixes ("a/b", "" for the root) lies within the other, or is the other: to
// make room for one would remove the other. Folders are compared by what they are, whatever
// spelling, link or mount leads there, and a link below the first may lead into the other; other
// places by their URLs and their identities.
bool places_overlap(const Store& store,
                    std::string_view prefix,
                    const Store& other,
                    std::string_view other_prefix);

}  // namespace headrace
