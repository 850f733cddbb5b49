#include <sys/mman.h>

#include "base/system.h"
#include "base/unnamed_memory.h"

namespace headrace {

int open_unnamed_memory(const char* what) { return os().memfd_create(what, MFD_CLOEXEC); }

}  // namespace headrace
