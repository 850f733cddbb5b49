#pragma once

#include <map>
#include <string>

#include "base/fork_mutex.h"
#include "base/function_ref.h"
#include "base/thread_annotations.h"

namespace headrace {

// What is known of devices that exist: whether each can run the kernels of this build. An answer
// that lasts is asked for once a device, any other again: a driver may be short of memory for a
// moment.
class KernelProbe {
 public:
  struct Answer {
    std::string why_not;  // empty when it can
    bool lasting;
  };

  // `ask` asks the driver; an error that it throws is an answer, of the moment.
  std::string why_not(int device, FunctionRef<Answer(int device)> ask);

 private:
  ForkMutex mutex_;
  std::map<int, std::string> answers_ GUARDED_BY(mutex_);
};

}  // namespace headrace
