#include "headrace/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "conformance/error_code.h"
#include "device/device.h"
#include "device/dlpack.h"
#include "headrace/error.h"

namespace headrace {
namespace {

using Capsule = std::unique_ptr<DLManagedTensorVersioned, void (*)(DLManagedTensorVersioned*)>;

Capsule capsule_of(Tensor tensor) {
  return Capsule(std::move(tensor).to_dlpack(), [](DLManagedTensorVersioned* p) { p->deleter(p); });
}

TEST(Device, ParsesItsOwnNames) {
  EXPECT_EQ(Device::parse("cpu"), Device::cpu());
  EXPECT_EQ(Device::parse("cuda"), Device::cuda(0));
  EXPECT_EQ(Device::parse("cuda:11"), Device::cuda(11));
  EXPECT_EQ(Device::parse("auto"), best_device());
  for (const auto* name : {"cpu", "cuda:0", "cuda:3", "simt"}) {
    EXPECT_EQ(Device::parse(name).to_string(), name);
  }
}

TEST(Device, RejectsWhatIsNoDevice) {
  for (const auto* name :
       {"", "CPU", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "cuda:99999999999", "gpu"}) {
    EXPECT_EQ(code_of([&] { Device::parse(name); }), ErrorCode::invalid_argument) << name;
  }
}

TEST(Tensor, OwnsMemoryOfItsShape) {
  const Tensor t = Tensor::empty({3, 4, 5}, DType::int16);
  EXPECT_EQ(t.nbytes(), 120U);
  EXPECT_EQ(t.strides(), (Shape{40, 10, 2}));
  EXPECT_TRUE(t.view().is_c_contiguous());
  std::memset(t.data(), 0x5a, t.nbytes());
}

TEST(Tensor, HasMemoryForNoElements) {
  const Tensor t = Tensor::empty({3, 0, 5}, DType::float32);
  EXPECT_EQ(t.nbytes(), 0U);
  EXPECT_NE(t.data(), nullptr);
  EXPECT_EQ(t.strides(), (Shape{20, 20, 4}));
  EXPECT_EQ(Tensor::empty({}, DType::float64).nbytes(), 8U);
}

TEST(Tensor, RefusesSizesThatOverflow) {
  const auto huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(code_of([&] { Tensor::empty({huge, 2}, DType::int8); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { Tensor::empty({huge}, DType::float64); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] {
              Tensor::empty({0, huge, huge}, DType::int8);
            }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { Tensor::empty({-1}, DType::int8); }), ErrorCode::invalid_argument);
}

TEST(Tensor, RefusesDevicesAndTypesItCannotHold) {
  EXPECT_EQ(code_of([] { Tensor::empty({1}, DType::int8, Device::cuda(99)); }), ErrorCode::device);
  EXPECT_EQ(code_of([] { Tensor::empty({1}, DType::string()); }), ErrorCode::unsupported);
}

TEST(Tensor, ReleaseHandsTheMemoryOver) {
  Tensor t = Tensor::empty({8}, DType::uint8);
  void* data = t.data();
  std::weak_ptr<void> watch;
  {
    const std::shared_ptr<void> owner = std::move(t).release();
    watch = owner;
    EXPECT_EQ(owner.get(), data);
  }
  EXPECT_TRUE(watch.expired());
}

TEST(TensorView, KnowsCOrderFromItsStrides) {
  TensorView view{nullptr, {2, 3}, {}, DType::float32, Device::cpu()};
  EXPECT_TRUE(view.is_c_contiguous());
  EXPECT_EQ(view.size(), 6U);
  view.strides = {12, 4};
  EXPECT_TRUE(view.is_c_contiguous());
  view.strides = {4, 8};
  EXPECT_FALSE(view.is_c_contiguous());
  view.strides = {-12, 4};
  EXPECT_FALSE(view.is_c_contiguous());
  // The stride of an extent of one says nothing, nor does any when there are no elements.
  view.shape = {1, 3};
  view.strides = {777, 4};
  EXPECT_TRUE(view.is_c_contiguous());
  view.shape = {0, 3};
  view.strides = {1, 1};
  EXPECT_TRUE(view.is_c_contiguous());
}

TEST(DLPack, DescribesTheTensor) {
  Tensor t = Tensor::empty({2, 3}, DType::float32);
  void* data = t.data();
  const Capsule capsule = capsule_of(std::move(t));
  const DLTensor& dl = capsule->dl_tensor;
  EXPECT_EQ(capsule->version.major, 1U);
  EXPECT_EQ(capsule->flags, 0U);
  EXPECT_EQ(dl.data, data);
  EXPECT_EQ(dl.device.device_type, kDLCPU);
  EXPECT_EQ(dl.ndim, 2);
  EXPECT_EQ(dl.shape[0], 2);
  EXPECT_EQ(dl.shape[1], 3);
  ASSERT_NE(dl.strides, nullptr);
  EXPECT_EQ(dl.strides[0], 3);  // elements, not bytes
  EXPECT_EQ(dl.strides[1], 1);
  EXPECT_EQ(dl.dtype.code, kDLFloat);
  EXPECT_EQ(dl.dtype.bits, 32);
  EXPECT_EQ(dl.dtype.lanes, 1);
  EXPECT_EQ(dl.byte_offset, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(dl.data) % 64, 0U);
}

TEST(DLPack, HasCodesForNumbersOnly) {
  const auto code = [](const DType& dtype) { return dl_dtype(dtype).value().code; };
  EXPECT_EQ(code(DType::boolean), kDLBool);
  EXPECT_EQ(code(DType::int8), kDLInt);
  EXPECT_EQ(code(DType::uint64), kDLUInt);
  EXPECT_EQ(code(DType::bfloat16), kDLBfloat);
  EXPECT_EQ(dl_dtype(DType::complex128)->bits, 128);
  EXPECT_EQ(code(DType::from_name("float8_e5m2")), kDLFloat8_e5m2);
  for (const DType& dtype : {DType::datetime("ns"),
                             DType::timedelta("s"),
                             DType::fixed_bytes(4),
                             DType::fixed_utf32(2),
                             DType::raw(2),
                             DType::string(),
                             DType::structure({{"a", DType::int8, 0, false, {}}}, 1),
                             DType::from_name("int4"),
                             DType::from_name("float4_e2m1fn")}) {
    EXPECT_FALSE(dl_dtype(dtype)) << dtype.to_string();
  }
  EXPECT_EQ(code_of([] { capsule_of(Tensor::empty({2}, DType::datetime("ns"))); }),
            ErrorCode::unsupported);
}

TEST(DLPack, ZeroDimensionsNeedNoShape) {
  const Capsule capsule = capsule_of(Tensor::empty({}, DType::int64));
  EXPECT_EQ(capsule->dl_tensor.ndim, 0);
  EXPECT_NE(capsule->dl_tensor.data, nullptr);
}

}  // namespace
}  // namespace headrace
