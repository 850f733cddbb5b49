#pragma once

// What stat() does not tell of a folder.

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace headrace {

// Device, inode, and when it was made, as inodes come again.
using FolderId = std::array<std::uint64_t, 4>;

// 0, or -1 with errno. Not unique: the system does not say when it was made.
int find_folder_id(const char* path, FolderId& id, bool& is_unique);

// Whether a file system is mounted there; nothing where the system does not say at once.
std::optional<bool> says_mount_root(const char* path);

// A path to an open folder whatever became of its name, where the system has such; `path`, which it
// was opened by, elsewhere.
std::string lasting_path(int folder, std::string path);

}  // namespace headrace
