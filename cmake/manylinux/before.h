// Included before everything else in a build for older C libraries (toolchain.cmake).
#pragma once

#ifdef __cplusplus
// libstdc++ is that of this machine, whose C library has these from 2.30 on.
#include <bits/c++config.h>
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK
#endif
