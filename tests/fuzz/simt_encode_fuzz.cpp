// The encoder kernels, by the host run: what they make of any bytes is decoded by the libraries.

#include <blosc.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>

#include "simt_fuzz.h"

namespace headrace::fuzz {
namespace {

// Nothing outside of `capacity` bytes is written, and less only where they do not suffice.
template <class F>
Bytes encode(F&& encoder, const Bytes& bytes, std::size_t capacity, std::uint64_t seed) {
  constexpr std::uint8_t kGuard = 0xa5;
  HostQueue queue(seed);
  const Scratch<std::uint8_t> source(queue, (bytes.size() + 15) / 16 * 16 + 16);
  queue.upload(source.data(), bytes.data(), bytes.size());
  Bytes target(capacity + 16, kGuard);
  const Frame frame{source.data(), bytes.size(), target.data(), capacity, 0};
  std::uint64_t nbytes = 0;
  std::uint32_t fault = 0;
  encoder(queue, EncodeBatch{{&frame, 1}, &nbytes, &fault});
  check((fault == 0) == (nbytes > 0) && nbytes <= capacity);
  check(std::all_of(target.end() - 16, target.end(), [](std::uint8_t b) { return b == kGuard; }));
  target.resize(nbytes);
  return target;
}

bool zstd_decodes(const Bytes& encoded, const Bytes& bytes) {
  Bytes decoded(bytes.size());
  return ZSTD_decompress(decoded.data(), decoded.size(), encoded.data(), encoded.size()) ==
             bytes.size() &&
         decoded == bytes;
}

bool lz4_decodes(const Bytes& encoded, const Bytes& bytes) {
  Bytes decoded(bytes.size() + 1);
  const int n = LZ4_decompress_safe(reinterpret_cast<const char*>(encoded.data()),
                                    reinterpret_cast<char*>(decoded.data()),
                                    static_cast<int>(encoded.size()),
                                    static_cast<int>(decoded.size()));
  return n == static_cast<int>(bytes.size()) &&
         std::equal(bytes.begin(), bytes.end(), decoded.begin());
}

bool blosc_decodes(const Bytes& encoded, const Bytes& bytes) {
  Bytes decoded(bytes.size() + 1);
  return blosc_decompress_ctx(encoded.data(), decoded.data(), decoded.size(), 1) ==
             static_cast<int>(bytes.size()) &&
         std::equal(bytes.begin(), bytes.end(), decoded.begin());
}

}  // namespace
}  // namespace headrace::fuzz

// The first four bytes: seed, codec and its settings, how much smaller the target is than it may
// need to be, how often the rest repeats.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  using namespace headrace::fuzz;
  if (size < 4) return 0;
  const std::uint8_t seed = data[0], codec = data[1], short_by = data[2], times = data[3];
  Bytes bytes;
  for (unsigned i = 0; i <= times % 16u && bytes.size() < 20000; ++i)
    bytes.insert(bytes.end(), data + 4, data + size);
  const auto room = [&](std::size_t bound) {
    return bound - std::min<std::size_t>(bound, short_by);
  };
  const Kernels& kernels = host_kernels();
  if (codec % 3 == 0) {
    const ZstdFormat format{1024u << codec / 3 % 8, codec >= 128};
    // Blocks may be smaller than the format says, from 32 KiB on.
    const std::size_t block_nbytes = std::min<std::size_t>(format.block_nbytes, 32 << 10);
    const Bytes encoded =
        encode([&](Queue& q, const EncodeBatch& b) { kernels.zstd_encode(q, b, format); },
               bytes,
               room(bytes.size() + 18 + 3 * (bytes.size() / block_nbytes + 1)),
               seed);
    check(encoded.empty() ? short_by > 0 : zstd_decodes(encoded, bytes));
  } else if (codec % 3 == 1) {
    const Bytes encoded =
        encode(kernels.lz4_encode, bytes, room(bytes.size() + bytes.size() / 255 + 16), seed);
    check(encoded.empty() ? short_by > 0 : lz4_decodes(encoded, bytes));
  } else {
    const BloscFormat format{static_cast<BloscFormat::Inner>(codec / 3 % 2),
                             static_cast<BloscFormat::Filter>(codec / 6 % 3),
                             1 + codec / 18u,
                             seed % 10u,
                             seed / 10u * 50};
    const Bytes encoded =
        encode([&](Queue& q, const EncodeBatch& b) { kernels.blosc_encode(q, b, format); },
               bytes,
               room(bytes.size() + BLOSC_MAX_OVERHEAD),
               seed);
    check(encoded.empty() ? short_by > 0 : blosc_decodes(encoded, bytes));
  }
  return 0;
}
