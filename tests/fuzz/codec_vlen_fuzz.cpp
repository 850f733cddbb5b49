// Any bytes as a chunk of variable-length elements. The first byte picks the codec and how many
// elements the chunk has. What decodes says the same when it is written and read again.

#include "codec/vlen.h"
#include "codec_fuzz.h"

using namespace headrace;

namespace {

CodecPtr make(const char* name, const char* configuration, const DType& dtype) {
  return resolve_codec(
      {name, configuration}, {{dtype, {1}, {}}, CodecPosition::before_bytes, nullptr}, {});
}

std::vector<VlenElement> decode(const Codec& codec,
                                ConstBytes encoded,
                                std::size_t n,
                                VlenArena& arena) {
  std::vector<VlenElement> elements(n);
  codec.decode(encoded, std::as_writable_bytes(std::span(elements)), {1, &arena});
  return elements;
}

void round_trip(const Codec& codec, ConstBytes encoded, std::size_t n) {
  VlenArena arena;
  const std::vector<VlenElement> elements = decode(codec, encoded, n, arena);
  Buffer again;
  codec.encode(std::as_bytes(std::span(elements)), again);
  const std::vector<VlenElement> same = decode(codec, again, n, arena);
  Buffer twice;
  codec.encode(std::as_bytes(std::span(same)), twice);
  fuzz::check(std::ranges::equal(again.bytes(), twice.bytes()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const CodecPtr codecs[] = {
      make("vlen-utf8", "", DType::string()),
      make("vlen-bytes", "", DType::bytes()),
      make("vlen-array", R"({"dtype":">i4"})", DType::array(DType::int32)),
      make("json2", "", DType::object()),
      make("msgpack2", "", DType::object()),
      make("categorize", R"({"labels":["a","bc"],"dtype":"|O"})", DType::string())};
  if (size == 0) return 0;
  const ConstBytes encoded(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  fuzz::attempt([&] { round_trip(*codecs[data[0] % 6], encoded, data[0] / 6); });
  return 0;
}
