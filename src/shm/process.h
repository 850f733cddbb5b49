#pragma once

#include <cstdint>

namespace headrace::shm {

// A process among all that this machine has had since it was booted: its number and its start.
// 0: none.
using ProcessIdentity = std::uint64_t;

ProcessIdentity this_process();

// False once it has ended, also while its parent has not waited for it.
bool is_alive(ProcessIdentity process);

std::uint64_t monotonic_ns();

}  // namespace headrace::shm
