#include "engine/report/device_rows.h"

#include <algorithm>

namespace headrace {

std::vector<DeviceRow> device_rows(Device::Type type, const Backend& devices) {
  std::vector<DeviceRow> rows;
  const int count = std::max(devices.device_count(), 1);
  for (int i = 0; i < count; ++i) {
    DeviceRow row{{type, i}, devices.why_not(i)};
    if (row.why_not.empty()) {
      row.name = devices.device_name(i);
      row.nbytes = devices.memory_nbytes(i);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace headrace
