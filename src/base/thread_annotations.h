#pragma once

// What a lock guards, in words that Clang checks (-Wthread-safety; tools/check_locks runs it) and
// other compilers skip: https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
//
// A member names its lock (GUARDED_BY), a function the locks that its caller holds (REQUIRES). Only
// Mutex, ForkMutex and their scoped locks are known to the analysis, those of the standard library
// are not. A lambda is a function of its own: it says REQUIRES, or a loop stands in its place.
// Constructors, destructors and what follows `catch` are not looked at: the less they do
// under a lock, the better.

#if defined(__clang__)
#define HEADRACE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define HEADRACE_THREAD_ANNOTATION(x)
#endif

#define CAPABILITY(name) HEADRACE_THREAD_ANNOTATION(capability(name))
#define SCOPED_CAPABILITY HEADRACE_THREAD_ANNOTATION(scoped_lockable)
#define GUARDED_BY(mutex) HEADRACE_THREAD_ANNOTATION(guarded_by(mutex))
#define PT_GUARDED_BY(mutex) HEADRACE_THREAD_ANNOTATION(pt_guarded_by(mutex))
#define REQUIRES(...) HEADRACE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) HEADRACE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) HEADRACE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RELEASE(...) HEADRACE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) HEADRACE_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS HEADRACE_THREAD_ANNOTATION(no_thread_safety_analysis)
