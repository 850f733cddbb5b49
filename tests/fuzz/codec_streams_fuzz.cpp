// Any bytes as bzip2 and LZMA streams, with raw chains of filters as metadata gives them.

#include "codec_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using headrace::fuzz::make;
  static const headrace::CodecPtr codecs[] = {
      make("bz2"),
      make("lzma", R"({"format": 0})"),
      make("lzma"),
      make("lzma", R"({"format": 2})"),
      make("lzma", R"({"format": 3, "filters": [{"id": 33, "dict_size": 4096}]})"),
      make("lzma",
           R"({"format": 3, "filters": [{"id": 3, "dist": 4}, {"id": 4611686018427387905}]})"),
      make("lzma", R"({"format": 3, "filters": [{"id": 4}, {"id": 4611686018427387905}]})"),
  };
  for (const auto& codec : codecs) headrace::fuzz::run(*codec, data, size);
  return 0;
}
