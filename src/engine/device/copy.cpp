#include "base/checked.h"
#include "device/backend.h"
#include "device/device.h"
#include "engine/device/placement.h"
#include "engine/query/sink.h"
#include "headrace/tensor.h"

namespace headrace {
namespace {

Box whole(const TensorView& view) {
  Box box;
  box.user = static_cast<std::byte*>(view.data);
  const Shape strides = view.strides_or_c();
  for (std::size_t d = 0; d < strides.size(); ++d) {
    Axis axis;
    axis.count = view.shape[d];
    axis.user_step = strides[d];
    box.axes.push_back(axis);
  }
  return box;
}

Tensor copy_on_host(const TensorView& source) {
  Tensor result = Tensor::empty(source.shape, source.dtype);
  if (result.nbytes() > 0) {
    make_sink(whole(source), source.shape, source.dtype.itemsize())
        .gather(static_cast<std::byte*>(result.data()));
  }
  return result;
}

// In C order, in new memory of the source's device.
Tensor copy_on_device(const TensorView& source, Backend& devices, Queue& queue) {
  const std::size_t itemsize = source.dtype.itemsize();
  const std::size_t nbytes = checked_nbytes(source.shape, itemsize, "size of a tensor");
  Tensor result(devices.allocate(queue, nbytes), source.shape, source.dtype, source.device);
  if (nbytes == 0) return result;
  if (source.is_c_contiguous()) {
    queue.copy(result.data(), source.data, nbytes);
    return result;
  }
  PlacementList placements(itemsize, 0);
  placements.add_chunk(
      whole(result.view()), static_cast<const std::uint8_t*>(source.data), source.strides_or_c());
  placements.run(queue, devices.kernels());
  return result;
}

Tensor download(const TensorView& source, Stream stream) {
  Backend& devices = backend(source.device.type);
  const int index = source.device.index;
  const auto queue = devices.make_queue(index);
  queue->wait_for(*devices.wrap_stream(index, stream.raw()));
  Tensor dense;
  const void* from = source.data;
  if (!source.is_c_contiguous()) {
    dense = copy_on_device(source, devices, *queue);
    from = dense.data();
  }
  Tensor result = Tensor::empty(source.shape, source.dtype);
  queue->download(result.data(), from, result.nbytes());
  queue->synchronize();
  return result;
}

Tensor upload(const TensorView& source, Device to) {
  if (!source.is_c_contiguous()) return upload(copy_on_host(source).view(), to);
  Tensor result = Tensor::empty(source.shape, source.dtype, to);
  const auto queue = backend(to.type).make_queue(to.index);
  queue->upload(result.data(), source.data, result.nbytes());
  queue->synchronize();
  return result;
}

}  // namespace

Tensor copy(const TensorView& source, Device to, Stream stream) {
  check_device(source.device);
  check_device(to);
  if (source.dtype.variable_length()) {
    throw Error(ErrorCode::unsupported,
                "copy: elements of " + source.dtype.to_string() + " point into host memory");
  }
  if (source.device.is_cpu()) return to.is_cpu() ? copy_on_host(source) : upload(source, to);
  if (source.device != to) {
    Tensor host = download(source, stream);
    return to.is_cpu() ? std::move(host) : upload(host.view(), to);
  }
  Backend& devices = backend(to.type);
  const auto queue = devices.make_queue(to.index);
  queue->wait_for(*devices.wrap_stream(to.index, stream.raw()));
  Tensor result = copy_on_device(source, devices, *queue);
  queue->synchronize();
  return result;
}

}  // namespace headrace
