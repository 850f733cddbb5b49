#pragma once

// A codec in three steps:
//  1. CodecSpec (public): name and configuration as metadata has them.
//  2. resolve_codec(spec, ...) checks the configuration against what the codec is given (ChunkSpec)
//     and picks an implementation from the table: the prepared Codec, immutable and thread-safe.
//  3. CodecChain runs the prepared codecs of one array over its chunks.
// Decoders take hostile bytes: they throw `corrupt`, never read or write outside their buffers and
// never allocate more than the decoded size asks for.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "codec/device_stage.h"
#include "headrace/codec.h"
#include "headrace/dtype.h"
#include "headrace/tensor.h"

namespace headrace {

// What a codec is given on encode, and gives back on decode: elements in C order.
struct ChunkSpec {
  DType dtype;
  Shape shape;
  // One element of the array's fill value, native; null means zeros. For shards, which leave out
  // inner chunks.
  std::shared_ptr<const std::vector<std::byte>> fill;
  // The bytes of each element are not in native order: after `bytes`, for what takes bytes.
  bool swapped = false;
  std::size_t nbytes() const;  // checked
};

enum class CodecKind : std::uint8_t { array_to_array, array_to_bytes, bytes_to_bytes };

// Receives a chunk in pieces as a decoder gets to them, so that only what is wanted is decoded and
// each piece is placed while it is warm in the cache. Offsets are bytes in the decoded chunk.
class PieceSink {
 public:
  virtual ~PieceSink() = default;
  // No byte outside [begin, end) is wanted.
  virtual std::size_t begin() const = 0;
  virtual std::size_t end() const = 0;
  // False only when no byte of [offset, offset + nbytes) is wanted.
  virtual bool wants(std::size_t offset, std::size_t nbytes) const = 0;
  // Takes a decoded piece; called for disjoint pieces, from several threads at once.
  virtual void put(std::size_t offset, ConstBytes piece) = 0;
  // Where a decoder may write bytes [offset, offset + nbytes) of the chunk instead of calling put:
  // the destination itself when they lie there together. Null otherwise.
  virtual std::byte* direct(std::size_t offset, std::size_t nbytes) = 0;
};

class VlenArena;  // codec/vlen.h

struct DecodeContext {
  int threads = 1;  // that one decode may use, the caller's included; 1: this thread only
  VlenArena* arena = nullptr;  // keeps the bytes of elements of variable length
};

// How many bytes encode makes of some number of bytes.
struct EncodedNbytes {
  std::size_t most;
  std::optional<std::size_t> fixed;  // when it depends on that number only; not so compressors

  static EncodedNbytes exactly(std::size_t nbytes) { return {nbytes, nbytes}; }
  static EncodedNbytes at_most(std::size_t nbytes) { return {nbytes, std::nullopt}; }
};

// What a codec's decode makes of bytes.
enum class Transform : std::uint8_t {
  identity,      // encode and decode give back what they are given: the chain leaves the codec out
  in_place,      // decode may be called with src and dst the same memory (byte swap, delta, ...)
  out_of_place,  // src and dst lie apart
};

// A codec whose decoded bytes lie in the encoded ones as they are (checksums).
class ViewDecoder {
 public:
  virtual ~ViewDecoder() = default;
  // Checks src and gives the decoded bytes, which live as long as src.
  virtual ConstBytes decode_view(ConstBytes src) const = 0;
};

// A codec that decodes less than the whole for a sink that wants less.
class PieceDecoder {
 public:
  virtual ~PieceDecoder() = default;
  // As decode for a chunk of `decoded_nbytes`, into a sink. What is not wanted need not be checked.
  virtual void decode_pieces(ConstBytes src,
                             std::size_t decoded_nbytes,
                             PieceSink& sink,
                             const DecodeContext& context) const = 0;
};

// A codec any piece of which decodes by itself, at its own place (byte swap).
class PieceFilter {
 public:
  virtual ~PieceFilter() = default;
  // A sink of encoded pieces that hands them on decoded.
  virtual std::unique_ptr<PieceSink> filter(PieceSink& decoded) const = 0;
};

// How a codec gives a part of a chunk without the rest: in one way, or not at all.
using PartialDecoder =
    std::variant<std::monostate, const ViewDecoder*, const PieceDecoder*, const PieceFilter*>;

class Codec {
 public:
  virtual ~Codec() = default;

