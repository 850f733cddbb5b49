#pragma once

// Failures of the system calls that the stores make, as their manual pages name them:
//
//   SystemFaults faults;              // from here on fsync() does nothing, for speed
//   faults.fail_nth(3, 0);            // the third call from now, in the first of its ways
//   ...
//   faults.stop();                    // no more; what was done is in story()
//
// One at a time, as the table of system calls is the process's.

#include <string>

namespace headrace::test {

class SystemFaults {
 public:
  SystemFaults();
  ~SystemFaults();
  SystemFaults(const SystemFaults&) = delete;
  SystemFaults& operator=(const SystemFaults&) = delete;

  // Ways are numbered from 0: an errno each, and for reads and writes a short one. One that the
  // call does not have lets it pass.
  void fail_nth(long nth, unsigned way);
  // The nth call from now and all behind it, as far as they have this errno.
  void fail_from(long nth, int error);
  // Every call with this chance, in any of its ways; EINTR and the like among them.
  void fail_at_random(unsigned seed, unsigned one_in);
  // The process is killed before the nth call from now, as by kill -9.
  void kill_nth(long nth);
  void stop();

  long injected() const;         // failures, since the last fail_*()
  unsigned ways() const;         // of the nth call, when it came
  std::string story() const;     // "pwrite: No space left on device, close: ..."
  bool spoiled_removal() const;  // an unlink was among them: what it was to remove may be there
};

}  // namespace headrace::test
