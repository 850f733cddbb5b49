#include "codec/byte_stream.h"

#include <algorithm>

#include "codec/scratch.h"
#include "codec/sizes.h"

namespace headrace {

std::size_t ByteStream::read(MutableBytes dst) {
  std::size_t done = 0;
  while (done < dst.size() && !at_end_) done += step(dst.subspan(done));
  return done;
}

void ByteStream::finish(std::size_t decoded_nbytes) {
  std::byte extra;
  while (!at_end_) {
    if (step({&extra, 1}) != 0) {
      throw_corrupt("expected " + std::to_string(decoded_nbytes) + " bytes, got more");
    }
  }
}

std::size_t decode_all(ByteStream& stream, MutableBytes dst) {
  const std::size_t n = stream.read(dst);
  stream.finish(dst.size());
  return n;
}

void decode_pieces(ByteStream& stream, std::size_t decoded_nbytes, PieceSink& sink) {
  const std::size_t end = std::min(sink.end(), decoded_nbytes);
  if (std::byte* const direct = sink.direct(0, decoded_nbytes);
      direct != nullptr && end == decoded_nbytes) {
    return check_decoded_size(decoded_nbytes, decode_all(stream, {direct, decoded_nbytes}));
  }
  constexpr std::size_t kWindow = 128 * 1024;  // stays in the L2 cache on its way to the sink
  Scratch window(std::min(kWindow, decoded_nbytes));
  std::size_t done = 0;
  while (done < end) {
    const std::size_t n = std::min(kWindow, decoded_nbytes - done);
    check_decoded_size(decoded_nbytes, decoded_nbytes - n + stream.read({window.data(), n}));
    if (sink.wants(done, n)) sink.put(done, {window.data(), n});
    done += n;
  }
  if (done == decoded_nbytes) stream.finish(decoded_nbytes);
}

void StreamCodec::decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const {
  check_decoded_size(dst.size(), decode_all(*open(src), dst));
}

void StreamCodec::decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const {
  decode_growing(src, max_nbytes, [&](std::size_t bound) {
    dst.resize(bound);
    dst.resize_keep(decode_all(*open(src), dst.bytes()));
  });
}

void StreamCodec::decode_pieces(ConstBytes src,
                                std::size_t decoded_nbytes,
                                PieceSink& sink,
                                const DecodeContext&) const {
  headrace::decode_pieces(*open(src), decoded_nbytes, sink);
}

}  // namespace headrace
