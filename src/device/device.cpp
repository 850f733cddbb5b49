#include "device/device.h"

#include <charconv>
#include <filesystem>
#include <system_error>

#include "device/backend.h"
#include "headrace/device.h"
#include "headrace/error.h"

namespace headrace {

Backend& backend(Device::Type type) {
  // Here and wherever a type is asked for there is no default: who adds one is told of the place.
  switch (type) {
    case Device::Type::cpu:
      break;
    case Device::Type::cuda:
      return cuda_backend();
    case Device::Type::simt:
      return simt_backend();
  }
  throw Error(ErrorCode::invalid_argument, "[backend] the CPU has none");
}

const Kernels& Backend::nvcomp_kernels() const {
  static constexpr Kernels kNone{};
  return kNone;
}

std::string Backend::nvcomp_why_not() const { return "there is none for this type of device"; }

void Backend::with_device(int, FunctionRef<void()> body) { body(); }

Device best_device() { return cuda_backend().why_not(0).empty() ? Device::cuda(0) : Device::cpu(); }

void check_device(const Device& device) {
  if (device.is_cpu()) return;
  const std::string problem = backend(device.type).why_not(device.index);
  if (problem.empty()) return;
  throw Error(ErrorCode::device,
              device.to_string() + " is not there (" + problem +
                  "); device \"auto\" takes the CPU where there is no GPU, and `headrace doctor` "
                  "says what there is");
}

void check_present(const Device& device) {
  if (device.type != Device::Type::cuda) return;
  // The driver's files: of Linux, of WSL and of Tegra.
  for (const char* file : {"/dev/nvidiactl", "/dev/dxg", "/dev/nvmap", "/dev/nvgpu"}) {
    std::error_code unknown;
    if (std::filesystem::exists(file, unknown) || unknown) return;
  }
  check_device(device);
}

void set_allocator(Device device, const Allocator& allocator) {
  if (device.is_cpu())
    throw Error(ErrorCode::invalid_argument, "set_allocator: the memory of cpu is the system's");
  if (!allocator.allocate != !allocator.free)
    throw Error(ErrorCode::invalid_argument, "set_allocator: give both functions or none");
  check_device(device);
  backend(device.type).set_allocator(device.index, allocator);
}

std::shared_ptr<void> pin_memory(void* data, std::size_t nbytes, Device device) {
  if (device.is_cpu())
    throw Error(ErrorCode::invalid_argument, "pin_memory: \"cpu\" is no device to copy to");
  check_device(device);
  return backend(device.type).pin(device.index, data, nbytes);
}

Device Device::parse(std::string_view name) {
  if (name == "cpu") return cpu();
  if (name == "cuda") return cuda();
  if (name == "simt") return simt();
  if (name == "auto") return best_device();
  constexpr std::string_view kPrefix = "cuda:";
  if (name.substr(0, kPrefix.size()) == kPrefix) {
    const std::string_view digits = name.substr(kPrefix.size());
    int index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size() && index >= 0)
      return cuda(index);
  }
  throw Error(ErrorCode::invalid_argument,
              "device: expected \"cpu\", \"cuda\", \"cuda:N\", \"simt\" or \"auto\", got \"" +
                  std::string(name) + '"');
}

std::string Device::to_string() const {
  switch (type) {
    case Type::cpu:
      return "cpu";
    case Type::cuda:
      return "cuda:" + std::to_string(index);
    case Type::simt:
      break;
  }
  return "simt";
}

}  // namespace headrace
