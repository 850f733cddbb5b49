#pragma once

#include <functional>
#include <thread>

namespace headrace {

// A thread that no fork finds half started. The C library gives it the stack of one that has ended
// and frees that one's thread-local memory; a child forked before this is noted would free it again
// when it starts a thread of its own.
std::thread start_thread(std::function<void()> body);

}  // namespace headrace
