#pragma once

// What segments ask of the system beyond POSIX: memory that never had a name and can be sealed,
// huge pages, and pages that are there before they are touched. segment_system_linux.cpp has all of
// it. segment_system_portable.cpp has none: segments are of shm_open() there, none is sealed, and
// only processes that share one could cut it short.

#include <sys/stat.h>

#include <cstddef>
#include <span>

#include "shm/segment.h"

namespace headrace::shm {

// memfd. `unsupported` where the system has none.
OwnedFd open_unnamed(bool huge_pages);

// From now on nobody changes its size.
void seal_size(const OwnedFd& fd);
// Its size and what it holds. The kernel refuses while the memory is mapped to be written to, which
// a child may have done that was forked meanwhile; then nobody else can, from now on.
void seal_all(const OwnedFd& fd);
// The same memory by a descriptor that cannot be written to, where the system gives one.
OwnedFd for_reading(OwnedFd fd);
// A mapping to read of sealed memory, where the usual one was refused with EPERM; MAP_FAILED with
// errno otherwise.
void* map_sealed(int fd, std::size_t nbytes);

// Whether that can be shared memory at all, by its type.
bool may_be_memory(const struct stat& status);
// Why a touch of it could fail one day, or its bytes change that nobody may write; null: they
// cannot.
const char* why_unsafe(int fd, const struct stat& status, bool writable);

// Wishes, which may come to nothing.
void interleave(std::span<std::byte> memory);
void want_huge_pages(std::span<std::byte> memory);
void keep_from_children(std::span<std::byte> memory);

// Makes pages and puts them into the page table. 0 or an errno; EINVAL where the system cannot.
int populate(std::span<std::byte> memory);
// Where populate() cannot: makes the pages of the whole file. 0 or an errno.
int reserve_pages(int fd, std::size_t nbytes);

}  // namespace headrace::shm
