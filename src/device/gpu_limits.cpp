#include "device/gpu_limits.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

namespace headrace {
namespace {

std::string to_string(ComputeCapability gpu) {
  return std::to_string(gpu.major) + "." + std::to_string(gpu.minor);
}

bool at_least(ComputeCapability a, ComputeCapability b) {
  return a.major > b.major || (a.major == b.major && a.minor >= b.minor);
}

// One of the list: "120", "90-real", "80-virtual", "90a", "100f".
struct Architecture {
  ComputeCapability capability;
  char variant = 0;      // 'a': of this capability alone; 'f': of its family
  bool real = true;      // machine code
  bool virtual_ = true;  // what the driver compiles
};

std::optional<Architecture> parse(std::string_view text) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 10) return std::nullopt;
  Architecture found;
  found.capability = {static_cast<int>(number / 10), static_cast<int>(number % 10)};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.empty() && (text[0] == 'a' || text[0] == 'f')) {
    found.variant = text[0];
    text.remove_prefix(1);
  }
  if (text == "-real") {
    found.virtual_ = false;
  } else if (text == "-virtual") {
    found.real = false;
  } else if (!text.empty()) {
    return std::nullopt;
  }
  return found;
}

bool runs(ComputeCapability gpu, const Architecture& code) {
  const bool same_family = gpu.major == code.capability.major && gpu.minor >= code.capability.minor;
  if (code.variant == 'a') return same_family && gpu.minor == code.capability.minor;
  if (code.variant == 'f') return same_family;
  return (code.real && same_family) || (code.virtual_ && at_least(gpu, code.capability));
}

}  // namespace

std::string why_no_code(ComputeCapability gpu, std::string_view architectures) {
  if (!at_least(gpu, kLeastCapability)) {
    return "it has compute capability " + to_string(gpu) + ", and headrace's kernels need " +
           to_string(kLeastCapability) + " or newer";
  }
  std::string has;
  for (std::size_t begin = 0; begin <= architectures.size();) {
    const std::size_t end =
        std::min(architectures.find_first_of(";,", begin), architectures.size());
    const std::string_view one = architectures.substr(begin, end - begin);
    begin = end + 1;
    if (one.empty()) continue;
    const std::optional<Architecture> code = parse(one);
    if (!code || runs(gpu, *code)) return "";
    has += (has.empty() ? "" : ", ") + std::string(one);
  }
  if (has.empty()) return "";
  return "it has compute capability " + to_string(gpu) + ", and this build has code for " + has +
         " only: build with CMAKE_CUDA_ARCHITECTURES=" +
         std::to_string(10 * gpu.major + gpu.minor) + ", or take a wheel";
}

std::size_t pinned_kept_nbytes(std::size_t devices_in_use, std::size_t host_nbytes) {
  // A reader holds 64 MiB that are being copied, and what its threads fill, about as much: fifteen
  // of them.
  constexpr std::size_t kOfDevice = std::size_t{2} << 30;
  constexpr std::size_t kHostShare = 16;
  constexpr std::size_t kLeast = std::size_t{512} << 20;  // for one reader
  return std::max(
      kLeast,
      std::min(std::max<std::size_t>(devices_in_use, 1) * kOfDevice, host_nbytes / kHostShare));
}

}  // namespace headrace
