// Any bytes as a raw snappy stream for the device, against libsnappy. The first three bytes are the
// size wanted and a seed.

#include <snappy-c.h>

#include "simt_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  if (size < 3) return 0;
  const std::size_t nbytes = (data[0] | std::size_t{data[1]} << 8) % 8192;
  const fuzz::Bytes stream(data + 3, data + size);
  const fuzz::Decoded got = fuzz::decode(host_kernels().snappy, stream, nbytes, data[2]);

  const auto* from = reinterpret_cast<const char*>(stream.data());
  fuzz::Bytes expected(nbytes);
  std::size_t said = 0;
  const bool good =
      snappy_uncompressed_length(from, stream.size(), &said) == SNAPPY_OK && said == nbytes &&
      snappy_uncompress(from, stream.size(), reinterpret_cast<char*>(expected.data()), &said) ==
          SNAPPY_OK;
  fuzz::check(good == (got.fault == Fault::none));
  if (good) fuzz::check(got.bytes == expected);
  return 0;
}
