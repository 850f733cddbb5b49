// A libcufile.so.0 for tests. FAKE_CUFILE says what it finds: "nvidia-fs", "p2p", "nothing" (the
// driver does not open without the compatibility mode) or "insists" (on that mode).

#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace {

struct Error {
  int error = 0;
  int cuda_error = 0;
};
struct Properties {
  unsigned major_version, minor_version;
  std::size_t poll_threshold_nbytes, max_direct_io_nbytes;
  unsigned status_flags, control_flags;
  unsigned feature_flags;
  unsigned limits[5];
};

bool allows_compatibility = true, forces_compatibility = true;

bool finds(std::string_view what) {
  const char* found = std::getenv("FAKE_CUFILE");
  return found && what == found;
}

}  // namespace

#pragma GCC visibility push(default)

extern "C" {

Error cuFileSetParameterBool(int parameter, bool value) {
  if (parameter == 1) allows_compatibility = value;
  if (parameter == 2) forces_compatibility = value;
  return {};
}

Error cuFileDriverOpen() {
  const bool compatible = allows_compatibility || forces_compatibility;
  return {finds("nothing") && !compatible ? 5001 : 0, 0};
}

Error cuFileDriverClose_v2() { return {}; }

Error cuFileDriverGetProperties(Properties* properties) {
  *properties = {};
  if (finds("nvidia-fs")) {
    properties->major_version = 2;
    properties->minor_version = 26;
  }
  if (finds("p2p")) properties->feature_flags = 1u << 4;
  if (finds("insists") || allows_compatibility || forces_compatibility)
    properties->control_flags = 1u << 1;
  return {};
}
}

#pragma GCC visibility pop
