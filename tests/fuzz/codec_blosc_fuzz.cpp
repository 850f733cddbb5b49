// Any bytes as a blosc frame, by headrace's decoder; c-blosc's own is not run here, because it is
// not built with the sanitizers.

#include "codec_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto codec = headrace::fuzz::make("blosc", "", "headrace");
  return headrace::fuzz::run(*codec, data, size);
}
