#include <nlohmann/json.hpp>

#include "headrace/codec.h"

namespace headrace::codec {
namespace {

using Json = nlohmann::ordered_json;

CodecSpec make(const char* name, const Json& configuration) { return {name, configuration.dump()}; }

Json to_json(const std::vector<CodecSpec>& specs) {
  Json list = Json::array();
  for (const CodecSpec& spec : specs) {
    Json item{{"name", spec.name}};
    if (!spec.configuration.empty()) item["configuration"] = Json::parse(spec.configuration);
    list.push_back(std::move(item));
  }
  return list;
}

}  // namespace

CodecSpec bytes(std::string_view endian) {
  return endian.empty() ? CodecSpec{"bytes", {}} : make("bytes", {{"endian", endian}});
}

CodecSpec transpose(const std::vector<int>& order) { return make("transpose", {{"order", order}}); }

CodecSpec zstd(int level, bool checksum) {
  return make("zstd", {{"level", level}, {"checksum", checksum}});
}

CodecSpec gzip(int level) { return make("gzip", {{"level", level}}); }

CodecSpec zlib(int level) { return make("numcodecs.zlib", {{"level", level}}); }

CodecSpec lz4(int acceleration) { return make("numcodecs.lz4", {{"acceleration", acceleration}}); }

CodecSpec blosc(
    std::string_view cname, int clevel, std::string_view shuffle, int typesize, int blocksize) {
  Json configuration{{"cname", cname}, {"clevel", clevel}, {"shuffle", shuffle}};
  // Absent, it is the item size of the array that the codec is prepared for.
  if (typesize != 0) configuration["typesize"] = typesize;
  configuration["blocksize"] = blocksize;
  return make("blosc", configuration);
}

CodecSpec crc32c() { return {"crc32c", {}}; }

CodecSpec sharding(const Shape& chunk_shape,
                   const std::vector<CodecSpec>& codecs,
                   const std::vector<CodecSpec>& index_codecs,
                   std::string_view index_location) {
  return make("sharding_indexed",
              {{"chunk_shape", chunk_shape},
               {"codecs", to_json(codecs)},
               {"index_codecs", to_json(index_codecs)},
               {"index_location", index_location}});
}

}  // namespace headrace::codec
