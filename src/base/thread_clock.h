#pragma once

#include <pthread.h>

#include <chrono>

namespace headrace {

// The processor's time that a thread of this process, which has not ended, has had; zero where the
// system does not tell.
std::chrono::nanoseconds processor_time(pthread_t thread);

}  // namespace headrace
