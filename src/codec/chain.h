#pragma once

#include <optional>
#include <vector>

#include "codec/codec.h"

namespace headrace {

// The prepared codecs of one array, in encode order. Immutable, thread-safe.
class CodecChain {
 public:
  CodecChain() = default;
  // Checks the order array -> array*, array -> bytes, bytes -> bytes* (a missing array -> bytes
  // codec is `invalid_argument`), and resolves each.
  CodecChain(const std::vector<CodecSpec>& specs,
             const ChunkSpec& chunk,
             const Implementations& implementations);

  const ChunkSpec& chunk() const { return chunk_; }
  std::size_t decoded_nbytes() const { return decoded_nbytes_; }
  // Set when every codec has a fixed encoded size (shard indices, uncompressed chunks).
  std::optional<std::size_t> fixed_encoded_nbytes() const { return fixed_encoded_nbytes_; }
  // Encoded bytes are the chunk's memory as it is: they may be read straight into place, in parts.
  bool is_identity() const { return identity_; }
  // decode_pieces is at least as good as decode + copy.
  bool has_pieces() const { return has_pieces_; }
  const std::vector<CodecPtr>& codecs() const { return codecs_; }

  // A codec that does something, with what is known of the bytes on its decoded side.
  struct Step {
    const Codec* codec;
    const ViewDecoder* view;            // null: it has none
    std::optional<std::size_t> nbytes;  // when fixed
    std::size_t max_nbytes;             // in any case
  };
  // codecs() without identities, in encode order.
  const std::vector<Step>& steps() const { return steps_; }

  // The most that the codecs make of a chunk, with room for what other encoders add.
  std::size_t max_encoded_nbytes() const { return max_encoded_nbytes_; }

  // out: decoded_nbytes() bytes, C order, native byte order.
  void decode(ConstBytes encoded, MutableBytes out, const DecodeContext& context) const;
  // Requires has_pieces().
  void decode_pieces(ConstBytes encoded, PieceSink& sink, const DecodeContext& context) const;
  void encode(ConstBytes chunk, Buffer& encoded) const;
  // As the codecs' own: who is going to encode asks before.
  void check_encodes() const;

 private:
  void find_pieces();
  void decode_unfiltered(ConstBytes encoded, PieceSink& sink, const DecodeContext& context) const;

  ChunkSpec chunk_;
  std::size_t decoded_nbytes_ = 0;
  std::optional<std::size_t> fixed_encoded_nbytes_;
  std::size_t max_encoded_nbytes_ = 0;
  bool identity_ = false;
  bool has_pieces_ = false;
  std::vector<CodecPtr> codecs_;
  std::vector<Step> steps_;
  const PieceFilter* piece_filter_ = nullptr;    // of the first step, if it is one
  const PieceDecoder* piece_decoder_ = nullptr;  // of the step behind it, if it is one
  std::size_t views_ = 0;                        // steps from here on have to be views
};

}  // namespace headrace
