#pragma once

#include <nlohmann/json.hpp>

#include "rows.h"

namespace headrace {

// The kernels of a decode in order, each with the median of its times, and the time of the whole
// call. On simt (a HostQueue and host_kernels()) times mean nothing.
nlohmann::json run_stages(const Row& row, const Field& field, Queue& queue, const Kernels& kernels);

}  // namespace headrace
