#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "simt/queue.h"

namespace headrace::test {

// Where kernels can run here: the host, and the GPU where there is one. HEADRACE_TEST_PLACE names
// the only one to try, under a GPU's memory checker say.
struct Place {
  std::string name;  // "simt", "cuda"
  const Kernels* kernels;
  std::unique_ptr<Queue> (*make_queue)(std::uint64_t seed);
};
const std::vector<Place>& places();

}  // namespace headrace::test
