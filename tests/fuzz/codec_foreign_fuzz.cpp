// Any bytes as chunks of HDF5, TIFF and GRIB 2.

#include "codec/aec.h"
#include "codec_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using headrace::CodecPtr;
  using headrace::fuzz::make;
  static const std::vector<CodecPtr> codecs = [] {
    std::vector<CodecPtr> made = {
        make("hdf5_scaleoffset", R"({"cd_values": [2, 0, 240, 0, 4, 1, 0, 0]})"),
        make("hdf5_scaleoffset", R"({"cd_values": [2, 0, 240, 0, 2, 1, 1, 1, 64537]})"),
        make("hdf5_scaleoffset", R"({"cd_values": [2, 0, 240, 0, 8, 1, 0, 1, 7, 1]})"),
        make("hdf5_scaleoffset", R"({"cd_values": [0, 2, 240, 1, 4, 1, 0, 0]})"),
        make("hdf5_scaleoffset", R"({"cd_values": [0, 400, 240, 1, 8, 1, 0, 1, 0, 0]})"),
        make("hdf5_nbit", R"({"cd_values": [8, 0, 240, 1, 2, 0, 13, 3], "dtype": "<i2"})"),
        make("hdf5_nbit", R"({"cd_values": [8, 0, 240, 1, 8, 1, 61, 0], "dtype": ">i8"})"),
        make("imagecodecs_lzf"),
        make("imagecodecs_lzw"),
        make("imagecodecs_packbits"),
        make("imagecodecs_delta", R"({"dtype": ">u2", "shape": [6, 10, 4], "axis": -2})"),
        make("imagecodecs_floatpred", R"({"dtype": "<f8", "shape": [6, 40], "dist": 2})"),
        make("grib", R"({"var": "t2m", "dtype": "float64"})"),
        make("grib", R"({"var": "t2m", "dtype": ">f4"})"),
    };
    if (headrace::has_aec()) {
      made.push_back(make("hdf5_szip", R"({"cd_values": [169, 8, 16, 40]})"));
      made.push_back(make("hdf5_szip", R"({"cd_values": [169, 32, 64, 40]})"));
      made.push_back(make("hdf5_szip", R"({"cd_values": [157, 10, 16, 37]})"));
    }
    return made;
  }();
  for (const CodecPtr& codec : codecs) headrace::fuzz::run(*codec, data, size);
  return 0;
}
