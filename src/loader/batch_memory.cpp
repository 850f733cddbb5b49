#include "loader/batch_memory.h"

#include <cstring>
#include <vector>

#include "base/buffer.h"
#include "base/checked.h"
#include "device/backend.h"
#include "loader/host_gather.h"

namespace headrace::loader {
namespace {

class HostMemory final : public BatchMemory {
 public:
  std::shared_ptr<void> allocate(std::size_t nbytes) override { return allocate_shared(nbytes); }
  Tensor allocate_tensor(const Shape& shape, const DType& dtype) override {
    return Tensor::empty(shape, dtype);
  }
  void upload(void* target, const void* source, std::size_t nbytes) override {
    copy(target, source, nbytes);
  }
  void zero(void* target, std::size_t nbytes) override { std::memset(target, 0, nbytes); }
  void copy(void* target, const void* source, std::size_t nbytes) override {
    std::memcpy(target, source, nbytes);
  }
  void gather(const GatherBatch& batch) override { gather_on_host(batch); }
  void gather_as_is(std::span<const GatherBox> boxes,
                    unsigned axes,
                    std::size_t itemsize) override {
    copy_on_host(boxes, axes, itemsize);
  }
  void finish() override {}
  Stream stream() const override { return {}; }
};

class DeviceMemory final : public BatchMemory {
 public:
  explicit DeviceMemory(Device device)
      : device_(device),
        backend_(backend(device.type)),
        queue_(backend_.make_queue(device.index)) {}

  // In the order of the queue: no stream of the caller's holds up the next use of the memory.
  std::shared_ptr<void> allocate(std::size_t nbytes) override {
    return {queue_->allocate(nbytes), [queue = queue_.get()](void* p) { queue->free(p); }};
  }
  Tensor allocate_tensor(const Shape& shape, const DType& dtype) override {
    const std::size_t nbytes = checked_nbytes(shape, dtype.itemsize(), "size of a batch");
    return Tensor(backend_.allocate(*queue_, nbytes), shape, dtype, device_);
  }
  void upload(void* target, const void* source, std::size_t nbytes) override {
    queue_->upload(target, source, nbytes);
  }
  void zero(void* target, std::size_t nbytes) override { queue_->fill(target, 0, nbytes); }
  void copy(void* target, const void* source, std::size_t nbytes) override {
    queue_->copy(target, source, nbytes);
  }
  void gather(const GatherBatch& batch) override { backend_.kernels().gather(*queue_, batch); }
  void gather_as_is(std::span<const GatherBox> boxes,
                    unsigned axes,
                    std::size_t itemsize) override {
    std::vector<Placement> placements;
    placements.reserve(boxes.size());
    for (const GatherBox& box : boxes) {
      Placement& placement = placements.emplace_back();
      placement.source = box.source;
      placement.target = box.target;
      for (unsigned i = 0; i < axes; ++i) {
        placement.count[i] = box.count[i];
        placement.from[i].stride = box.from[i];
        placement.to[i].stride = box.to[i];
      }
    }
    backend_.kernels().place(*queue_, {placements, axes, static_cast<std::uint32_t>(itemsize), 0});
  }
  void finish() override { queue_->synchronize(); }
  Stream stream() const override { return Stream::from(queue_->native()); }

 private:
  const Device device_;
  Backend& backend_;
  const std::unique_ptr<Queue> queue_;
};

}  // namespace

std::unique_ptr<BatchMemory> make_batch_memory(Device device) {
  if (device.is_cpu()) return std::make_unique<HostMemory>();
  return std::make_unique<DeviceMemory>(device);
}

}  // namespace headrace::loader
