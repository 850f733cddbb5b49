// Any bytes as gzip members and as a zlib stream. The implementations differ in what they accept of
// a malformed stream, so each is held against itself only.

#include "codec_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using headrace::fuzz::make;
  static const auto gzip = make("gzip", "", "isa-l");
  static const auto gzip_libdeflate = make("gzip", "", "libdeflate");
  static const auto zlib = make("zlib", "", "isa-l");
  static const auto zlib_libdeflate = make("zlib", "", "libdeflate");
  for (const auto& codec : {gzip, gzip_libdeflate, zlib, zlib_libdeflate}) {
    headrace::fuzz::run(*codec, data, size);
  }
  return 0;
}
