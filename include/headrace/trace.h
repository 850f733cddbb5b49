#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#pragma GCC visibility push(default)
namespace headrace {

class Array;

// Records what the threads of the library do (plan, fetch, gds, copy, decode, place, wait,
// encode, store) until finish(), and writes it in Chrome's trace format, which chrome://tracing and
// Perfetto open. One trace at a time: a second is `invalid_argument`. Costs nothing while there is
// none.
class Trace {
 public:
  explicit Trace(std::string path);
  // Without finish(): the recording ends and nothing is written.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Writes the file; `io` when that fails.
  void finish();

 private:
  std::string path_;
  bool recording_ = true;
};

struct StoreBenchOptions {
  double seconds = 20;                              // about so long
  std::uint64_t nbytes = std::uint64_t{512} << 20;  // at most so many are asked for
  std::size_t max_depth = 0;  // requests at a time, at most; 0: what the store sends at a time
  std::uint64_t seed = 1;     // of the choice of objects
};

// What a store across a network gives, measured with the stored chunks of an array, as a JSON
// object: how long a small range takes, and for 1, 2, 4, ... requests at a time the bytes a second
// of chunks, the small ranges a second, and which `io_depth` is enough. Nothing is decoded. A cache
// on the way makes later reads faster: chunks are read again where there are few.
// `unsupported` for a store that is not across a network, `not_found` where no chunk is stored.
std::string bench_store_json(const Array& array, const StoreBenchOptions& options = {});

}  // namespace headrace
#pragma GCC visibility pop
