#pragma once

// Reads past the page cache (O_DIRECT).

namespace headrace {

// What open() is told for them; 0 where the system has none.
int direct_flag();

// The file behind a descriptor once more, for such reads: its path may lead to another one by now.
// A descriptor, or -1 with errno.
int open_direct_again(int fd);

}  // namespace headrace
