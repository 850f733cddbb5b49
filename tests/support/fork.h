// What tests that fork need.
#pragma once

#include <gtest/gtest.h>

// Skips a test whose child of fork() allocates though threads of its parent were at work: the
// allocators of GCC 12's sanitizers are not released in the child, which waits for ever in malloc
// where another thread was inside at the fork. glibc's is released.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEADRACE_SKIP_WHERE_MALLOC_DOES_NOT_SURVIVE_FORK() \
  GTEST_SKIP() << "malloc of a sanitizer does not survive a fork while other threads allocate"
#else
#define HEADRACE_SKIP_WHERE_MALLOC_DOES_NOT_SURVIVE_FORK() static_cast<void>(0)
#endif
