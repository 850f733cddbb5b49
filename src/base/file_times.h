#pragma once

#include <sys/stat.h>

#include <ctime>

namespace headrace {

// When a file was written to, and when anything about it changed. macOS has the times of POSIX
// under older names.
#ifdef __APPLE__
inline const timespec& modified_at(const struct stat& st) { return st.st_mtimespec; }
inline const timespec& changed_at(const struct stat& st) { return st.st_ctimespec; }
#else
inline const timespec& modified_at(const struct stat& st) { return st.st_mtim; }
inline const timespec& changed_at(const struct stat& st) { return st.st_ctim; }
#endif

}  // namespace headrace
