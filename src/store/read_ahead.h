#pragma once

// What a file system is told of reads to come. Hints: where they are not taken nothing is lost.

#include <cstdint>

namespace headrace {

// Nothing but what is read is to be fetched from the disk: a system reads ahead of what looks like
// the begin of a sequence, by its own measure (128 KiB to many MiB).
void stop_reading_ahead(int fd);
// The disk is asked for these bytes now.
void read_ahead(int fd, std::uint64_t offset, std::uint64_t nbytes);

}  // namespace headrace
