#ifdef __SANITIZE_THREAD__

// liburing maps and unmaps its rings by system calls of its own, which ThreadSanitizer does not
// see: the ring of a new thread often lies where that of an ended one did, and looks shared.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:io_uring_\n";
}

#endif
