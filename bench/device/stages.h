#pragma once

#include <nlohmann/json.hpp>

#include "base/function_ref.h"
#include "rows.h"

namespace headrace {

// The kernels of a call in order, each with the median of its times, and the time of the whole
// call.
struct Stages {
  double microseconds, sum_microseconds;
  nlohmann::json launches;
};
// `after_first`: when the results of the first call are there.
Stages time_stages(Queue& queue, FunctionRef<void()> call, FunctionRef<void()> after_first);

// The kernels of a decode in order, each with the median of its times, and the time of the whole
// call. On simt (a HostQueue and host_kernels()) times mean nothing.
nlohmann::json run_stages(const Row& row, const Field& field, Queue& queue, const Kernels& kernels);

}  // namespace headrace
