#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "store/http/client.h"

namespace headrace {

// What the headers of an answer say of the whole object differs from `body`: the name of the
// header; null where all agree, or none says anything.
const char* wrong_checksum(const HttpResponse& response, ConstBytes body);

std::string base64(ConstBytes bytes);
// Nothing but the bytes: empty for what is no base64.
std::string from_base64(std::string_view text);

}  // namespace headrace
