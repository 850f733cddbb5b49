#pragma once

// The file store with get_many() over io_uring: a batch's files are opened, read and closed with a
// few system calls for all of them, and a disk sees many reads at once. A single get() gains
// nothing from a ring, so it stays open, read, close.

#include <memory>
#include <string>

#include "store/file.h"

namespace headrace {

// `unsupported`, with the reason, where uring_available() says no.
std::unique_ptr<FileStore> make_uring_store(std::string root, FileOptions options);

// Whether this build has io_uring and this kernel grants it.
bool uring_available(std::string& why_not);

}  // namespace headrace
