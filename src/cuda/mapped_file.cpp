#include "cuda/mapped_file.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include "cuda/check.h"
#include "cuda/device_guard.h"
#include "cuda/memory.h"
#include "headrace/error.h"

namespace headrace {
namespace {

bool has(int device, cudaDeviceAttr attribute) {
  int value = 0;
  HEADRACE_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
  return value != 0;
}

class CudaMappedFile final : public MappedFile {
 public:
  CudaMappedFile(
      int device, int fd, std::uint64_t offset, std::size_t nbytes, MappedPages::Access access)
      : pages_(fd, offset, nbytes, access), device_(device), owner_(::getpid()) {
    const bool read_only = access == MappedPages::Access::read_only;
    const DeviceGuard guard(device);
    HEADRACE_CUDA_CHECK(
        cudaHostRegister(pages_.data(),
                         nbytes,
                         cudaHostRegisterPortable | (read_only ? cudaHostRegisterReadOnly : 0)));
    pages_.protect();
  }
  ~CudaMappedFile() override { unpin(device_, owner_, pages_.data()); }
  CudaMappedFile(const CudaMappedFile&) = delete;
  CudaMappedFile& operator=(const CudaMappedFile&) = delete;

  void copy(Queue& queue, void* target, std::size_t at, std::size_t nbytes) const override {
    queue.upload_pinned(target, pages_.data() + at, nbytes);
  }

 private:
  const MappedPages pages_;
  const int device_;
  const pid_t owner_;
};

}  // namespace

std::shared_ptr<const MappedFile> map_file_for(int device,
                                               int fd,
                                               std::uint64_t offset,
                                               std::size_t nbytes) {
  // There the device goes by the host's page tables, from which a file that is cut short takes its
  // pages: a copy under way would fail, and the context with it.
  if (has(device, cudaDevAttrPageableMemoryAccessUsesHostPageTables))
    throw Error(ErrorCode::unsupported, "the driver locks no pages of files on this machine");
  if (has(device, cudaDevAttrHostRegisterReadOnlySupported)) {
    try {
      return std::make_shared<const CudaMappedFile>(
          device, fd, offset, nbytes, MappedPages::Access::read_only);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::device) throw;
      // Said to be supported, and refused for these pages: as where it is not.
    }
  }
  return std::make_shared<const CudaMappedFile>(
      device, fd, offset, nbytes, MappedPages::Access::writable);
}

}  // namespace headrace
