#pragma once

// Who is at the other end of a socket. An abstract name has no permissions: whoever binds it first
// serves it, whoever knows it connects.

#include <sys/types.h>

#include <optional>

namespace headrace::shm {

// The user of the process that listen()s or has connect()ed there. Nothing: the kernel does not
// say.
std::optional<uid_t> peer_user(int connection);

// Whether that is this process's user. False also where the kernel shows several users by one
// number: the overflow user's, in a user namespace that does not know them all.
bool is_this_user(uid_t user);

}  // namespace headrace::shm
