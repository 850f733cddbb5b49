#pragma once

// A compressed stream that a library decodes in steps, and the three ways to decode it.

#include "codec/codec.h"

namespace headrace {

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Fills dst, or less at the end of the last frame.
  std::size_t read(MutableBytes dst);
  // Nothing but trailers may be left.
  void finish(std::size_t decoded_nbytes);

 protected:
  // Decodes into dst, which has room for a byte at least, and gives how many it wrote. At the end
  // of the last frame it sets at_end_; `corrupt` when it can neither end nor go on.
  virtual std::size_t step(MutableBytes dst) = 0;

  bool at_end_ = false;
};

// All of the stream, which gives at most dst.size() bytes; gives how many.
std::size_t decode_all(ByteStream& stream, MutableBytes dst);

// As PieceDecoder::decode_pieces: straight into place, or else by windows that stay in the cache
// and no further than the last byte that `sink` wants.
void decode_pieces(ByteStream& stream, std::size_t decoded_nbytes, PieceSink& sink);

// bytes -> bytes by a library that has streams and nothing more.
class StreamCodec : public Codec, public PieceDecoder {
 public:
  CodecKind kind() const final { return CodecKind::bytes_to_bytes; }
  PartialDecoder partial_decoder() const final { return this; }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext& context) const final;
  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const final;
  void decode_pieces(ConstBytes src,
                     std::size_t decoded_nbytes,
                     PieceSink& sink,
                     const DecodeContext& context) const final;

 private:
  virtual std::unique_ptr<ByteStream> open(ConstBytes src) const = 0;
};

}  // namespace headrace
