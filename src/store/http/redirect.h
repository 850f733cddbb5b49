#pragma once

#include <string>
#include <vector>

#include "store/http/client.h"

namespace headrace {

// Where an answer leads that says `location`. `io` for what is not followed: another scheme than
// http and https, or from https to http.
std::string redirect_target(const std::string& from, const std::string& location);
// Whether scheme, host and port are the same: what one of them may be told the other may.
bool same_origin(const std::string& url, const std::string& other);
// What another host may be told: which bytes are wanted and in what form.
void keep_harmless(std::vector<HttpHeader>& headers);

}  // namespace headrace
