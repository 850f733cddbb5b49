#include "device/cufile.h"

#include <dlfcn.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>

#include "headrace/error.h"

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
struct FileDescription {
  int type;
  union {
    int fd;
    void* handle;
  };
  const void* file_system_calls;
};
enum Parameter : int { kAllowCompatibilityMode = 1, kForceCompatibilityMode = 2 };
constexpr unsigned kControlAllowsCompatibility = 1u << 1;
constexpr unsigned kControlPosix = 1u << 2;
constexpr unsigned kFeatureP2p = 1u << 4;
constexpr int kFileDescriptor = 1;

constexpr const char* kDefaultLibrary = "libcufile.so.0";

}  // namespace

struct CufileCalls {
  CufileError (*set_parameter)(int parameter, bool value) = nullptr;
  CufileError (*open_driver)() = nullptr;
  CufileError (*close_driver)() = nullptr;
  CufileError (*get_properties)(DriverProperties*) = nullptr;
  CufileError (*add_file)(void** handle, FileDescription*) = nullptr;
  void (*remove_file)(void* handle) = nullptr;
  ssize_t (*read)(void* handle, void* target, std::size_t, off_t offset, off_t in_target) = nullptr;
};

namespace {

std::string failed(const char* call, int error) {
  return std::string(call) + " failed with error " + std::to_string(error);
}

// False when the library lacks one.
bool find_calls(void* library, CufileCalls& calls) {
  const auto find = [&]<typename Call>(Call& call, const char* name) {
    call = reinterpret_cast<Call>(dlsym(library, name));
    return call != nullptr;
  };
  return find(calls.open_driver, "cuFileDriverOpen") &&
         find(calls.close_driver, "cuFileDriverClose_v2") &&
         find(calls.get_properties, "cuFileDriverGetProperties") &&
         find(calls.add_file, "cuFileHandleRegister") &&
         find(calls.remove_file, "cuFileHandleDeregister") && find(calls.read, "cuFileRead");
}

// From the properties of an open driver: what it has, or why that is not used.
void judge(const DriverProperties& properties, Cufile& found) {
  const auto& fs = properties.nvidia_fs;
  if ((fs.control_flags & (kControlAllowsCompatibility | kControlPosix)) != 0) {
    found.why_not = "the driver insists on its compatibility mode";
  } else if (fs.major_version > 0) {
    found.driver =
        "nvidia-fs " + std::to_string(fs.major_version) + '.' + std::to_string(fs.minor_version);
  } else if ((properties.feature_flags & kFeatureP2p) != 0) {
    found.driver = "PCI P2PDMA";
  } else {
    found.why_not = "the kernel has neither nvidia-fs nor PCI P2PDMA for it";
  }
}

}  // namespace

Cufile open_cufile(const std::string& library) {
  const auto refuse = [&](const std::string& why_not) { return Cufile{{library, why_not}}; };
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return refuse(dlerror());
  auto calls = std::make_shared<CufileCalls>();
  if (!find_calls(handle, *calls)) return refuse(library + " lacks functions of cuFile");
  calls->set_parameter =
      reinterpret_cast<decltype(calls->set_parameter)>(dlsym(handle, "cuFileSetParameterBool"));
  if (!calls->set_parameter)
    return refuse(library + " is older than 1.14: it cannot be told to be native");
  for (const int parameter : {kAllowCompatibilityMode, kForceCompatibilityMode}) {
    const CufileError status = calls->set_parameter(parameter, false);
    if (status.error != 0) return refuse(failed("cuFileSetParameterBool", status.error));
  }
  if (const CufileError status = calls->open_driver(); status.error != 0)
    return refuse(failed("cuFileDriverOpen", status.error) +
                  " with the compatibility mode refused");
  Cufile found{{library}};
  DriverProperties properties{};
  if (const CufileError status = calls->get_properties(&properties); status.error != 0) {
    found.why_not = failed("cuFileDriverGetProperties", status.error);
  } else {
    judge(properties, found);
  }
  if (found.why_not.empty()) {
    found.calls = std::move(calls);
  } else {
    calls->close_driver();
  }
  return found;
}

// Never destroyed: threads may outlive statics.
const Cufile& cufile(Device::Type type) {
  switch (type) {
    case Device::Type::cuda: {
      static const auto* of_cuda = [] {
        const char* named = std::getenv("HEADRACE_CUFILE");
        return new Cufile(open_cufile(named ? named : kDefaultLibrary));
      }();
      return *of_cuda;
    }
    case Device::Type::simt: {
      const char* named = std::getenv("HEADRACE_SIMT_CUFILE");
      if (!named) break;
      static const auto* of_tests = new Cufile(open_cufile(named));
      return *of_tests;
    }
    case Device::Type::cpu:
      break;
  }
  static const auto* none = new Cufile{{"", "cuFile is for CUDA devices"}};
  return *none;
}

CufileFile::CufileFile(const Cufile& cufile, int fd, std::string path)
    : calls_(cufile.calls), path_(std::move(path)) {
  FileDescription description{kFileDescriptor, {fd}, nullptr};
  const CufileError status = calls_->add_file(&handle_, &description);
  if (status.error != 0)
    throw Error(ErrorCode::unsupported,
                path_ + ": " + failed("cuFileHandleRegister", status.error));
}

CufileFile::~CufileFile() { calls_->remove_file(handle_); }

void CufileFile::read(std::uint64_t offset, void* target, std::size_t nbytes) const {
  std::size_t done = 0;
  while (done < nbytes) {
    const ssize_t n = calls_->read(handle_,
                                   target,
                                   nbytes - done,
                                   static_cast<off_t>(offset + done),
                                   static_cast<off_t>(done));
    if (n == -1) {
      const int os_error = errno;
      if (os_error == EINTR) continue;
      throw Error(ErrorCode::io,
                  path_ + ": cuFileRead: " + std::generic_category().message(os_error),
                  os_error);
    }
    if (n < 0)
      throw Error(ErrorCode::io, path_ + ": " + failed("cuFileRead", static_cast<int>(-n)));
    if (n == 0) {
      throw Error(ErrorCode::io,
                  path_ + ": became shorter while it was read: wanted " + std::to_string(nbytes) +
                      " bytes, got " + std::to_string(done));
    }
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace headrace
