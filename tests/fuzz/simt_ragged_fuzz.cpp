// Any bytes as a chunk of variable-length elements for the device, against the host's codecs. The
// first three bytes are a seed, the codec and how many elements are wanted. From 128 on the codec
// says that the bytes are repeated, to more than the kernel takes in one piece.

#include "codec/vlen.h"
#include "codec_fuzz.h"
#include "simt_fuzz.h"

using namespace headrace;

namespace {

struct Target {
  CodecPtr codec;
  RaggedFormat format;
};

Target make(const char* name, const char* configuration, const DType& dtype) {
  const CodecPtr codec = resolve_codec(
      {name, configuration}, {{dtype, {1}, {}}, CodecPosition::before_bytes, nullptr}, {});
  const DeviceStage stage = codec->device_stage().value();
  return {codec, {stage.itemsize, stage.utf8}};
}

// What was given again and again behind the number of elements that it begins with. Odd: and
// nothing else.
std::size_t repeat(fuzz::Bytes& bytes, std::size_t odd) {
  fuzz::Bytes many(4);
  for (std::size_t i = 0; i < 20'000 + odd; ++i) many.push_back(bytes[i % bytes.size()]);
  std::size_t at = 4;
  std::uint32_t count = 0, size = 0;
  while (many.size() - at >= 4) {
    std::memcpy(&size, &many[at], 4);
    if (many.size() - at - 4 < size) break;
    at += 4 + std::size_t{size};
    ++count;
  }
  if (odd % 2 == 1) many.resize(at);
  std::memcpy(many.data(), &count, 4);
  bytes = std::move(many);
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Target targets[] = {
      make("vlen-utf8", "", DType::string()),
      make("vlen-bytes", "", DType::bytes()),
      make("vlen-array", R"({"dtype":"<i4"})", DType::array(DType::int32))};
  if (size < 3) return 0;
  const Target& target = targets[data[1] % 3];
  std::size_t count = data[2];
  fuzz::Bytes encoded(data + 3, data + size);
  if (data[1] >= 128 && !encoded.empty()) count = repeat(encoded, count);

  HostQueue queue(data[0]);
  const Scratch<std::uint8_t> source(queue, (encoded.size() + 15) / 16 * 16 + 16);
  queue.upload(source.data(), encoded.data(), encoded.size());
  std::vector<RaggedElement> there(count);
  const Frame frame{source.data(),
                    encoded.size(),
                    reinterpret_cast<std::uint8_t*>(there.data()),
                    count * sizeof(RaggedElement),
                    0};
  std::uint32_t fault = 0;
  host_kernels().parse_ragged(queue, {{&frame, 1}, {}, &fault}, target.format);

  VlenArena arena;
  std::vector<VlenElement> here(count);
  bool good = false;
  fuzz::attempt([&] {
    const ConstBytes bytes(reinterpret_cast<const std::byte*>(encoded.data()), encoded.size());
    target.codec->decode(bytes, std::as_writable_bytes(std::span(here)), {1, &arena});
    good = true;
  });
  fuzz::check(good == (fault == 0));
  for (std::size_t i = 0; good && i < count; ++i) {
    fuzz::check(there[i].nbytes == here[i].nbytes);
    fuzz::check(std::memcmp(there[i].data, here[i].data, here[i].nbytes) == 0);
  }
  return 0;
}
