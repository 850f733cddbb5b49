#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "codec/codec.h"
#include "device/backend.h"
#include "engine/device/buffers.h"

namespace headrace {

// Work on buffers of which some lie on one device. Waits for what `stream` was given before, and
// returns from each call when the device is done.
class DeviceBatch {
 public:
  DeviceBatch(Device device, Stream stream);
  ~DeviceBatch();
  DeviceBatch(const DeviceBatch&) = delete;
  DeviceBatch& operator=(const DeviceBatch&) = delete;

  using Buffers = std::span<const BatchBuffer>;

  // Why devices of the type cannot decode `codec` to these sizes; empty when they can.
  static std::string why_not_decoded(const Codec& codec,
                                     const Backend& devices,
                                     std::string_view library,
                                     Buffers outputs);
  // Decodes on the device, by headrace's own decoder or a library's. An error names the index of a
  // bad input.
  void decode(const Codec& codec, std::string_view library, Buffers inputs, Buffers outputs);

  // Why devices of the type cannot encode these buffers; empty when they can.
  static std::string why_not_encoded(const Codec& codec, const Backend& devices, Buffers inputs);
  // Encodes on the device, into new memory there.
  std::vector<Tensor> encode(const Codec& codec, Buffers inputs);

  // Calls body(first, n) for one run of `count` buffers after the other, each as long as what it
  // has to stage fits into device_slab_nbytes; then lets go of the pinned memory.
  void each_slice(std::size_t count,
                  FunctionRef<std::size_t(std::size_t i)> staged_nbytes,
                  FunctionRef<void(std::size_t first, std::size_t n)> body);

  // For work of the host: the buffers themselves where they lie there, else copies in pinned
  // memory, which live to the end of the slice.
  std::vector<MutableBytes> download(Buffers buffers);
  // The same without contents, for upload() to bring to the device.
  std::vector<MutableBytes> stage(Buffers buffers);
  void upload(std::span<const MutableBytes> staged, Buffers buffers);

  // New memory of uint8 on the device.
  Tensor allocate(std::size_t nbytes);

 private:
  void decode_slice(const Codec& codec,
                    const Kernels& kernels,
                    std::size_t first,
                    Buffers inputs,
                    Buffers outputs);
  void encode_slice(const Codec& codec,
                    std::size_t first,
                    Buffers inputs,
                    std::vector<Tensor>& results);
  std::vector<std::size_t> encoded_sizes(const Codec& codec,
                                         std::size_t first,
                                         Buffers inputs,
                                         const std::uint64_t* counted);

  const Device device_;
  Backend& backend_;
  const std::unique_ptr<Queue> queue_;
  std::vector<std::shared_ptr<std::byte>> pinned_;
};

}  // namespace headrace
