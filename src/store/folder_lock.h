#pragma once

#include <string>

#include "store/store.h"

namespace headrace {

// flock() on a folder itself: no file of ours is left in it, the kernel frees what a dead process
// held, and it counts whichever path leads to the folder. Among threads, too: each lock has an open
// file description of its own. Unavailable where the file system has none (NFS has it for files
// open for writing only) or the folder may not be read.
//
// A child of fork gives up its part in all of them, so that its parent's end with the parent.
LockAttempt try_lock_folder(const std::string& path);

}  // namespace headrace
