#pragma once

// What the command asks of the system beyond POSIX: platform_linux.cpp, platform_portable.cpp.

#include <sys/types.h>

#include <filesystem>

namespace headrace::cli {

// For writing, in that folder, without a name. -1: it gets one from the beginning.
int open_unnamed(const char* folder, mode_t mode);

// Gives it a name that nothing has. 0, or -1 with errno.
int link_unnamed(int fd, const char* name);

// The file that is run; empty where the system does not tell.
std::filesystem::path own_program();

}  // namespace headrace::cli
