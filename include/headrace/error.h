#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace headrace {

// The closed set of failures. Python maps each to one exception class (docs: Errors).
enum class ErrorCode {
  invalid_argument,   // the call is wrong, whatever the data
  not_found,          // no array, group or store of that name
  corrupt,            // bytes that were read break their format or fail their checksum
  unsupported,        // valid, but this build or version cannot do it
  io,                 // the operating system or the store failed; os_error() keeps errno
  out_of_memory,      // an allocation failed or a memory budget would be exceeded
  device,             // a device call failed
  cancelled,          // the caller cancelled the request
  out_of_bounds,      // a selection outside the array
  permission_denied,  // a write through a read-only handle or store
  conflict,           // another writer changed it meanwhile; nothing of this call counts
};

const char* error_code_name(ErrorCode code);

// Text from a store (names, units, messages) as a terminal or a log may show it: what would steer
// the terminal, hide text or turn it round (control characters, line breaks among them, bytes that
// are no UTF-8, marks of direction) stands as \n, \x1b or \u202e, and all else as it is. What is
// printable already stays the same.
std::string printable(std::string_view text);

// Every failure of the library is one of these. The message names the place and, where sizes or
// values differ, what was expected and what was found. It is printable(): a name in a hostile store
// does not get at the terminal through it.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, int os_error = 0);

  ErrorCode code() const { return code_; }
  int os_error() const { return os_error_; }  // errno of an `io` error, 0 when there is none

  // The same failure, told with the place that the caller knows: "[read] a/b chunk c/0/3: ...".
  Error with_context(const std::string& context) const {
    return Error(code_, context + ": " + what(), os_error_);
  }

 private:
  ErrorCode code_;
  int os_error_;
};

}  // namespace headrace
#pragma GCC visibility pop
