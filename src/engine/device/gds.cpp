#include "engine/device/gds.h"

#include <string>
#include <utility>

#include "base/trace.h"

namespace headrace {
namespace {

std::string why_not(const StoredArray& array, Device::Type device, FetchFor purpose) {
  if (purpose == FetchFor::packing) return "the host decodes the chunks";
  for (const DeviceStep& step : array.layout.devices.decode.steps) {
    if (is_compressor(step.stage.kind))
      return "codec " + step.codec + ": the host reads its headers";
  }
  if (!array.driver.has_files()) return "the store has no files";
  return backend(device).direct_files().why_not;
}

}  // namespace

GdsFile::GdsFile(Backend& backend, Device device, const ObjectReader& object)
    : backend_(backend),
      index_(device.index),
      size_(object.size()),
      opened_(object.open_direct()),
      file_(backend.open_direct(opened_.fd.get(), opened_.path)) {}

void GdsFile::read(std::uint64_t offset, std::uint8_t* target, std::size_t nbytes) const {
  const Span span("gds", nbytes);
  check_object_range(opened_.path, size_, offset, nbytes);
  backend_.with_device(index_, [&] { file_->read(offset, target, nbytes); });
}

std::unique_ptr<Gds> Gds::of(const Config& config,
                             const StoredArray& array,
                             Backend& backend,
                             Device device,
                             FetchFor purpose) {
  if (config.gds == "off") return nullptr;
  const bool forced = config.gds == "on";
  const std::string problem = why_not(array, device.type, purpose);
  if (problem.empty()) return std::unique_ptr<Gds>(new Gds(backend, device, forced));
  if (!forced) return nullptr;
  throw Error(ErrorCode::unsupported, "[read] " + array.state.path() + ": gds=on: " + problem);
}

std::shared_ptr<const GdsFile> Gds::open(const ObjectReader& object) {
  if (refused_) return nullptr;
  try {
    return std::make_shared<const GdsFile>(backend_, device_, object);
  } catch (const Error& error) {
    if (forced_ || error.code() != ErrorCode::unsupported) throw;
    refused_ = true;
    return nullptr;
  }
}

std::shared_ptr<const GdsFile> Gds::open_shard(std::shared_ptr<const ObjectReader> shard) {
  const MutexLock lock(mutex_);
  if (shard_ != shard) {
    file_of_shard_ = open(*shard);
    shard_ = std::move(shard);
  }
  return file_of_shard_;
}

}  // namespace headrace
