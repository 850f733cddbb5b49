#include "device/cufile.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>

namespace headrace {
namespace {

// What of cuFile's public header is used here, declared anew.
struct CufileError {
  int error;
  int cuda_error;
};
struct DriverProperties {
  struct {
    unsigned major_version, minor_version;
    std::size_t poll_threshold_nbytes, max_direct_io_nbytes;
    unsigned status_flags, control_flags;
  } nvidia_fs;
  unsigned feature_flags;
  unsigned limits[5];
  char later[256];  // what newer versions add
};
enum Parameter : int { kAllowCompatibilityMode = 1, kForceCompatibilityMode = 2 };
constexpr unsigned kControlAllowsCompatibility = 1u << 1;
constexpr unsigned kControlPosix = 1u << 2;
constexpr unsigned kFeatureP2p = 1u << 4;
using SetBool = CufileError (*)(int parameter, bool value);
using DriverCall = CufileError (*)();
using GetProperties = CufileError (*)(DriverProperties*);

constexpr const char* kDefaultLibrary = "libcufile.so.0";

CufileProbe refuse(const std::string& why_not) { return {false, why_not, {}}; }

std::string failed(const char* call, const CufileError& error) {
  return std::string(call) + " failed with error " + std::to_string(error.error);
}

// Needs the properties of an open driver.
CufileProbe judge(const DriverProperties& properties) {
  const auto& fs = properties.nvidia_fs;
  if ((fs.control_flags & (kControlAllowsCompatibility | kControlPosix)) != 0)
    return refuse("the driver insists on its compatibility mode");
  if (fs.major_version > 0) {
    return {
        true,
        {},
        "nvidia-fs " + std::to_string(fs.major_version) + '.' + std::to_string(fs.minor_version)};
  }
  if ((properties.feature_flags & kFeatureP2p) != 0) return {true, {}, "PCI P2PDMA"};
  return refuse("the kernel has neither nvidia-fs nor PCI P2PDMA for it");
}

}  // namespace

CufileProbe probe_cufile(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return refuse(dlerror());
  const auto set_bool = reinterpret_cast<SetBool>(dlsym(handle, "cuFileSetParameterBool"));
  const auto open = reinterpret_cast<DriverCall>(dlsym(handle, "cuFileDriverOpen"));
  const auto close = reinterpret_cast<DriverCall>(dlsym(handle, "cuFileDriverClose_v2"));
  const auto get = reinterpret_cast<GetProperties>(dlsym(handle, "cuFileDriverGetProperties"));
  if (!open || !close || !get) return refuse(library + " lacks functions of cuFile");
  if (!set_bool) return refuse(library + " is older than 1.14: it cannot be told to be native");
  for (const int parameter : {kAllowCompatibilityMode, kForceCompatibilityMode}) {
    const CufileError error = set_bool(parameter, false);
    if (error.error != 0) return refuse(failed("cuFileSetParameterBool", error));
  }
  if (const CufileError error = open(); error.error != 0)
    return refuse(failed("cuFileDriverOpen", error) + " with the compatibility mode refused");
  DriverProperties properties{};
  const CufileError error = get(&properties);
  const CufileProbe found =
      error.error == 0 ? judge(properties) : refuse(failed("cuFileDriverGetProperties", error));
  if (!found.native) close();
  return found;
}

const CufileProbe& cufile() {
  static const CufileProbe probe = [] {
    const char* named = std::getenv("HEADRACE_CUFILE");
    return probe_cufile(named ? named : kDefaultLibrary);
  }();
  return probe;
}

}  // namespace headrace
