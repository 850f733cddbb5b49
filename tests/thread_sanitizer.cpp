// What all test programs tell ThreadSanitizer. TSAN_OPTIONS adds to it.

#include <dlfcn.h>

extern "C" {

// A child of fork may start threads, as tests do: what it does is not watched.
__attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "die_after_fork=0:second_deadlock_stack=1";
}

// liburing maps and unmaps its rings by system calls of its own, which ThreadSanitizer does not
// see: the ring of a new thread often lies where that of an ended one did, and looks shared. The
// same is true of exceptions that several threads were handed: who lets go of one last frees it, by
// a count within libstdc++.
__attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:io_uring_\n"
         "race:std::__exception_ptr::exception_ptr::_M_release\n"
         "race:__cxa_end_catch\n";
}

// The last one may be who threw it, at the end of its catch. Of libstdc++'s functions there is no
// trace in a report: of this one there is.
__attribute__((visibility("default"))) void __cxa_end_catch() {
  static auto* const end = reinterpret_cast<void (*)()>(dlsym(RTLD_NEXT, "__cxa_end_catch"));
  end();
}

}  // extern "C"
