// Codecs without arrays: compress a batch of buffers, decode them in one call, and see what a
// corrupt one gives.
#include <headrace/headrace.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <vector>

namespace hr = headrace;

namespace {

using Bytes = std::vector<std::byte>;

int run() {
  for (const hr::CodecInfo& row : hr::codec_table()) {
    std::printf("%-18s %-18s %s%s\n",
                row.codec.c_str(),
                row.implementation.c_str(),
                row.device.c_str(),
                row.available ? "" : ", not available");
  }

  std::vector<Bytes> plain(16, Bytes(1 << 16));
  for (std::size_t i = 0; i < plain.size(); ++i)
    std::memset(plain[i].data(), static_cast<int>(i), plain[i].size());
  const std::vector<std::span<const std::byte>> inputs(plain.begin(), plain.end());
  std::vector<Bytes> encoded =
      hr::encode_batch("zstd", inputs, {.configuration = R"({"level": 3})"});

  std::vector<Bytes> decoded(plain.size(), Bytes(1 << 16));
  const std::vector<std::span<const std::byte>> frames(encoded.begin(), encoded.end());
  const std::vector<std::span<std::byte>> outputs(decoded.begin(), decoded.end());
  hr::decode_batch("zstd", frames, outputs);
  if (decoded != plain) {
    std::fprintf(stderr, "decoded bytes differ\n");
    return 1;
  }
  std::printf("decoded %zu buffers\n", decoded.size());

  encoded[5][0] ^= std::byte{0xff};  // no longer a zstd frame
  try {
    hr::decode_batch("zstd", frames, outputs);
  } catch (const hr::Error& e) {
    if (e.code() != hr::ErrorCode::corrupt) throw;
    std::printf("as it should: %s\n", e.what());
    return 0;
  }
  std::fprintf(stderr, "a corrupt frame went through\n");
  return 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
