#pragma once

// The C structs of DLPack 1.x, after its specification:
// https://dmlc.github.io/dlpack/latest/c_api.html

#include <cstdint>

struct DLDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};

struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null means C order
  std::uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

struct DLPackVersion {
  std::uint32_t major;
  std::uint32_t minor;
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

namespace headrace::python {

enum DLDeviceCode : std::int32_t { kDLCpu = 1, kDLCuda = 2, kDLCudaHost = 3, kDLCudaManaged = 13 };
inline constexpr std::uint64_t kDLFlagReadOnly = 1;

}  // namespace headrace::python
