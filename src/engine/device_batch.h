#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "codec/codec.h"
#include "device/backend.h"

namespace headrace {

// Bytes that somebody else owns, in host memory or in that of the batch's device.
struct BatchBuffer {
  std::byte* data = nullptr;
  std::size_t nbytes = 0;
  bool on_device = false;
};

// Work on buffers of which some lie on one device. Waits for what `stream` was given before, and
// returns from each call when the device is done.
class DeviceBatch {
 public:
  DeviceBatch(Device device, Stream stream);
  ~DeviceBatch();
  DeviceBatch(const DeviceBatch&) = delete;
  DeviceBatch& operator=(const DeviceBatch&) = delete;

  // Why devices of the type cannot decode `codec` to these sizes; empty when they can.
  static std::string why_not(const Codec& codec,
                             const Backend& devices,
                             bool nvcomp,
                             std::span<const BatchBuffer> outputs);
  // Decodes on the device, by headrace's own decoder or nvCOMP's. An error names the index of a bad
  // input.
  void decode(const Codec& codec,
              bool nvcomp,
              std::span<const BatchBuffer> inputs,
              std::span<const BatchBuffer> outputs);

  // Calls body(first, inputs, outputs) for one run of buffers after the other, each as long as what
  // it has to stage fits into device_slab_nbytes; then lets go of the pinned memory.
  using Buffers = std::span<const BatchBuffer>;
  void each_slice(
      Buffers inputs,
      Buffers outputs,
      FunctionRef<std::size_t(const BatchBuffer& input, const BatchBuffer& output)> staged_nbytes,
      FunctionRef<void(std::size_t first, Buffers inputs, Buffers outputs)> body);

  // For work of the host: the buffers themselves where they lie there, else copies in pinned
  // memory, which live to the end of the slice.
  std::vector<MutableBytes> download(std::span<const BatchBuffer> buffers);
  // The same without contents, for upload() to bring to the device.
  std::vector<MutableBytes> stage(std::span<const BatchBuffer> buffers);
  void upload(std::span<const MutableBytes> staged, std::span<const BatchBuffer> buffers);

  // New memory of uint8 on the device.
  Tensor allocate(std::size_t nbytes);

 private:
  void decode_slice(const Codec& codec,
                    const Kernels& kernels,
                    std::size_t first,
                    std::span<const BatchBuffer> inputs,
                    std::span<const BatchBuffer> outputs);

  const Device device_;
  Backend& backend_;
  const std::unique_ptr<Queue> queue_;
  std::vector<std::shared_ptr<std::byte>> pinned_;
};

}  // namespace headrace
