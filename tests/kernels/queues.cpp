#include "kernels/queues.h"

#include <cstdlib>

#include "simt/host_queue.h"

namespace headrace::test {

const std::vector<Place>& places() {
  static const std::vector<Place> all = [] {
    std::vector<Place> found;
    found.push_back({"simt", &host_kernels(), [](std::uint64_t seed) -> std::unique_ptr<Queue> {
                       return std::make_unique<HostQueue>(seed);
                     }});
    if (make_gpu_queue(0))
      found.push_back({"cuda", &gpu_kernels(), [](std::uint64_t) { return make_gpu_queue(0); }});
    if (const char* only = std::getenv("HEADRACE_TEST_PLACE"))
      std::erase_if(found, [only](const Place& place) { return place.name != only; });
    return found;
  }();
  return all;
}

}  // namespace headrace::test
