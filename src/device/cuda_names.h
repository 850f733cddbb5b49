#pragma once

// What a configuration may ask for on CUDA devices. A build without CUDA knows it too, and says
// that it has none.

#include <string_view>

namespace headrace::cuda_names {

inline constexpr std::string_view kOwnName = "headrace-cuda";
inline constexpr std::string_view kNvcomp = "nvcomp";
inline constexpr std::string_view kNvcompCodecs[] = {"zstd", "gzip", "lz4"};
// Blackwell's decompression engine (device/decompress_engine.h). It has deflate and snappy too,
// which no codec of arrays is by itself.
inline constexpr std::string_view kEngine = "blackwell-engine";
inline constexpr std::string_view kEngineCodecs[] = {"lz4"};

}  // namespace headrace::cuda_names
