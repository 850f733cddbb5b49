#pragma once

// A store with copies of its bytes nearer by: in memory, and in a folder that outlives the process.
//  1. store = cached_store(open_store(url), {.directory = "/nvme/cache"}) is used as the store is.
//  2. What is read is cut into blocks, which are kept, so that any range of an object that was read
//     before, an inner chunk of a shard say, is not asked for again. Least recently used ones go.
//  3. Objects are taken for what they were when they were read first. Writes through this store are
//     seen by reads that begin after them; those of others are when something of the object has to
//     be fetched: then all that is read of it is read anew, and never a mix of both. Arrays do so
//     by themselves; a StoredObject that was read from before raises `io` with ESTALE.
//  4. Whether an object has changed, files, archives, memory, web servers and object stores tell by
//     versions. Of other stores a change is seen by what is fetched once more: docs/cached.md.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "headrace/store.h"

#pragma GCC visibility push(default)
namespace headrace {

struct CacheOptions {
  std::size_t memory_nbytes = std::size_t{1} << 30;
  // On a local disk, made when missing; empty: none. Copies lie in its folder "headrace-cache-1",
  // which is made for its owner alone, and nothing else in it is touched. `invalid_argument` when a
  // folder of that name is somebody else's, or would lie in the store; `permission_denied` when
  // another user owns it or may write to it. Processes may share it. Files are written aside and
  // checked by their size and CRC-32 before use; damaged ones are removed.
  std::string directory{};
  // Of the folder. Each process looks every 16th of it how large the folder is.
  std::uint64_t disk_nbytes = std::uint64_t{100} << 30;
  std::size_t block_nbytes = std::size_t{256} << 10;
  // What the copies are known by, with an object's key; empty: the store's URL. Stores whose URL
  // does not tell them apart, in memory say, need one each to share a folder.
  std::string name{};
};

// Of one store that cached_store() made, by all threads of this process.
struct CacheStats {
  std::int64_t memory_hits = 0, disk_hits = 0, misses = 0;  // blocks
  std::int64_t fetched_nbytes = 0;                          // from the store behind it
  std::int64_t memory_nbytes = 0;
  std::int64_t damaged_files = 0;
  // Of the folder, to read or write a copy: no reason for a read to fail.
  std::int64_t failures = 0;
  std::string last_failure{};
};

Store cached_store(const Store& store, const CacheOptions& options = {});
// Nothing for other stores.
std::optional<CacheOptions> cache_options(const Store& store);
// `invalid_argument` for other stores.
CacheStats cache_stats(const Store& store);

}  // namespace headrace
#pragma GCC visibility pop
