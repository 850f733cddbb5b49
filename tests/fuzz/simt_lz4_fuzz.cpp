// Any bytes as an LZ4 block for the device, against liblz4. The first three bytes are the size
// wanted and a seed; the lowest bit but one of the seed picks the parse.

#include <lz4.h>

#include "simt_fuzz.h"

namespace headrace::fuzz {
namespace {

// liblz4 takes such matches and gives anything for them; for us they are malformed.
bool has_distance_0(const Bytes& block) {
  std::size_t at = 0;
  const auto skip_run = [&](std::size_t& n) {
    for (; n >= 15 && at < block.size(); ++at) {
      n += block[at];
      if (block[at] != 255) break;
    }
    at += n >= 15;
  };
  while (at < block.size()) {
    const unsigned token = block[at++];
    std::size_t literals = token >> 4, match = token & 15;
    skip_run(literals);
    at += literals;
    if (at + 2 > block.size()) break;
    if (block[at] == 0 && block[at + 1] == 0) return true;
    at += 2;
    skip_run(match);
  }
  return false;
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  if (size < 3) return 0;
  const std::size_t nbytes = (data[0] | std::size_t{data[1]} << 8) % 8192;
  const std::uint64_t seed = data[2];
  const fuzz::Bytes block(data + 3, data + size);
  const auto decoder = [&](Queue& queue, const DecodeBatch& batch) {
    DecodeBatch with_hint = batch;
    with_hint.planes = seed & 2;
    host_kernels().lz4(queue, with_hint);
  };
  const fuzz::Decoded got = fuzz::decode(decoder, block, nbytes, seed);

  fuzz::Bytes expected(nbytes);
  const bool good = LZ4_decompress_safe(reinterpret_cast<const char*>(block.data()),
                                        reinterpret_cast<char*>(expected.data()),
                                        static_cast<int>(block.size()),
                                        static_cast<int>(nbytes)) == static_cast<int>(nbytes) &&
                    !fuzz::has_distance_0(block);
  fuzz::check(good == (got.fault == Fault::none));
  if (good) fuzz::check(got.bytes == expected);
  return 0;
}
