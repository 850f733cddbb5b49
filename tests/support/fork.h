// What tests that fork need.
#pragma once

#include <gtest/gtest.h>

#include "support/sanitizer.h"

// Skips a test whose child of fork() allocates though threads of its parent were at work: the
// allocators of GCC 12's sanitizers are not released in the child, which waits for ever in malloc
// where another thread was inside at the fork. glibc's is released.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kUnderThreadSanitizer = true;
#else
inline constexpr bool kUnderThreadSanitizer = false;
#endif
#define HEADRACE_SKIP_WHERE_MALLOC_DOES_NOT_SURVIVE_FORK()                                 \
  do {                                                                                     \
    if (kUnderThreadSanitizer || headrace::under_address_sanitizer())                      \
      GTEST_SKIP()                                                                         \
          << "malloc of a sanitizer does not survive a fork while other threads allocate"; \
  } while (false)

// Skips a test whose child of fork() starts threads, where the parent had some: a thread of the
// child gets the stack of one of the parent's, and ThreadSanitizer, which knows that by its stack,
// ends the process ("dup thread with used id").
#define HEADRACE_SKIP_WHERE_CHILDREN_START_NO_THREADS()                                    \
  do {                                                                                     \
    if (kUnderThreadSanitizer)                                                             \
      GTEST_SKIP() << "ThreadSanitizer takes a thread of the child for one of its parent"; \
  } while (false)
