#include "device/dlpack.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "headrace/error.h"

namespace headrace {
namespace {

struct MlCode {
  std::string_view name;
  DLDataTypeCode code;
};

constexpr MlCode kMlCodes[] = {
    {"bfloat16", kDLBfloat},
    {"float8_e3m4", kDLFloat8_e3m4},
    {"float8_e4m3", kDLFloat8_e4m3},
    {"float8_e4m3b11fnuz", kDLFloat8_e4m3b11fnuz},
    {"float8_e4m3fn", kDLFloat8_e4m3fn},
    {"float8_e4m3fnuz", kDLFloat8_e4m3fnuz},
    {"float8_e5m2", kDLFloat8_e5m2},
    {"float8_e5m2fnuz", kDLFloat8_e5m2fnuz},
    {"float8_e8m0fnu", kDLFloat8_e8m0fnu},
};

bool is_sub_byte(std::string_view name) {
  return name == "int2" || name == "int4" || name == "uint2" || name == "uint4";
}

std::optional<DLDataTypeCode> dl_code(const DType& dtype) {
  const std::string name = dtype.name();
  switch (dtype.kind()) {
    case DType::Kind::boolean:
      return kDLBool;
    case DType::Kind::signed_integer:
      return is_sub_byte(name) ? std::nullopt : std::optional(kDLInt);
    case DType::Kind::unsigned_integer:
      return is_sub_byte(name) ? std::nullopt : std::optional(kDLUInt);
    case DType::Kind::floating:
      return kDLFloat;
    case DType::Kind::complex:
      return kDLComplex;
    case DType::Kind::ml_floating: {
      const auto* found = std::find_if(std::begin(kMlCodes),
                                       std::end(kMlCodes),
                                       [&](const MlCode& c) { return c.name == name; });
      return found == std::end(kMlCodes) ? std::nullopt : std::optional(found->code);
    }
    default:
      return std::nullopt;
  }
}

// What a capsule points at: freed as one by its deleter.
struct Managed {
  DLManagedTensorVersioned capsule{};
  std::shared_ptr<void> owner;
  Shape shape;
  Shape strides;
};

}  // namespace

std::optional<DLDataType> dl_dtype(const DType& dtype) {
  const auto code = dl_code(dtype);
  if (!code) return std::nullopt;
  return DLDataType{
      static_cast<std::uint8_t>(*code), static_cast<std::uint8_t>(dtype.itemsize() * 8), 1};
}

DLDevice dl_device(const Device& device) {
  switch (device.type) {
    case Device::Type::cuda:
      return {kDLCUDA, device.index};
    case Device::Type::cpu:
    case Device::Type::simt:  // its memory is the host's
      break;
  }
  return {kDLCPU, device.index};
}

DLManagedTensorVersioned* to_dlpack(const TensorView& view, std::shared_ptr<void> owner) {
  const auto code = dl_dtype(view.dtype);
  if (!code) {
    throw Error(ErrorCode::unsupported,
                "[to_dlpack] DLPack has no code for " + view.dtype.to_string());
  }
  auto managed = std::make_unique<Managed>();
  managed->shape = view.shape;
  managed->strides = view.strides_or_c();
  for (auto& stride : managed->strides) {
    const auto itemsize = static_cast<std::int64_t>(view.dtype.itemsize());
    if (stride % itemsize != 0) {
      throw Error(ErrorCode::unsupported,
                  "[to_dlpack] DLPack counts strides in elements, not " + std::to_string(stride) +
                      " bytes of " + view.dtype.to_string());
    }
    stride /= itemsize;
  }
  managed->owner = std::move(owner);

  DLManagedTensorVersioned& capsule = managed->capsule;
  capsule.version = {kDLPackMajorVersion, kDLPackMinorVersion};
  capsule.manager_ctx = managed.get();
  capsule.deleter = [](DLManagedTensorVersioned* self) {
    delete static_cast<Managed*>(self->manager_ctx);
  };
  // Since DLPack 1.2 shape and strides are not NULL when ndim > 0; a vector's data() is not then.
  capsule.dl_tensor = {view.data,
                       dl_device(view.device),
                       static_cast<std::int32_t>(managed->shape.size()),
                       *code,
                       managed->shape.data(),
                       managed->strides.data(),
                       0};
  return &managed.release()->capsule;
}

DLManagedTensorVersioned* Tensor::to_dlpack() && {
  ready_.wait();
  DLManagedTensorVersioned* capsule = headrace::to_dlpack(view_, owner_);
  static_cast<void>(std::move(*this).release());
  return capsule;
}

}  // namespace headrace
