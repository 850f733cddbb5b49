#pragma once

// The names of files that are written under one of their own before they take their final one, and
// whether who wrote such a file is gone, for certain.
//
// On Linux the name says who made it, temporary_name_linux.cpp:
//
//   .headrace-tmp-2-<host>-<process>-<start>-<counter>-<random>
//
// <host> stands for this start of this host and the namespace that its process numbers are of,
// <start> for when the process began. So whoever finds such a name knows for certain whether its
// writer is gone: of another host, or where /proc does not say, nobody knows, and the file stays.
//
// In the portable build its writer has it locked, temporary_name_portable.cpp:
//
//   .headrace-tmp-3-<process>-<counter>-<random>
//
// The kernel frees the lock of a process that ends, so whoever gets it knows. Where the file system
// has no locks, the file stays. Neither build removes what the other one has left.

#include <string>
#include <string_view>

#include "store/posix.h"

namespace headrace {

inline constexpr std::string_view kTemporaryPrefix = ".headrace-tmp-";

std::string temporary_name();

// What the writer does with a new file of such a name, and keeps in `hold` until it has its final
// one: the file itself is closed before. False when somebody has taken it away meanwhile, for one
// that was left: make another.
bool hold_temporary(int fd, FileDescriptor& hold);

// Whether the process that made this name, in the folder open as `folder`, is gone, for certain.
bool is_abandoned(int folder, std::string_view name);

}  // namespace headrace
