#pragma once

// GPUDirect Storage in a read to a device: encoded bytes go from a file into the slab's memory on
// the device, past the host's. Only bytes that the host need not see: those of chunks without a
// compressor, for headers of compressed ones are read by the host.

#include <atomic>
#include <memory>

#include "base/mutex.h"
#include "device/backend.h"
#include "device/direct_file.h"
#include "engine/fetch/plan.h"
#include "engine/request/stored_array.h"
#include "headrace/config.h"
#include "store/store.h"

namespace headrace {

class GdsFile {
 public:
  GdsFile(Backend& backend, Device device, const ObjectReader& object);

  // As ObjectReader::read, into device memory that no queue uses meanwhile.
  void read(std::uint64_t offset, std::uint8_t* target, std::size_t nbytes) const;

 private:
  Backend& backend_;
  const int index_;
  const std::uint64_t size_;
  const ObjectFile opened_;
  const std::unique_ptr<const DirectFile> file_;
};

// Of one read.
class Gds {
 public:
  // Null where the read goes through the host. When `gds` is "on" that is `unsupported`, and says
  // why.
  static std::unique_ptr<Gds> of(const Config& config,
                                 const StoredArray& array,
                                 Backend& backend,
                                 Device device,
                                 FetchFor purpose);

  // Whether `gds` is "on".
  bool forced() const { return forced_; }

  // Null where the file system is not native and `gds` is not "on": then this and all later objects
  // go through the host.
  std::shared_ptr<const GdsFile> open(const ObjectReader& object);
  // The same for a shard: it is opened once for reads in a row.
  std::shared_ptr<const GdsFile> open_shard(std::shared_ptr<const ObjectReader> shard);

 private:
  Gds(Backend& backend, Device device, bool forced)
      : backend_(backend), device_(device), forced_(forced) {}

  Backend& backend_;
  const Device device_;
  const bool forced_;
  std::atomic<bool> refused_{false};
  Mutex mutex_;
  std::shared_ptr<const ObjectReader> shard_ GUARDED_BY(mutex_);  // the last that was opened
  std::shared_ptr<const GdsFile> file_of_shard_ GUARDED_BY(mutex_);
};

}  // namespace headrace
