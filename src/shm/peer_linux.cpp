#include <sys/socket.h>

#include <fstream>

#include "base/system.h"
#include "shm/peer.h"
#include "shm/process.h"

namespace headrace::shm {

namespace {

// https://man7.org/linux/man-pages/man7/user_namespaces.7.html: users that the namespace does not
// map appear as the overflow user.
bool may_be_several(uid_t user) {
  constexpr std::uint64_t kUsualOverflow = 65534;
  std::uint64_t overflow = kUsualOverflow;
  std::ifstream("/proc/sys/kernel/overflowuid") >> overflow;
  if (user != overflow) return false;
  std::uint64_t first = 1;
  std::uint64_t outside = 1;
  std::uint64_t count = 0;
  std::ifstream("/proc/self/uid_map") >> first >> outside >> count;
  return first != 0 || outside != 0 || count != UINT32_MAX;
}

}  // namespace

std::optional<uid_t> peer_user(int connection) {
  ucred peer{};
  socklen_t nbytes = sizeof peer;
  if (os().getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &nbytes) != 0)
    return std::nullopt;
  return peer.uid;
}

bool is_this_user(uid_t user) { return user == this_user.load()() && !may_be_several(user); }

}  // namespace headrace::shm
