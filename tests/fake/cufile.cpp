// A libcufile.so.0 for tests. FAKE_CUFILE says what it finds: "nvidia-fs", "p2p", "nothing" (the
// driver does not open without the compatibility mode) or "insists" (on that mode). It reads files
// by way of the host, into the memory of simt, or of CUDA where there is a driver.

#include "fake/cufile.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Error {
  int error, cuda_error;
};
struct Properties {
  unsigned major_version, minor_version;
  std::size_t poll_threshold_nbytes, max_direct_io_nbytes;
  unsigned status_flags, control_flags;
  unsigned feature_flags;
  unsigned limits[5];
};
struct Description {
  int type;
  union {
    int fd;
    void* handle;
  };
  const void* calls;
};
struct File {
  int fd;
};

constexpr int kIsNoDescriptor = 5013, kIsNotDirect = 5014, kIsNotOpen = 5015;

bool allows_compatibility = true, forces_compatibility = true, is_open = false;

bool finds(std::string_view what) {
  const char* found = std::getenv("FAKE_CUFILE");
  return found && what == found;
}

// Needs a current context of the memory's device, as the real one does.
bool copy_to_cuda(void* target, const void* source, std::size_t nbytes) {
  using Copy = int (*)(unsigned long long, const void*, std::size_t);
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto copy = driver ? reinterpret_cast<Copy>(dlsym(driver, "cuMemcpyHtoD_v2")) : nullptr;
  return copy && copy(reinterpret_cast<unsigned long long>(target), source, nbytes) == 0;
}

// The kernel does not write to the memory of a GPU.
ssize_t read_at(int fd, std::byte* target, std::size_t nbytes, off_t offset) {
  const ssize_t n = pread(fd, target, nbytes, offset);
  if (n >= 0 || errno != EFAULT) return n;
  std::vector<std::byte> staged(nbytes);
  const ssize_t got = pread(fd, staged.data(), nbytes, offset);
  if (got > 0 && !copy_to_cuda(target, staged.data(), static_cast<std::size_t>(got))) {
    errno = EFAULT;
    return -1;
  }
  return got;
}

}  // namespace

#pragma GCC visibility push(default)

extern "C" {

FakeCufile fake_cufile;

Error cuFileSetParameterBool(int parameter, bool value) {
  if (parameter == 1) allows_compatibility = value;
  if (parameter == 2) forces_compatibility = value;
  return {};
}

Error cuFileDriverOpen() {
  const bool compatible = allows_compatibility || forces_compatibility;
  is_open = compatible || !finds("nothing");
  return {is_open ? 0 : 5001, 0};
}

Error cuFileDriverClose_v2() {
  is_open = false;
  return {};
}

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

Error cuFileHandleRegister(void** handle, Description* description) {
  if (!is_open) return {kIsNotOpen, 0};
  if (description->type != 1) return {kIsNoDescriptor, 0};
  if (fake_cufile.refuse != 0) {
    ++fake_cufile.refused;
    return {fake_cufile.refuse, 0};
  }
  const int flags = fcntl(description->fd, F_GETFL);
  if (flags < 0 || !(flags & O_DIRECT)) return {kIsNotDirect, 0};
  // O_DIRECT asks for aligned memory, which cuFile does not.
  const std::string same = "/proc/self/fd/" + std::to_string(description->fd);
  const int fd = open(same.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {kIsNoDescriptor, 0};
  ++fake_cufile.files;
  ++fake_cufile.open;
  *handle = new File{fd};
  return {};
}

void cuFileHandleDeregister(void* handle) {
  const auto* file = static_cast<File*>(handle);
  close(file->fd);
  delete file;
  --fake_cufile.open;
}

ssize_t cuFileRead(
    void* handle, void* target, std::size_t nbytes, off_t offset, off_t offset_in_target) {
  ++fake_cufile.reads;
  if (fake_cufile.failing_read > 0 && --fake_cufile.failing_read == 0) {
    errno = EIO;
    return fake_cufile.failure;
  }
  const ssize_t n = read_at(static_cast<File*>(handle)->fd,
                            static_cast<std::byte*>(target) + offset_in_target,
                            std::min(nbytes, static_cast<std::size_t>(fake_cufile.most_nbytes)),
                            offset);
  if (n > 0) fake_cufile.nbytes += n;
  return n;
}
}

#pragma GCC visibility pop
