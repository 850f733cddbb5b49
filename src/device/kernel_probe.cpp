#include "device/kernel_probe.h"

#include "headrace/error.h"

namespace headrace {

std::string KernelProbe::why_not(int device, FunctionRef<Answer(int device)> ask) {
  {
    ForkLock lock(mutex_);
    const auto found = answers_.find(device);
    if (found != answers_.end()) return found->second;
  }
  Answer answer;
  try {
    answer = ask(device);
  } catch (const Error& error) {
    answer = {error.what(), false};
  }
  if (answer.lasting) {
    ForkLock lock(mutex_);
    answers_[device] = answer.why_not;
  }
  return answer.why_not;
}

}  // namespace headrace
