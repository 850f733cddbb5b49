// Any bytes as Deflate, zlib and gzip streams, decoded by the host run of the GPU's kernels: zlib's
// verdict and zlib's bytes. The first byte chooses the format, the wanted size and the schedule.

#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "kernels/kernels.h"
#include "simt/host_queue.h"

namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::size_t kMaxDecoded = 200'000;

// What zlib makes of `source`, all members of it; nothing when it is bad or decodes to more.
std::optional<Bytes> inflate_all(const std::uint8_t* source, std::size_t nbytes, int window_bits) {
  const bool gzip = window_bits > 15;
  Bytes bytes(kMaxDecoded + 1);
  std::size_t done = 0;
  z_stream stream{};
  stream.next_in = const_cast<Bytef*>(source);
  stream.avail_in = static_cast<uInt>(nbytes);
  do {
    const auto* const start = stream.next_in;
    const uInt left = stream.avail_in;
    if (inflateInit2(&stream, window_bits) != Z_OK) std::abort();
    stream.next_in = const_cast<Bytef*>(start);
    stream.avail_in = left;
    stream.next_out = bytes.data() + done;
    stream.avail_out = static_cast<uInt>(bytes.size() - done);
    const int status = inflate(&stream, Z_FINISH);
    done += stream.total_out;
    inflateEnd(&stream);
    if (status != Z_STREAM_END || done > kMaxDecoded) return std::nullopt;
    const Bytef* const rest = stream.next_in;
    if (gzip && std::all_of(rest, rest + stream.avail_in, [](Bytef b) { return b == 0; }))
      stream.avail_in = 0;
  } while (gzip && stream.avail_in != 0);
  if (stream.avail_in != 0) return std::nullopt;
  bytes.resize(done);
  return bytes;
}

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "simt_deflate_fuzz: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  if (size == 0) return 0;
  const std::uint8_t choice = data[0];
  ++data;
  --size;
  const struct {
    Decode decode;
    int window_bits;
  } forms[] = {{host_kernels().deflate, -15},
               {host_kernels().deflate, -15},
               {host_kernels().zlib, 15},
               {host_kernels().gzip, 31}};
  const auto& form = forms[choice % 4];
  const std::optional<Bytes> wanted = inflate_all(data, size, form.window_bits);
  const std::size_t nbytes = wanted ? wanted->size() : std::size_t{choice} * 256;

  // Sources and targets of their own, so that a sanitizer sees each access outside; checksums read
  // whole words of the target.
  const std::size_t shift = choice / 4 % 16;
  Bytes source(kSourcePadding + shift + size + kSourcePadding, 0xa5);
  std::memcpy(source.data() + kSourcePadding + shift, data, size);
  Bytes target((nbytes + 3) / 4 * 4);
  HostQueue queue(choice);
  std::uint32_t fault = 0;
  const Frame frame{source.data() + kSourcePadding + shift, size, target.data(), nbytes, 0};
  form.decode(queue, {{&frame, 1}, {}, &fault});
  if ((fault == 0) != wanted.has_value())
    fail(wanted ? "refuses what zlib takes" : "takes too much");
  if (wanted && !std::equal(wanted->begin(), wanted->end(), target.begin()))
    fail("other bytes than zlib");
  if (!std::all_of(target.begin() + static_cast<std::ptrdiff_t>(nbytes),
                   target.end(),
                   [](std::uint8_t b) { return b == 0; }))
    fail("writes behind the target");
  return 0;
}
