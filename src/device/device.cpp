#include "device/device.h"

#include <algorithm>
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

std::optional<int> Backend::first_usable() const {
  const int count = device_count();
  for (int index = 0; index < count; ++index)
    if (why_not(index).empty()) return index;
  return std::nullopt;
}

std::string Backend::why_none() const { return first_usable() ? std::string() : why_not(0); }

const DecoderLibrary* Backend::library(std::string_view name) const {
  const auto all = libraries();
  const auto found = std::ranges::find(all, name, &DecoderLibrary::name);
  return found == all.end() ? nullptr : &*found;
}

DirectFiles Backend::direct_files() const {
  return {.why_not = "there is nothing that reads files into the memory of this type of device"};
}

std::unique_ptr<DirectFile> Backend::open_direct(int, std::string path) const {
  throw Error(ErrorCode::unsupported, path + ": " + direct_files().why_not);
}

std::shared_ptr<const MappedFile> Backend::map_file(int, int, std::uint64_t, std::size_t) const {
  throw Error(ErrorCode::unsupported, "this type of device copies from no mapped files");
}

void Backend::with_device(int, FunctionRef<void()> body) { body(); }

void refuse_capture() {
  throw Error(ErrorCode::unsupported,
              "the stream is being captured into a CUDA graph: the host reads, allocates and looks "
              "for errors in each call of headrace, which a graph would not do again; call before "
              "the capture or after it");
}

Device best_device(const Backend& gpus) {
  const std::optional<int> usable = gpus.first_usable();
  return usable ? Device::cuda(*usable) : Device::cpu();
}

Device best_device() { return best_device(cuda_backend()); }

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
