// Any bytes as a blosc 1 chunk for the device, against c-blosc. The first byte is a seed, the size
// wanted is the chunk's own.

#include <blosc.h>

#include "simt_fuzz.h"

namespace headrace::fuzz {
namespace {

// Bytes that c-blosc never writes differ between two runs.
bool library_decodes(const Bytes& chunk, std::size_t nbytes, Bytes& bytes) {
  std::size_t said = 0;
  if (blosc_cbuffer_validate(chunk.data(), chunk.size(), &said) < 0 || said != nbytes) return false;
  const auto run = [&](std::uint8_t fill) {
    bytes.assign(nbytes, fill);
    return blosc_decompress_ctx(chunk.data(), bytes.data(), nbytes, 1) == static_cast<int>(nbytes);
  };
  if (!run(0x5a)) return false;
  const Bytes first = bytes;
  return run(0xa5) && bytes == first;
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  if (size < 1 + 16) return 0;
  const fuzz::Bytes chunk(data + 1, data + size);
  std::uint32_t nbytes = 0;
  std::memcpy(&nbytes, chunk.data() + 4, 4);
  nbytes &= 0xffff;
  const fuzz::Decoded got =
      fuzz::decode(host_kernels().blosc, chunk, nbytes, data[0], host_kernels().blosc_headers);

  fuzz::Bytes expected;
  const bool good = fuzz::library_decodes(chunk, nbytes, expected);
  if (got.fault == Fault::none) fuzz::check(good && got.bytes == expected);
  // Refused though c-blosc takes it: LZ4 matches of distance 0, codecs that are not built in.
  if (good && got.fault != Fault::none)
    fuzz::check(got.fault == Fault::malformed || got.fault == Fault::unsupported);
  return 0;
}
