#include "headrace/error.h"

namespace headrace {

Error::Error(ErrorCode code, const std::string& message, int os_error)
    : std::runtime_error(printable(message)), code_(code), os_error_(os_error) {}

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::corrupt:
      return "corrupt";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::io:
      return "io";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::device:
      return "device";
    case ErrorCode::cancelled:
      return "cancelled";
    case ErrorCode::out_of_bounds:
      return "out_of_bounds";
    case ErrorCode::permission_denied:
      return "permission_denied";
    case ErrorCode::conflict:
      return "conflict";
  }
  return "unknown";
}

}  // namespace headrace
