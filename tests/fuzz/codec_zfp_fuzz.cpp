// Any bytes as zfp streams, with numcodecs' header and without one.

#include "codec/registry.h"
#include "codec_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  static const bool built = std::ranges::any_of(
      codec_entries(), [](const CodecEntry& entry) { return entry.codec == "zfp"; });
  if (!built) return 0;
  const auto of_array = [](const char* name, const char* configuration, ChunkSpec in) {
    return resolve_codec({name, configuration}, {std::move(in)}, {});
  };
  static const CodecPtr codecs[] = {
      of_array("numcodecs.zfpy", "", {DType::float32, {96}, {}}),
      of_array("numcodecs.zfpy", "", {DType::int32, {160}, {}}),
      of_array("zfp", R"({"mode": "reversible"})", {DType::float64, {5, 6, 7}, {}}),
      of_array("zfp", R"({"mode": "fixed_rate", "rate": 3})", {DType::int64, {3, 4, 5, 6}, {}}),
  };
  for (const CodecPtr& codec : codecs) fuzz::run(*codec, data, size);
  return 0;
}
