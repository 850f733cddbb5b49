#pragma once

// A type of device as the rest of the library sees it:
//  1. backend(device.type).make_queue(device.index) gives a queue: memory, copies, order.
//  2. kernels() work on that queue.
//  3. allocate() makes memory that outlives the queue: results.
//  4. libraries() and direct_files() are what the type has beside its own kernels and copies: the
//     rest of the library knows it by what it does, and its name from here.
// Nothing of a driver is touched before the first call on a device.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "device/direct_file.h"
#include "device/mapped_file.h"
#include "headrace/device.h"
#include "headrace/tensor.h"
#include "kernels/kernels.h"
#include "simt/queue.h"

namespace headrace {

// Decoders of others that a backend offers beside its own kernels. They are used only when the
// configuration asks for them by name.
struct DecoderLibrary {
  std::string_view name;                     // "nvcomp"
  std::span<const std::string_view> codecs;  // whose steps it decodes
  const Kernels& (*kernels)();               // all null where why_not() says why
  std::string (*why_not)();  // may look for the library, once; empty when it is there
};

inline constexpr Device::Type kDeviceTypes[] = {Device::Type::cuda, Device::Type::simt};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual int device_count() const = 0;  // usable or not
  // Why device `index` cannot be used; empty when it can.
  virtual std::string why_not(int index) const = 0;
  virtual std::string device_name(int index) const = 0;    // "NVIDIA H200"
  virtual std::size_t memory_nbytes(int index) const = 0;  // in all
  // The first device that can be used.
  std::optional<int> first_usable() const;
  // Why there is none: that of the first device. Empty when there is one.
  std::string why_none() const;

  // The driver and its version, which rates measured on the device hold for; empty for a type that
  // is measured by nobody, as how fast it is says nothing.
  virtual std::string driver(int /*index*/) const { return {}; }

  // The host's processors that are at the same memory as it, where there are others
  // (base/memory_nodes.h); empty where all are alike.
  virtual std::span<const int> near_processors(int /*index*/) const { return {}; }

  virtual std::string_view own_name() const = 0;  // of its kernels: "headrace-cuda"
  virtual const Kernels& kernels() const = 0;
  virtual std::span<const DecoderLibrary> libraries() const { return {}; }
  // Null where it offers none of that name.
  const DecoderLibrary* library(std::string_view name) const;

  virtual std::unique_ptr<Queue> make_queue(int index) = 0;
  // A queue on the caller's stream; null is the device's default stream. `unsupported` while a
  // graph is made of what the stream is given.
  virtual std::unique_ptr<Queue> wrap_stream(int index, void* stream) = 0;

  // Memory that anybody may keep: for work given to `queue` at once, for others after its next
  // synchronize() or by wait_for(). When it is freed, whatever the device's default stream was
  // given until then may still use it.
  virtual std::shared_ptr<void> allocate(Queue& queue, std::size_t nbytes) = 0;
  // Host memory that devices of the type copy from and to at full speed, aligned to 64 bytes.
  // Blocks that are freed are kept for the next. `index` is a device that is in use already.
  virtual std::shared_ptr<std::byte> allocate_pinned(int index, std::size_t nbytes) = 0;
  // The pages of the caller's memory; unlocked with the last copy of the pointer.
  virtual std::shared_ptr<void> pin(int index, void* data, std::size_t nbytes) = 0;
  virtual void set_allocator(int index, const Allocator& allocator) = 0;
  // Calls `body` with the device current to this thread, for libraries that ask the driver for it.
  virtual void with_device(int index, FunctionRef<void()> body);

  virtual DirectFiles direct_files() const;
  // Where direct_files() has them. `fd` was opened with O_DIRECT and stays open as long as the
  // result lives; `path` is for messages. `unsupported` where its file system cannot.
  virtual std::unique_ptr<DirectFile> open_direct(int fd, std::string path) const;
  // A stretch of a file that lies in memory, to be copied from where it is; `fd` may be closed
  // then. `unsupported` where the type has nothing for it or its driver does not lock such pages.
  virtual std::shared_ptr<const MappedFile> map_file(int index,
                                                     int fd,
                                                     std::uint64_t offset,
                                                     std::size_t nbytes) const;
};

// Not for the CPU, which has no backend.
Backend& backend(Device::Type type);

// What wrap_stream() says of a stream that is being captured.
[[noreturn]] void refuse_capture();

Backend& simt_backend();
Backend& cuda_backend();  // src/cuda, or src/no_cuda in a build without

}  // namespace headrace
