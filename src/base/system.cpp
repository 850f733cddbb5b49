#include "base/system.h"

namespace headrace {

namespace detail {
constinit std::atomic<const SystemCalls*> system_calls = &real_calls;
}

const SystemCalls& real_system_calls() { return detail::real_calls; }

const SystemCalls* exchange_system_calls(const SystemCalls* calls) {
  return detail::system_calls.exchange(calls != nullptr ? calls : &detail::real_calls);
}

}  // namespace headrace
