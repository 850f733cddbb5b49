// Any bytes as zstd frames.

#include "codec_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto codec = headrace::fuzz::make("zstd");
  return headrace::fuzz::run(*codec, data, size);
}
