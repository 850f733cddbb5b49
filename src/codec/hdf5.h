#pragma once

// What the filters of HDF5 have in common: their client data, "cd_values" of a file's metadata.

#include <string>
#include <vector>

#include "codec/config.h"
#include "codec/elements.h"

namespace headrace {

// `least` values of 32 bits at least.
inline std::vector<std::uint32_t> client_data(CodecConfig& config, std::size_t least) {
  std::vector<std::uint32_t> values;
  for (const std::int64_t v : config.integers("cd_values")) {
    if (v < 0 || v > 0xFFFFFFFF) {
      config.fail("cd_values", "holds what has no 32 bits: " + std::to_string(v));
    }
    values.push_back(static_cast<std::uint32_t>(v));
  }
  if (values.size() < least) {
    config.fail("cd_values", "has fewer than " + std::to_string(least) + " entries");
  }
  return values;
}

}  // namespace headrace
