#pragma once

// GPUDirect Storage: cuFile reads files into device memory past the host's, where the kernel, the
// file system and the disk allow it. Elsewhere the library would read through the host in its
// compatibility mode, slower than headrace's own pinned memory: that mode is refused.
// https://docs.nvidia.com/gpudirect-storage/api-reference-guide/

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "device/direct_file.h"
#include "headrace/tensor.h"

namespace headrace {

struct CufileCalls;  // the library's functions

// What there is of cuFile.
struct Cufile : DirectFiles {
  std::shared_ptr<const CufileCalls> calls{};  // null unless it is native

  bool native() const { return calls != nullptr; }
};

// Opens `library` and its driver with the compatibility mode refused, and asks the driver what it
// has. The driver stays open where it is native. Makes a context of CUDA.
Cufile open_cufile(const std::string& library);

// The same once a process, for CUDA devices: HEADRACE_CUFILE (a file) or the loader's
// libcufile.so.0. The memory of simt is filled only by a library made for tests, which
// HEADRACE_SIMT_CUFILE names.
const Cufile& cufile(Device::Type type);

class CufileFile final : public DirectFile {
 public:
  // `fd` was opened with O_DIRECT and stays open as long as this lives; `path` is for messages.
  // `unsupported` where its file system is not native.
  CufileFile(const Cufile& cufile, int fd, std::string path);
  ~CufileFile() override;
  CufileFile(const CufileFile&) = delete;
  CufileFile& operator=(const CufileFile&) = delete;

  void read(std::uint64_t offset, void* target, std::size_t nbytes) const override;

 private:
  const std::shared_ptr<const CufileCalls> calls_;
  const std::string path_;
  void* handle_ = nullptr;
};

}  // namespace headrace
