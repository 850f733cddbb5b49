#pragma once

// Every kernel that the calling thread launches, on a GPU or in the host run, with its time. The
// library has nothing for it: this program's linker sends the calls of a launch through here
// (--wrap, CMakeLists.txt).

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace headrace {

struct Launch {
  std::string kernel;  // without namespaces
  unsigned grid = 0, threads = 0;
  std::size_t shared_nbytes = 0;
  double microseconds = 0;  // between an event before it and one behind it; simt: of the host
};

// From construction to destruction, one at a time in a thread.
class LaunchRecorder {
 public:
  LaunchRecorder();
  ~LaunchRecorder();
  LaunchRecorder(const LaunchRecorder&) = delete;
  LaunchRecorder& operator=(const LaunchRecorder&) = delete;

  // In order. Waits for the device.
  std::vector<Launch> launches() const;

  struct Notes;

 private:
  std::unique_ptr<Notes> notes_;
};

}  // namespace headrace
