#include <dlfcn.h>

#include "store/http/own_file.h"

namespace headrace {

// Of a program this may be the name that it was called by, and no path: who asks takes an absolute
// one only.
std::filesystem::path own_file() {
  static const int here = 0;
  Dl_info found{};
  if (::dladdr(&here, &found) == 0 || found.dli_fname == nullptr) return {};
  return found.dli_fname;
}

}  // namespace headrace
