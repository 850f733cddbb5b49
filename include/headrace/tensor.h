#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/dtype.h"
#include "headrace/future.h"

struct DLManagedTensorVersioned;  // dlpack.h; not needed to use this header

namespace headrace::detail {
class DeviceWork;  // src/device/device_work.h
}

#pragma GCC visibility push(default)
namespace headrace {

using Shape = std::vector<std::int64_t>;

// Where memory lies. "cuda:1" is the second CUDA device. "simt" is for tests: its memory is host
// memory, and the device's kernels run on the CPU, slowly.
struct Device {
  enum class Type : std::uint8_t { cpu, cuda, simt };

  Type type = Type::cpu;
  int index = 0;

  static constexpr Device cpu() { return {Type::cpu, 0}; }
  static constexpr Device cuda(int index = 0) { return {Type::cuda, index}; }
  static constexpr Device simt() { return {Type::simt, 0}; }
  // "cpu", "cuda", "cuda:N", "simt", "auto" (the first GPU that can be used, else the CPU).
  static Device parse(std::string_view name);

  bool is_cpu() const { return type == Type::cpu; }
  std::string to_string() const;
  friend bool operator==(const Device&, const Device&) = default;
};

// A device stream of the caller's, opaque. On the CPU there is none.
class Stream {
 public:
  Stream() = default;
  static Stream from(void* raw) { return Stream(raw); }
  void* raw() const { return raw_; }

 private:
  explicit Stream(void* raw) : raw_(raw) {}
  void* raw_ = nullptr;
};

// Memory that somebody else owns, seen as an array. Strides are in BYTES (as in NumPy, unlike
// DLPack), may be negative or zero, and are empty for C order.
struct TensorView {
  void* data = nullptr;
  Shape shape{};
  Shape strides{};
  DType dtype{};
  Device device{};

  std::size_t size() const;  // elements
  std::size_t ndim() const { return shape.size(); }
  Shape strides_or_c() const;  // the strides, those of C order when empty
  bool is_c_contiguous() const;

  // The elements in C order, without a copy. `invalid_argument` when dtype_of<T>() is not the type
  // of the elements, the memory is not the host's (cpu or simt), is not aligned for T, or does not
  // hold the elements in C order. A bool is not looked at: of a store that holds other bytes than 0
  // and 1 for one, and is not to be trusted, look at `data`.
  template <NativeElement T>
  std::span<T> span() {
    check_elements(dtype_of<T>(), alignof(T));
    return {static_cast<T*>(data), size()};
  }
  template <NativeElement T>
  std::span<const T> span() const {
    check_elements(dtype_of<T>(), alignof(T));
    return {static_cast<const T*>(data), size()};
  }
  // What span() throws, for elements of another kind: the dtype and the alignment that are wanted.
  void check_elements(const DType& wanted, std::size_t alignment) const;
};

// Work on a device that fills memory: when it is done, and how it ended. Copies share the work;
// dropping the last neither waits for it nor ends it. What the work needs is kept until it is done.
class Ready {
 public:
  Ready() = default;  // done
  explicit Ready(std::shared_ptr<detail::DeviceWork> work);

  bool done() const;
  // Waits, and throws what the work found wrong: `corrupt` for bad input, each time.
  void wait() const;
  bool wait_for(std::chrono::nanoseconds timeout) const;  // true when it was done within the time
  // What `stream` (none: the device's default stream) is given from now on comes after the work;
  // the host does not wait. Throws what is known to be wrong by now: what is found later, wait()
  // throws. `unsupported` while `stream` is being captured and the work is not done.
  void before(Stream stream) const;
  // The stream of the caller that the work was queued for, while it is not done.
  Stream stream() const;
  // The same as a request, whose cancel() does nothing. Its callbacks share one thread, which also
  // lets go of what work kept, soon after it is done: they should not block.
  Future<Unit> future() const;

 private:
  std::shared_ptr<detail::DeviceWork> work_;
};

// An array that owns its memory, in C order. Movable, not copyable.
class Tensor {
 public:
  Tensor() = default;
  // Memory of at least the size, on `device`, let go with the last owner.
  Tensor(std::shared_ptr<void> memory,
         const Shape& shape,
         const DType& dtype,
         Device device,
         Ready ready = {});
  // Uninitialised memory on `device`.
  static Tensor empty(const Shape& shape, const DType& dtype, Device device = Device::cpu());

  void* data() const { return view_.data; }
  const Shape& shape() const { return view_.shape; }
  Shape strides() const { return view_.strides_or_c(); }
  const DType& dtype() const { return view_.dtype; }
  const Device& device() const { return view_.device; }
  std::size_t size() const { return view_.size(); }  // elements
  std::size_t ndim() const { return view_.ndim(); }
  std::size_t nbytes() const;
  const TensorView& view() const { return view_; }

  // TensorView::span() of memory that is ready: waits, and throws what ready().wait() throws. Of a
  // temporary there is none: its memory ends with it.
  template <NativeElement T>
  std::span<T> span() & {
    wait_for_elements(dtype_of<T>(), alignof(T));
    return {static_cast<T*>(data()), size()};
  }
  template <NativeElement T>
  std::span<const T> span() const& {
    wait_for_elements(dtype_of<T>(), alignof(T));
    return {static_cast<const T*>(data()), size()};
  }
  template <NativeElement T>
  void span() const&& = delete;

  // When the memory holds the elements. Only what says so gives tensors that are not done:
  // decode_batch_async.
  const Ready& ready() const { return ready_; }

  // Hands the memory over as a DLPack 1.x capsule; the consumer calls its deleter. Waits until it
  // is ready; to_dlpack(view, owner) does not. `unsupported` for types that DLPack has no code for.
  DLManagedTensorVersioned* to_dlpack() &&;
  // Hands the memory over to whoever holds the pointer: it is freed with the last copy. Ready or
  // not.
  std::shared_ptr<void> release() &&;

 private:
  void wait_for_elements(const DType& wanted, std::size_t alignment) const;

  std::shared_ptr<void> owner_;
  TensorView view_;
  Ready ready_;
};

// Elements of variable length one behind the other, as Arrow's large types (large_string,
// large_binary, large_list) lay them out: element i begins at values[offsets[i]] and ends before
// values[offsets[i + 1]], in C order of the shape. Both tensors lie on one device.
struct RaggedTensor {
  Shape shape{};     // of the elements
  DType dtype{};     // string, bytes, object or array
  Tensor offsets{};  // int64, one more than there are elements; the first is 0
  Tensor values{};   // uint8, the bytes; of DType::array the items, in their type
};

// A copy of `source` on `to`, in C order, done when this returns. What `stream` (none: the default
// stream of the source's device) was given before may still write the source.
Tensor copy(const TensorView& source, Device to, Stream stream = {});

// Memory that others own as a DLPack 1.x capsule; `owner` lives until the consumer calls its
// deleter.
DLManagedTensorVersioned* to_dlpack(const TensorView& view, std::shared_ptr<void> owner);

}  // namespace headrace
#pragma GCC visibility pop
