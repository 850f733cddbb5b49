#include "headrace/tensor.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/buffer.h"
#include "base/checked.h"
#include "device/backend.h"
#include "device/device.h"
#include "headrace/error.h"

namespace headrace {
namespace {

// Strides of C order in bytes. An extent of zero counts as one, as in NumPy.
Shape c_strides(const Shape& shape, std::size_t itemsize) {
  Shape strides(shape.size());
  auto stride = checked_cast<std::int64_t>(itemsize, "item size");
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride = checked_mul(stride, std::max<std::int64_t>(shape[d], 1), "strides");
  }
  return strides;
}

std::string listed(const Shape& numbers) {
  std::string text = "(";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  }
  return text + (numbers.size() == 1 ? ",)" : ")");
}

}  // namespace

std::size_t TensorView::size() const { return checked_nbytes(shape, 1, "size of a tensor"); }

Shape TensorView::strides_or_c() const {
  if (strides.empty()) return c_strides(shape, dtype.itemsize());
  if (strides.size() != shape.size()) {
    throw Error(ErrorCode::invalid_argument,
                "strides: expected " + std::to_string(shape.size()) +
                    ", one for each dimension, got " + std::to_string(strides.size()));
  }
  return strides;
}

bool TensorView::is_c_contiguous() const {
  if (strides.empty()) return true;
  if (strides.size() != shape.size()) return false;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  const Shape expected = c_strides(shape, dtype.itemsize());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1 && strides[d] != expected[d]) return false;
  }
  return true;
}

void TensorView::check_elements(const DType& wanted, std::size_t alignment) const {
  const auto refuse = [&](const std::string& expected, const std::string& found) {
    throw Error(ErrorCode::invalid_argument,
                "[span] " + wanted.to_string() + ": expected " + expected + ", got " + found);
  };
  if (dtype != wanted) refuse("elements of this type", dtype.to_string());
  if (device.type == Device::Type::cuda) refuse("memory of the host", device.to_string());
  if (!is_c_contiguous()) {
    refuse("C order",
           "strides of " + listed(strides) + " bytes for the shape " + listed(shape) + " of " +
               std::to_string(dtype.itemsize()) + " bytes an element");
  }
  if (data == nullptr && size() != 0) refuse(std::to_string(size()) + " elements", "no memory");
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    refuse("memory aligned to " + std::to_string(alignment) + " bytes", "other memory");
  }
}

Tensor Tensor::empty(const Shape& shape, const DType& dtype, Device device) {
  if (dtype.variable_length()) {
    throw Error(ErrorCode::unsupported,
                "a tensor of " + dtype.to_string() + ": nobody would own what elements point at");
  }
  const std::size_t nbytes = checked_nbytes(shape, dtype.itemsize(), "size of a tensor");
  static_cast<void>(
      c_strides(shape, dtype.itemsize()));  // with an extent of zero they may overflow alone
  check_device(device);
  if (device.is_cpu()) return Tensor(allocate_shared(nbytes), shape, dtype, device);
  Backend& devices = backend(device.type);
  const auto queue = devices.make_queue(device.index);
  auto memory = devices.allocate(*queue, nbytes);
  queue->synchronize();
  return Tensor(std::move(memory), shape, dtype, device);
}

Tensor::Tensor(std::shared_ptr<void> memory,
               const Shape& shape,
               const DType& dtype,
               Device device,
               Ready ready)
    : owner_(std::move(memory)),
      view_{owner_.get(), shape, {}, dtype, device},
      ready_(std::move(ready)) {}

std::size_t Tensor::nbytes() const {
  return checked_nbytes(view_.shape, view_.dtype.itemsize(), "size of a tensor");
}

void Tensor::wait_for_elements(const DType& wanted, std::size_t alignment) const {
  if (!owner_ && data() != nullptr) {
    throw Error(ErrorCode::invalid_argument, "[span] a tensor whose memory was handed over");
  }
  view_.check_elements(wanted, alignment);
  ready_.wait();
}

std::shared_ptr<void> Tensor::release() && {
  view_ = {};
  return std::move(owner_);
}

}  // namespace headrace
