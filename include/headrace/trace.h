#pragma once

#include <string>

namespace headrace {

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

}  // namespace headrace
