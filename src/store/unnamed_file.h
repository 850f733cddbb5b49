#pragma once

// Files that have no name until they are whole (O_TMPFILE of Linux).

namespace headrace {

// Whether this system can make and name them; a file system may still refuse.
bool has_unnamed_files();

// For writing, in that folder. A descriptor, or -1 with errno.
int open_unnamed(const char* folder);

// Gives it a name that nothing has. 0, or -1 with errno.
int link_unnamed(int fd, const char* name);

}  // namespace headrace
