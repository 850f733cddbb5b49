#include <dlfcn.h>
#include <link.h>

#include <system_error>

#include "store/http/own_file.h"

namespace headrace {

// Of a program dladdr() has the name that it was called by, which may be any: where it is looked up
// on the path, "headrace", beside which a file of the current folder would be taken.
std::filesystem::path own_file() {
  static const int here = 0;
  Dl_info found{};
  ::link_map* object = nullptr;
  void** const into = reinterpret_cast<void**>(&object);
  if (::dladdr1(&here, &found, into, RTLD_DL_LINKMAP) == 0 || object == nullptr) return {};
  if (*object->l_name != '\0') return object->l_name;
  std::error_code failed;
  return std::filesystem::read_symlink("/proc/self/exe", failed);
}

}  // namespace headrace
