#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace headrace::shm {

// A process among all that this machine has had since it was booted: its number and its start.
// 0: none. Below 2^63.
using ProcessIdentity = std::uint64_t;

ProcessIdentity this_process();

// False once it has ended, also while its parent has not waited for it.
bool is_alive(ProcessIdentity process);

// Which PID namespace this process is in: numbers of processes mean something within one only.
// 0: the system has none, or does not say.
std::uint64_t pid_namespace();

std::uint64_t monotonic_ns();

// The user with whose rights this process acts. Tests pretend to be another.
extern std::atomic<uid_t (*)()> this_user;

}  // namespace headrace::shm
