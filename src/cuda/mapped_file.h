#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/mapped_file.h"

namespace headrace {

// Backend::map_file for a CUDA device: its pages are locked, for all devices of the process.
std::shared_ptr<const MappedFile> map_file_for(int device,
                                               int fd,
                                               std::uint64_t offset,
                                               std::size_t nbytes);

}  // namespace headrace
