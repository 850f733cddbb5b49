#pragma once

// GPUDirect Storage: cuFile reads files into device memory past the host's, where the kernel, the
// file system and the disk allow it. Elsewhere the library would read through the host in its
// compatibility mode, slower than headrace's own pinned memory: that mode is refused.
// https://docs.nvidia.com/gpudirect-storage/api-reference-guide/

#include <string>

namespace headrace {

struct CufileProbe {
  bool native = false;
  std::string why_not;  // when it is not native
  std::string driver;   // "nvidia-fs 2.26", "PCI P2PDMA"
};

// Opens `library` and its driver with the compatibility mode refused, and asks the driver what it
// has. The driver stays open where it is native. Makes a context of CUDA.
CufileProbe probe_cufile(const std::string& library);

// The same for HEADRACE_CUFILE (a file) or the loader's libcufile.so.0, once a process.
const CufileProbe& cufile();

}  // namespace headrace
