#pragma once

// What a configuration may ask for on CUDA devices. A build without CUDA knows it too, and says
// that it has none.

#include <string_view>

namespace headrace::cuda_names {

inline constexpr std::string_view kOwnName = "headrace-cuda";
inline constexpr std::string_view kNvcomp = "nvcomp";
inline constexpr std::string_view kNvcompCodecs[] = {"zstd", "gzip", "lz4"};

}  // namespace headrace::cuda_names
