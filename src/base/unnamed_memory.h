#pragma once

namespace headrace {

// A file of no name, for reading and writing, in memory where the system has such. A descriptor, or
// -1 with errno.
int open_unnamed_memory(const char* what);

}  // namespace headrace
