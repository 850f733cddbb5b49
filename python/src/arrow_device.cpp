// Arrays of Arrow in memory of devices, for who takes them without a copy.
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common.h"
#include "device_array.h"
#include "dlpack.h"

namespace headrace::python {

namespace {

struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray* self);
  void* private_data;
};

struct ArrowDeviceArray {
  ArrowArray array;
  std::int64_t device_id;
  std::int32_t device_type;  // as DLPack numbers them
  void* sync_event;
  std::int64_t reserved[3];
};

constexpr const char* kCapsule = "arrow_device_array";

// What an ArrowArray points at.
struct Held {
  std::vector<const void*> buffers;
  std::vector<std::shared_ptr<void>> owners;
  std::vector<std::unique_ptr<ArrowArray>> arrays;
  std::vector<ArrowArray*> children;  // the same

  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    for (const auto& child : arrays)
      if (child->release != nullptr) child->release(child.get());  // else the consumer took it
  }
};

void release(ArrowArray* array) {
  delete static_cast<Held*>(array->private_data);
  array->release = nullptr;
}

// `parts`: the length, a buffer or None each, and the parts of the children.
ArrowArray arrow_array(nb::handle parts) {
  auto held = std::make_unique<Held>();
  for (nb::handle buffer : nb::object(parts[1])) {
    if (buffer.is_none()) {
      held->buffers.push_back(nullptr);
      continue;
    }
    const auto& array = nb::cast<const PyDeviceArray&>(buffer);
    held->buffers.push_back(array.view.data);
    held->owners.push_back(array.owner);
  }
  for (nb::handle child : nb::object(parts[2])) {
    held->arrays.push_back(std::make_unique<ArrowArray>(arrow_array(child)));
    held->children.push_back(held->arrays.back().get());
  }
  ArrowArray result{};
  result.length = nb::cast<std::int64_t>(nb::object(parts[0]));
  result.n_buffers = static_cast<std::int64_t>(held->buffers.size());
  result.n_children = static_cast<std::int64_t>(held->children.size());
  result.buffers = held->buffers.data();
  result.children = held->children.data();
  result.release = release;
  result.private_data = held.release();
  return result;
}

nb::object capsule_of(nb::handle parts, const Device& device) {
  auto exported = std::make_unique<ArrowDeviceArray>();
  exported->device_type = dlpack_type_of(device);
  exported->device_id = exported->device_type == kDLCPU ? -1 : device.index;
  exported->array = arrow_array(parts);
  const auto drop = [](PyObject* capsule) {
    const std::unique_ptr<ArrowDeviceArray> dropped(
        static_cast<ArrowDeviceArray*>(PyCapsule_GetPointer(capsule, kCapsule)));
    if (dropped->array.release != nullptr) dropped->array.release(&dropped->array);
  };
  PyObject* const capsule = PyCapsule_New(exported.get(), kCapsule, drop);
  if (capsule == nullptr) {
    exported->array.release(&exported->array);
    throw nb::python_error();
  }
  static_cast<void>(exported.release());
  return nb::steal(capsule);
}

}  // namespace

void bind_arrow_device(nb::module_& m) {
  m.def(
      "arrow_device_array",
      [](nb::handle parts, nb::handle device) {
        return capsule_of(parts, device_from_python(device));
      },
      nb::arg("parts"),
      nb::arg("device"),
      nb::sig("def arrow_device_array(parts: tuple[int, typing.Any, typing.Any], device: str) -> "
              "object"));
}

}  // namespace headrace::python
