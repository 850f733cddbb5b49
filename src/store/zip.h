#pragma once

// Zip archives: existing ones are read, new ones are written, none is changed in place.

#include <memory>
#include <string>

#include "store/store.h"

namespace headrace {

// Reads the directory of an archive; every later read is a pread of the entry's bytes.
std::unique_ptr<StoreDriver> open_zip_archive(const std::string& path);

// A new archive of stored (uncompressed) entries. It is written aside and appears at `path`,
// replacing what was there, when close() has written its directory: with `durable`, on the disk.
// Without close() it never appears.
// `is_new`: close() is `conflict` where something has that name by then, else replaces it.
std::unique_ptr<StoreDriver> create_zip_archive(const std::string& path, bool durable, bool is_new);

}  // namespace headrace
