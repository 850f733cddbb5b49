#pragma once

// Arrays to be read to devices or written from them, and what came of it.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "device/backend.h"
#include "headrace/array.h"
#include "headrace/config.h"
#include "store/store.h"

namespace headrace::test {

// The one that runs kernels on the CPU, and the GPU where there is one.
inline std::vector<Device> devices() {
  std::vector<Device> found{Device::simt()};
  if (const auto gpu = cuda_backend().first_usable()) found.push_back(Device::cuda(*gpu));
  return found;
}

// The device that runs kernels on the CPU, for tests that change a part of it.
class SimtDevice : public Backend {
 public:
  int device_count() const override { return simt_.device_count(); }
  std::string why_not(int index) const override { return simt_.why_not(index); }
  std::string device_name(int index) const override { return simt_.device_name(index); }
  std::size_t memory_nbytes(int index) const override { return simt_.memory_nbytes(index); }
  std::string_view own_name() const override { return simt_.own_name(); }
  const Kernels& kernels() const override { return simt_.kernels(); }
  std::unique_ptr<Queue> make_queue(int index) override { return simt_.make_queue(index); }
  std::unique_ptr<Queue> wrap_stream(int index, void* stream) override {
    return simt_.wrap_stream(index, stream);
  }
  std::shared_ptr<void> allocate(Queue& queue, std::size_t nbytes) override {
    return simt_.allocate(queue, nbytes);
  }
  std::shared_ptr<std::byte> allocate_pinned(int index, std::size_t nbytes) override {
    return simt_.allocate_pinned(index, nbytes);
  }
  std::shared_ptr<void> pin(int index, void* data, std::size_t nbytes) override {
    return simt_.pin(index, data, nbytes);
  }
  void set_allocator(int index, const Allocator& allocator) override {
    simt_.set_allocator(index, allocator);
  }

 private:
  Backend& simt_ = simt_backend();
};

inline std::vector<std::byte> bytes_of(const Tensor& tensor) {
  std::vector<std::byte> copy(tensor.nbytes());
  if (tensor.device().is_cpu()) {
    if (!copy.empty()) std::memcpy(copy.data(), tensor.data(), copy.size());
    return copy;
  }
  const auto queue = backend(tensor.device().type).make_queue(tensor.device().index);
  queue->download(copy.data(), tensor.data(), copy.size());
  queue->synchronize();
  return copy;
}

// Small arrays decode and encode on the device too, in several slabs; the configuration comes back
// at the end.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    Config small = before_;
    small.device_min_decode_nbytes = 0;
    small.device_slab_nbytes = 512;
    set_config(small);
  }
  void TearDown() override { set_config(before_); }

 private:
  const Config before_ = config();
};

struct Layout {
  const char* name;
  Shape shape, chunks, shards;
  std::vector<CodecSpec> codecs;
  DType dtype = DType::float32;
  int zarr_format = 3;
};
inline void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

inline Array create(const Store& store, const Layout& layout, bool write_empty_chunks = false) {
  CreateOptions options;
  options.shape = layout.shape;
  options.dtype = layout.dtype;
  options.chunks = layout.chunks;
  options.shards = layout.shards;
  options.codecs = layout.codecs;
  options.zarr_format = layout.zarr_format;
  options.fill_value.emplace(layout.dtype.itemsize(), std::byte{7});
  options.write_empty_chunks = write_empty_chunks;
  return create_array(store, "a", options);
}

// Most of the array; a part is left to the fill value, with chunks that are missing.
inline Array filled(const Store& store, const Layout& layout) {
  const Array a = create(store, layout);
  std::vector<SelectionItem> items(layout.shape.size(), all);
  if (!items.empty() && layout.shape[0] > 3) items[0] = slice(0, 2 * layout.shape[0] / 3);
  const Selection part(std::move(items));
  const Shape shape = a.result_shape(part);
  Tensor data = Tensor::empty(shape, layout.dtype);
  auto* bytes = static_cast<std::uint8_t*>(data.data());
  std::mt19937 random(5);
  for (std::size_t i = 0; i < data.nbytes(); ++i)
    bytes[i] = static_cast<std::uint8_t>(random() % 4 + i / 16 % 8);
  a.write(part, data.view());
  return a;
}

inline std::string error_of(const std::function<void()>& call, ErrorCode wanted) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), wanted) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace headrace::test