  virtual CodecKind kind() const = 0;
  virtual std::string_view name() const = 0;            // "zstd"
  virtual std::string_view implementation() const = 0;  // "libzstd"

  // What comes out of encode when so many bytes go in.
  virtual EncodedNbytes encoded_nbytes(std::size_t decoded_nbytes) const = 0;
  // What comes out of encode when `in` goes in (array -> array changes shape or type).
  virtual ChunkSpec encoded_spec(const ChunkSpec& in) const { return in; }
  virtual Transform transform() const { return Transform::out_of_place; }

  // `dst` has exactly the decoded size; src giving more or fewer bytes is `corrupt`.
  virtual void decode(ConstBytes src, MutableBytes dst, const DecodeContext& context) const = 0;
  // The decoded size is not known, but at most `max_nbytes`: of bytes behind a compressor, so every
  // bytes -> bytes codec overrides it. What src may hold, not what it says, bounds the memory that
  // is asked for (codec/sizes.h). `unsupported` for all others.
  virtual void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const;
  // What `src` says that it decodes to: of compressors that write it down. Nothing where it says
  // nothing, or more than the codec makes of so many bytes.
  virtual std::optional<std::size_t> said_nbytes(ConstBytes /*src*/) const { return std::nullopt; }
  virtual void encode(ConstBytes src, Buffer& dst) const = 0;
  // Throws where encode() would whatever it is given: a level that no library has, a type that can
  // be read only. A reader has no use for what only a writer needs, and is not told.
  virtual void check_encodes() const {}

  // This codec, as what it is besides; the three below are null when it is not that.
  virtual PartialDecoder partial_decoder() const { return {}; }
  const ViewDecoder* view_decoder() const { return partial_decoder_as<ViewDecoder>(); }
  const PieceDecoder* piece_decoder() const { return partial_decoder_as<PieceDecoder>(); }
  const PieceFilter* piece_filter() const { return partial_decoder_as<PieceFilter>(); }

  // How a device decodes it; nothing when only the host can.
  virtual std::optional<DeviceStage> device_stage() const { return std::nullopt; }

 private:
  template <typename Interface>
  const Interface* partial_decoder_as() const {
    const PartialDecoder decoder = partial_decoder();
    const auto* const found = std::get_if<const Interface*>(&decoder);
    return found ? *found : nullptr;
  }
};

using CodecPtr = std::shared_ptr<const Codec>;

// Where in a chain a codec stands. Some numcodecs filters are array -> array codecs in v3 and
// bytes -> bytes ones in v2, where they come after the array was flattened.
enum class CodecPosition : std::uint8_t { before_bytes, after_bytes };

// What a codec is prepared for. `in` is what it is given on encode; after compressors, whose output
// has no fixed size, its shape is {0} and its type uint8.
struct CodecSite {
  ChunkSpec in;
  CodecPosition position = CodecPosition::before_bytes;
  const Implementations* implementations = nullptr;  // for codecs inside of codecs; may be null
  ChunkSpec chunk{};  // after_bytes: what the codec that makes bytes of the array is given
};

// The prepared codec for `spec`. `unsupported` names an unknown codec; `invalid_argument` a wrong
// configuration or an implementation that the table lacks.
CodecPtr resolve_codec(const CodecSpec& spec,
                       const CodecSite& site,
                       const Implementations& implementations);

// True for the names under which sharding is known; the engine reads shards itself.
bool is_sharding_codec(std::string_view name);

}  // namespace headrace
