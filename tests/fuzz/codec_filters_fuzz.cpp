// Any bytes through the filters and checksums.

#include "codec_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using headrace::CodecPtr;
  using headrace::fuzz::make;
  static const CodecPtr codecs[] = {
      make("shuffle", R"({"elementsize": 4})"),
      make("shuffle", R"({"elementsize": 7})"),
      make("delta", R"({"dtype": "<i4", "astype": "<i2"})"),
      make("delta", R"({"dtype": "<f2"})"),
      make("fixedscaleoffset", R"({"offset": 2.5, "scale": 7, "dtype": "<u8", "astype": "<f4"})"),
      make("fixedscaleoffset", R"({"offset": 1, "scale": 0, "dtype": ">i2", "astype": ">f8"})"),
      make("quantize", R"({"digits": 2, "dtype": "<f8", "astype": "<f4"})"),
      make("astype", R"({"encode_dtype": "<f8", "decode_dtype": "<i8"})"),
      make("astype", R"({"encode_dtype": "<f2", "decode_dtype": "|u1"})"),
      make("packbits"),
      make("cast_value", R"({"data_type": "float32", "out_of_range": "clamp"})"),
      make("cast_value", R"({"data_type": "float64", "rounding": "towards-zero"})"),
      make("scale_offset", R"({"offset": 3, "scale": 7})"),
      make("crc32c"),
      make("crc32"),
      make("adler32", R"({"location": "end"})"),
      make("fletcher32"),
      make("jenkins_lookup3", R"({"initval": 3, "prefix": [1, 2]})"),
  };
  for (const CodecPtr& codec : codecs) headrace::fuzz::run(*codec, data, size);
  return 0;
}
