#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "device/backend.h"

namespace headrace {

// What the doctor says of one device.
struct DeviceRow {
  Device device;
  std::string why_not;     // empty when it can be used; the rest is known only then
  std::string name{};      // "NVIDIA H200"
  std::size_t nbytes = 0;  // of its memory
};

// Each device that there is of a type, and where there is none a row that says why.
std::vector<DeviceRow> device_rows(Device::Type type, const Backend& devices);

}  // namespace headrace
