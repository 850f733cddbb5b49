#include "engine/read/chunk.h"

#include <algorithm>

#include "base/limits.h"
#include "codec/scratch.h"
#include "codec/vlen.h"
#include "engine/read/plain.h"

namespace headrace {
namespace {

// Elements that few are wanted of take their bytes along, so that the others need not be kept.
void keep_wanted(const ChunkSink& sink, VlenArena& decoded, VlenArena& kept) {
  const auto for_each_element = [&](auto visit) {
    sink.for_each_unit([&](std::size_t, std::size_t nbytes, std::byte* user) {
      for (VlenElement& element : vlen_elements(MutableBytes(user, nbytes))) visit(element);
    });
  };
  std::size_t wanted_nbytes = 0;
  for_each_element([&](const VlenElement& element) { wanted_nbytes += element.nbytes; });
  if (wanted_nbytes >= decoded.nbytes() / 2) return kept.adopt(decoded);
  std::byte* at = kept.allocate(wanted_nbytes).data();
  for_each_element([&](VlenElement& element) {
    std::copy_n(element.data, element.nbytes, at);
    element.data = at;
    at += element.nbytes;
  });
}

void decode_vlen_chunk(const CodecChain& chain,
                       ConstBytes encoded,
                       ChunkSink& sink,
                       const DecodeContext& context) {
  const std::size_t nbytes = chain.decoded_nbytes();
  if (std::byte* whole = sink.ordered() ? sink.direct(0, nbytes) : nullptr) {
    return chain.decode(encoded, {whole, nbytes}, context);
  }
  VlenArena arena;
  Scratch decoded(nbytes);
  chain.decode(encoded, decoded.bytes(), {context.threads, &arena});
  sink.scatter(decoded.data());
  keep_wanted(sink, arena, *context.arena);
}

// A sink that has the decoder go on to the chunk's end, where checksums and sizes are looked at.
class SinkToEnd final : public PieceSink {
 public:
  SinkToEnd(PieceSink& to, std::size_t end) : to_(to), end_(end) {}

  std::size_t begin() const override { return to_.begin(); }
  std::size_t end() const override { return end_; }
  bool wants(std::size_t offset, std::size_t nbytes) const override {
    return to_.wants(offset, nbytes);
  }
  void put(std::size_t offset, ConstBytes piece) override { to_.put(offset, piece); }
  std::byte* direct(std::size_t offset, std::size_t nbytes) override {
    return to_.direct(offset, nbytes);
  }

 private:
  PieceSink& to_;
  const std::size_t end_;
};

}  // namespace

std::uint64_t max_encoded_nbytes(const CodecChain& chain) {
  const std::uint64_t usual = chain.max_encoded_nbytes();
  if (usual > (kMaxEncodedNbytes - kSwellingNbytes) / kMaxSwelling) return kMaxEncodedNbytes;
  return kMaxSwelling * usual + kSwellingNbytes;
}

std::size_t checked_encoded_nbytes(std::uint64_t nbytes, std::uint64_t max_nbytes) {
  if (nbytes <= max_nbytes) return static_cast<std::size_t>(nbytes);
  throw Error(ErrorCode::corrupt,
              "an encoded chunk of " + std::to_string(nbytes) +
                  " bytes, and its codecs make at most " + std::to_string(max_nbytes) +
                  " of it with all that others may add");
}

void decode_chunk(const CodecChain& chain,
                  ConstBytes encoded,
                  ChunkSink& sink,
                  const DecodeContext& context) {
  if (context.arena) return decode_vlen_chunk(chain, encoded, sink, context);
  const std::size_t nbytes = chain.decoded_nbytes();
  if (chain.is_identity()) {
    check_plain_size(chain, encoded.size());
    sink.scatter(encoded.data());
  } else if (std::byte* whole = sink.ordered() ? sink.direct(0, nbytes) : nullptr) {
    chain.decode(encoded, {whole, nbytes}, context);
  } else if (sink.ordered() && chain.has_pieces()) {
    if (!sink.wants_last()) return chain.decode_pieces(encoded, sink, context);
    SinkToEnd to_end(sink, nbytes);
    chain.decode_pieces(encoded, to_end, context);
  } else {
    Scratch decoded(nbytes);
    chain.decode(encoded, decoded.bytes(), context);
    sink.scatter(decoded.data());
  }
}

template <typename Query>
void read_chunk(const ArrayLayout& layout,
                const ObjectReader& reader,
                const ByteRange& range,
                const Query& query,
                const DecodeContext& context) {
  auto sink = make_sink(query, layout.chunk_shape, layout.itemsize());
  if (layout.chain.is_identity()) {
    check_plain_size(layout.chain, range.nbytes);
    read_plain(reader, range.offset, layout.chain.decoded_nbytes(), sink);
    return;
  }
  if (const ConstBytes mapped = reader.mapped(); !mapped.empty()) {
    decode_chunk(layout.chain, mapped.subspan(range.offset, range.nbytes), sink, context);
    return;
  }
  Scratch encoded(checked_encoded_nbytes(range.nbytes, max_encoded_nbytes(layout.chain)));
  reader.read(range.offset, encoded.bytes());
  decode_chunk(layout.chain, encoded.bytes(), sink, context);
}

template void read_chunk(
    const ArrayLayout&, const ObjectReader&, const ByteRange&, const Box&, const DecodeContext&);
template void read_chunk(
    const ArrayLayout&, const ObjectReader&, const ByteRange&, const Points&, const DecodeContext&);

}  // namespace headrace
