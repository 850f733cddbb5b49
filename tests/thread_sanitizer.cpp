// What all test programs tell ThreadSanitizer. TSAN_OPTIONS adds to it.

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
  return "race:io_uring_\nrace:std::__exception_ptr::exception_ptr::_M_release\n";
}

}  // extern "C"
