#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace headrace {

// A file whose bytes go into device memory past the host's. Any number of threads may read.
class DirectFile {
 public:
  virtual ~DirectFile() = default;

  // Fills device memory that no queue uses meanwhile; its device is current to the calling thread,
  // which waits. `io` when that fails or the file ends before.
  virtual void read(std::uint64_t offset, void* target, std::size_t nbytes) const = 0;
};

// What a type of device has for it.
struct DirectFiles {
  std::string library{};  // empty where none is looked for
  std::string why_not{};  // empty when files can be read so
  std::string driver{};   // "nvidia-fs 2.26", "PCI P2PDMA"
};

}  // namespace headrace
