#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "codec/codec.h"
#include "device/backend.h"
#include "engine/device/buffers.h"
#include "engine/device/stages.h"
#include "engine/layout/device_plan.h"

namespace headrace {

// Work on buffers of which some lie on one device, behind what `stream` was given before. Each call
// but decode() returns when the device is done.
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
  // Gives the device what decodes, by headrace's own decoder or a library's: done, and found good,
  // when finish() returns. Waits for the oldest slice where more than kSlicesInFlight are under
  // way. An error names the index of a bad input.
  void decode(const Codec& codec, std::string_view library, Buffers inputs, Buffers outputs);
  void finish();
  // Whether there is something to finish.
  bool is_under_way() const { return !slices_.empty(); }
  Queue& queue() { return *queue_; }

  // Why devices of the type cannot encode these buffers; empty when they can.
  static std::string why_not_encoded(const Codec& codec, const Backend& devices, Buffers inputs);
  // Encodes on the device, into new memory there.
  std::vector<Tensor> encode(const Codec& codec, Buffers inputs);

  // Calls body(first, n) for one run of `count` buffers after the other, each as long as what it
  // has to stage fits into `limit` bytes; then lets go of the pinned memory.
  void each_slice(std::size_t count,
                  std::size_t limit,
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
  // What was given to the device and is not finished.
  struct Slice {
    std::size_t first = 0;
    DeviceStage stage;
    std::string codec;                        // its name, for messages
    std::vector<std::size_t> decoded_nbytes;  // of each input
    // Pinned: what the decoders found of each, and what came from the host.
    std::shared_ptr<std::byte> found, sources;
    std::unique_ptr<Mark> done;

    Error error(std::size_t i, Fault fault) const {
      return fault_error({stage, codec, decoded_nbytes[i]}, fault);
    }
  };
  static constexpr std::size_t kSlicesInFlight = 3;  // as many as slabs of a read

  void finish_oldest();
  void decode_slice(Queue& queue,
                    const Codec& codec,
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
  // Slices take turns with it: bytes of one are copied to the device while that decodes another.
  // Made when there are two.
  std::unique_ptr<Queue> second_queue_;
  std::vector<std::shared_ptr<std::byte>> pinned_;
  std::deque<Slice> slices_;
};

}  // namespace headrace
