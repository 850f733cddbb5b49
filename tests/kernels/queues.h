#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "simt/queue.h"

namespace headrace::test {

// Where kernels can run here: the host always, the GPU where there is one.
struct Place {
  std::string name;  // "simt", "cuda"
  const Kernels* kernels;
  std::unique_ptr<Queue> (*make_queue)(std::uint64_t seed);
};
const std::vector<Place>& places();

}  // namespace headrace::test
