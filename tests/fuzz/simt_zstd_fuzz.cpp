// The zstd kernels, by the host run, next to libzstd.

#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/kernels.h"
#include "simt/host_queue.h"

namespace {

struct Free {
  void operator()(std::uint8_t* p) const { std::free(p); }
};
using Memory = std::unique_ptr<std::uint8_t, Free>;

// Ends where the contract of sources says, for the address sanitizer to see what goes beyond.
Memory allocate(std::size_t nbytes) {
  return Memory(static_cast<std::uint8_t*>(std::aligned_alloc(16, (nbytes + 15) / 16 * 16)));
}

void check(bool holds) {
  if (!holds) std::abort();
}

// What libzstd makes of the bytes at some level, with a block at least every `step`.
std::vector<std::uint8_t> compress(const std::uint8_t* data,
                                   std::size_t size,
                                   int level,
                                   std::size_t step) {
  const std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(),
                                                                        ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, level & 1);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_contentSizeFlag, level & 2);
  ZSTD_CCtx_setPledgedSrcSize(context.get(), size);  // spares large tables
  std::vector<std::uint8_t> encoded(ZSTD_compressBound(size) + (size / step + 2) * 32);
  ZSTD_outBuffer out{encoded.data(), encoded.size(), 0};
  for (std::size_t at = 0, n = 0;; at += n) {
    n = std::min(step, size - at);
    ZSTD_inBuffer in{data + at, n, 0};
    const bool last = at + n == size;
    check(ZSTD_compressStream2(context.get(), &out, &in, last ? ZSTD_e_end : ZSTD_e_flush) == 0);
    if (last) break;
  }
  encoded.resize(out.pos);
  return encoded;
}

struct Decoded {
  std::uint32_t fault = 0;
  std::vector<std::uint8_t> bytes;
};
Decoded decode(const std::uint8_t* data,
               std::size_t size,
               std::size_t nbytes,
               std::uint8_t seed,
               unsigned options) {
  const std::size_t shift = options & 15;
  const Memory source = allocate((shift + size + 15) / 16 * 16 + 16);
  if (size) std::memcpy(source.get() + shift, data, size);
  Decoded decoded;
  decoded.bytes.resize(nbytes);
  const headrace::Frame frame{source.get() + shift, size, decoded.bytes.data(), nbytes, 0};
  headrace::HostQueue queue(seed);
  headrace::DecodeBatch batch{{&frame, 1}, {}, &decoded.fault};
  std::unique_ptr<const headrace::Headers> read;
  if (options & 16 && seed & 1) read = headrace::host_kernels().zstd_headers(data, size, nbytes);
  const headrace::Headers* const headers = read.get();
  if (read) {
    batch.headers = {&headers, 1};
  } else if (options & 16) {
    batch.host_sources = {&data, 1};
  }
  headrace::host_kernels().zstd(queue, batch);
  return decoded;
}

}  // namespace

// The first four bytes: size wanted (2), seed, options (alignment, where headers are read, and
// whether the rest is a frame or what to make one of). RFC 8878 forbids more than libzstd 1.5
// refuses (see src/kernels/zstd/decode.cpp), so a fault where that finds none is right.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const unsigned wanted = data[0] | data[1] << 8;
  const std::uint8_t seed = data[2], options = data[3];
  data += 4;
  size -= 4;

  if (options & 32) {
    const std::size_t step = size / (1 + wanted / 24 % 16) + 1;
    const auto encoded = compress(data, size, static_cast<int>(wanted % 24) - 4, step);
    const Decoded decoded = decode(encoded.data(), encoded.size(), size, seed, options);
    check(decoded.fault == 0 && std::equal(data, data + size, decoded.bytes.begin()));
    return 0;
  }
  const std::size_t nbytes = wanted % 5000;
  const Decoded decoded = decode(data, size, nbytes, seed, options);
  std::vector<std::uint8_t> expected(nbytes);
  const std::size_t got = ZSTD_decompress(expected.data(), nbytes, data, size);
  const bool valid = !ZSTD_isError(got) && got == nbytes;
  check(valid || decoded.fault != 0);
  if (decoded.fault == 0) check(decoded.bytes == expected);
  return 0;
}
