// Any bytes as a size and an LZ4 block.

#include "codec_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto codec = headrace::fuzz::make("lz4");
  return headrace::fuzz::run(*codec, data, size);
}
