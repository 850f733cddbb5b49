#include "headrace/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <complex>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "conformance/error_code.h"
#include "device/device.h"
#include "device/dlpack.h"
#include "headrace/array.h"
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
  EXPECT_EQ(t.size(), 60U);
  EXPECT_EQ(t.ndim(), 3U);
  EXPECT_EQ(t.strides(), (Shape{40, 10, 2}));
  EXPECT_TRUE(t.view().is_c_contiguous());
  std::memset(t.data(), 0x5a, t.nbytes());
}

TEST(Tensor, HasMemoryForNoElements) {
  const Tensor t = Tensor::empty({3, 0, 5}, DType::float32);
  EXPECT_EQ(t.nbytes(), 0U);
  EXPECT_NE(t.data(), nullptr);
  EXPECT_EQ(t.strides(), (Shape{20, 20, 4}));
  EXPECT_EQ(t.size(), 0U);
  const Tensor scalar = Tensor::empty({}, DType::float64);
  EXPECT_EQ(scalar.nbytes(), 8U);
  EXPECT_EQ(scalar.size(), 1U);
  EXPECT_EQ(scalar.ndim(), 0U);
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
  EXPECT_EQ(view.ndim(), 2U);
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

TEST(TensorView, HasAStrideForEachDimension) {
  std::vector<float> elements(24, 1);
  CreateOptions options;
  options.shape = {6, 4};
  options.chunks = {3, 4};
  options.dtype = DType::float32;
  const Array array = create_array(memory_store(), "", options);
  for (const Shape& strides : {Shape{16}, Shape{16, 4, 4}}) {
    const TensorView view{elements.data(), {6, 4}, strides, DType::float32, Device::cpu()};
    for (const auto& call : {std::function<void()>([&] { array.write({}, view); }),
                             std::function<void()>([&] { array.read_into({}, view); }),
                             std::function<void()>([&] { array.append(view); })}) {
      try {
        call();
        ADD_FAILURE() << strides.size();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      }
    }
  }
  EXPECT_EQ(array.shape(), (Shape{6, 4}));
}

template <typename T>
void expect_elements_of(const DType& dtype) {
  SCOPED_TRACE(dtype.to_string());
  EXPECT_EQ(dtype_of<T>(), dtype);
  EXPECT_EQ(sizeof(T), dtype.itemsize());
  Tensor tensor = Tensor::empty({2, 3}, dtype);
  const std::span<T> span = tensor.span<T>();
  ASSERT_EQ(span.size(), 6U);
  EXPECT_EQ(static_cast<void*>(span.data()), tensor.data());
  for (std::size_t i = 0; i < 6; ++i) span[i] = static_cast<T>(i % 2);
  const Tensor& same = tensor;
  static_assert(std::is_same_v<decltype(same.span<T>()), std::span<const T>>);
  EXPECT_EQ(same.span<T>()[5], static_cast<T>(1));
  EXPECT_EQ(same.view().span<T>().data(), span.data());
}

TEST(Span, HasTheElementsOfEachNativeType) {
  expect_elements_of<bool>(DType::boolean);
  expect_elements_of<std::int8_t>(DType::int8);
  expect_elements_of<std::int16_t>(DType::int16);
  expect_elements_of<std::int32_t>(DType::int32);
  expect_elements_of<std::int64_t>(DType::int64);
  expect_elements_of<long long>(DType::int64);
  expect_elements_of<std::uint8_t>(DType::uint8);
  expect_elements_of<std::uint16_t>(DType::uint16);
  expect_elements_of<std::uint32_t>(DType::uint32);
  expect_elements_of<std::uint64_t>(DType::uint64);
  expect_elements_of<unsigned long long>(DType::uint64);
  expect_elements_of<float>(DType::float32);
  expect_elements_of<double>(DType::float64);
  expect_elements_of<std::complex<float>>(DType::complex64);
  expect_elements_of<std::complex<double>>(DType::complex128);
}

template <typename T>
concept SpanOfTemporary = requires {
  Tensor().span<T>();
};
template <typename T>
concept SpanOfTensor = requires(Tensor tensor) {
  tensor.span<T>();
};

TEST(Span, IsOfElementsAndNotOfTemporaries) {
  static_assert(SpanOfTensor<float> && !SpanOfTemporary<float>);
  static_assert(!SpanOfTensor<char> && !SpanOfTensor<std::byte> && !SpanOfTensor<long double>);
  static_assert(!SpanOfTensor<const float> && !SpanOfTensor<void*>);
}

template <typename T>
std::string refusal(const TensorView& view) {
  try {
    static_cast<void>(view.span<T>());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Span, RefusesAnotherTypeThanTheElements) {
  Tensor tensor = Tensor::empty({4}, DType::int16);
  EXPECT_EQ(refusal<float>(tensor.view()),
            "[span] float32: expected elements of this type, got int16");
  EXPECT_EQ(code_of([&] { static_cast<void>(tensor.span<float>()); }), ErrorCode::invalid_argument);
  // Of one size is not enough, and what a name says counts, not the byte that it takes.
  EXPECT_NE(refusal<std::uint16_t>(tensor.view()), "");
  EXPECT_EQ(refusal<std::int64_t>(Tensor::empty({4}, DType::datetime("ns")).view()),
            "[span] int64: expected elements of this type, got numpy.datetime64[ns]");
  EXPECT_NE(refusal<std::int8_t>(Tensor::empty({4}, DType::from_name("int4")).view()), "");
  EXPECT_NE(refusal<std::uint8_t>(Tensor::empty({4}, DType::raw(1)).view()), "");
  EXPECT_NE(refusal<std::uint8_t>(Tensor::empty({4}, DType::boolean).view()), "");
}

TEST(Span, RefusesMemoryThatTheHostDoesNotSee) {
  std::array<float, 4> values{};
  TensorView view{values.data(), {4}, {}, DType::float32, Device::cuda(1)};
  EXPECT_EQ(refusal<float>(view), "[span] float32: expected memory of the host, got cuda:1");
  view.device = Device::simt();
  EXPECT_EQ(view.span<float>().data(), values.data());
  Tensor simt = Tensor::empty({4}, DType::float32, Device::simt());
  EXPECT_EQ(simt.span<float>().size(), 4U);
}

TEST(Span, RefusesWhatIsNotInCOrder) {
  std::array<std::int32_t, 6> values{};
  std::iota(values.begin(), values.end(), 0);
  TensorView view{values.data(), {2, 3}, {12, 4}, DType::int32, Device::cpu()};
  EXPECT_EQ(view.span<std::int32_t>().size(), 6U);
  EXPECT_EQ(std::as_const(view).span<std::int32_t>()[4], 4);
  view.strides = {4, 8};
  EXPECT_EQ(refusal<std::int32_t>(view),
            "[span] int32: expected C order, got strides of (4, 8) bytes for the shape (2, 3) of "
            "4 bytes an element");
  view.strides = {0, 4};  // broadcast: six elements by the shape, three in memory
  EXPECT_NE(refusal<std::int32_t>(view), "");
  view.strides = {12};
  EXPECT_NE(refusal<std::int32_t>(view), "");
}

TEST(Span, RefusesMemoryThatIsNotThereOrNotAligned) {
  alignas(8) std::array<std::byte, 24> bytes{};
  TensorView view{bytes.data() + 4, {2}, {}, DType::float64, Device::cpu()};
  EXPECT_EQ(refusal<double>(view),
            "[span] float64: expected memory aligned to 8 bytes, got other memory");
  view.dtype = DType::complex64;  // two units of four
  EXPECT_EQ(view.span<std::complex<float>>().size(), 2U);
  view = {nullptr, {2}, {}, DType::float64, Device::cpu()};
  EXPECT_EQ(refusal<double>(view), "[span] float64: expected 2 elements, got no memory");
  view.shape = {0, 2};
  EXPECT_TRUE(view.span<double>().empty());
}

TEST(Span, RefusesATensorThatWasHandedOver) {
  Tensor tensor = Tensor::empty({4}, DType::uint8);
  const Tensor next = std::move(tensor);
  EXPECT_EQ(next.span<std::uint8_t>().size(), 4U);
  // NOLINTNEXTLINE(bugprone-use-after-move): that it is noticed
  EXPECT_EQ(code_of([&] { static_cast<void>(tensor.span<std::uint8_t>()); }),
            ErrorCode::invalid_argument);
  Tensor released = Tensor::empty({4}, DType::uint8);
  const auto memory = std::move(released).release();
  EXPECT_EQ(code_of([&] { static_cast<void>(released.span<std::uint8_t>()); }),
            ErrorCode::invalid_argument);
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
