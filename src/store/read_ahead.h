#pragma once

// What a file system is told of reads to come. Hints: where they are not taken nothing is lost.

#include <cstdint>

namespace headrace {

// Nothing but what is read is to be fetched from the disk: a system reads ahead of what looks like
// the begin of a sequence, by its own measure (128 KiB to many MiB).
void stop_reading_ahead(int fd);
// The disk is asked for these bytes now.
void read_ahead(int fd, std::uint64_t offset, std::uint64_t nbytes);

// Whether reading the begin of a file would wait for a disk or a server; also where the system does
// not tell, but for files that are nowhere else than in memory.
bool waits_for_disk(int fd);

}  // namespace headrace
