#include <fcntl.h>

#include "base/system.h"
#include "store/folder_facts.h"

namespace headrace {

int find_folder_id(const char* path, FolderId& id, bool& is_unique) {
  struct statx st;
  if (os().statx(AT_FDCWD, path, 0, STATX_INO | STATX_BTIME, &st) != 0) return -1;
  id = {std::uint64_t{st.stx_dev_major} << 32 | st.stx_dev_minor,
        st.stx_ino,
        static_cast<std::uint64_t>(st.stx_btime.tv_sec),
        st.stx_btime.tv_nsec};
  is_unique = (st.stx_mask & STATX_BTIME) != 0;
  return 0;
}

std::optional<bool> says_mount_root(const char* path) {
  struct statx st;
  if (os().statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &st) != 0 ||
      (st.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) == 0) {
    return std::nullopt;
  }
  return (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

std::string lasting_path(int folder, std::string) {
  return "/proc/self/fd/" + std::to_string(folder);
}

}  // namespace headrace
