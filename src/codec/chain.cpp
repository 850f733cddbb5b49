#include "codec/chain.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/checked.h"
#include "base/trace.h"
#include "codec/scratch.h"

namespace headrace {
namespace {

// What an encoder other than ours may need beyond our bound for bytes of unknown size.
std::size_t with_slack(std::size_t nbytes) {
  constexpr std::size_t kSlack = 64 * 1024;
  return checked_add(checked_add(nbytes, nbytes / 8, "codec chain"), kSlack, "codec chain");
}

template <typename Function>
decltype(auto) in_context(const Codec& codec, Function&& function) {
  try {
    return function();
  } catch (const Error& e) {
    throw e.with_context("codec " + std::string(codec.name()));
  }
}

[[noreturn]] void throw_size(std::size_t wanted, std::size_t found) {
  throw Error(ErrorCode::corrupt,
              "expected " + std::to_string(wanted) + " bytes, got " + std::to_string(found));
}

// As decode_unknown. What `src` may hold, not what it says, bounds the memory asked for: the bound
// grows from a usual size to the most that a codec makes of so many bytes.
void decode_bounded(const Codec& codec, ConstBytes src, std::size_t max_nbytes, Buffer& dst) {
  constexpr std::size_t kUsual = 16;
  constexpr std::size_t kMost = std::size_t{1} << 15;  // zstd: a block of 128 KiB from 4 bytes
  constexpr std::size_t kSmall = 1 << 20;
  if (codec.finds_decoded_size()) return codec.decode_unknown(src, max_nbytes, dst);
  const std::size_t most = std::min(max_nbytes, checked_mul(src.size(), kMost, "decode") + kSmall);
  for (std::size_t bound = kUsual * src.size() + kSmall; bound < most; bound *= 8) {
    try {
      return codec.decode_unknown(src, bound, dst);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;  // else it may be too large
    }
  }
  codec.decode_unknown(src, most, dst);
}

void check_order(CodecKind kind, CodecPosition position, std::string_view name) {
  const bool after = position == CodecPosition::after_bytes;
  if ((kind == CodecKind::bytes_to_bytes) == after) return;
  const std::string problem = after
                                  ? "comes after the codec that makes bytes of the array"
                                  : "takes bytes, but no codec before it makes bytes of the array";
  throw Error(ErrorCode::invalid_argument, "codec " + std::string(name) + " " + problem);
}

}  // namespace

std::size_t ChunkSpec::nbytes() const {
  return checked_nbytes(shape, dtype.itemsize(), "chunk size");
}

std::unique_ptr<PieceSink> Codec::piece_filter(PieceSink&) const { return nullptr; }

void Codec::decode_pieces(ConstBytes src,
                          std::size_t decoded_nbytes,
                          PieceSink& sink,
                          const DecodeContext& context) const {
  if (std::byte* direct = sink.direct(0, decoded_nbytes)) {
    decode(src, {direct, decoded_nbytes}, context);
    return;
  }
  Scratch scratch(decoded_nbytes);
  decode(src, scratch.bytes(), context);
  sink.put(0, scratch.bytes());
}

CodecChain::CodecChain(const std::vector<CodecSpec>& specs,
                       const ChunkSpec& chunk,
                       const Implementations& implementations)
    : chunk_(chunk), decoded_nbytes_(chunk.nbytes()) {
  CodecSite site{chunk, CodecPosition::before_bytes, &implementations};
  std::optional<std::size_t> nbytes = decoded_nbytes_;
  std::size_t max_nbytes = decoded_nbytes_;
  for (const CodecSpec& spec : specs) {
    if (site.position == CodecPosition::before_bytes) site.chunk = site.in;
    CodecPtr codec = resolve_codec(spec, site, implementations);
    check_order(codec->kind(), site.position, spec.name);
    if (!codec->identity()) steps_.push_back({codec.get(), nbytes, max_nbytes});
    if (codec->kind() == CodecKind::array_to_bytes) site.position = CodecPosition::after_bytes;
    max_nbytes = codec->max_encoded_nbytes(max_nbytes);
    if (nbytes) nbytes = codec->encoded_nbytes(*nbytes);
    if (nbytes) {
      max_nbytes = *nbytes;
      site.in = codec->encoded_spec(site.in);
    } else {
      max_nbytes = with_slack(max_nbytes);
      site.in = {DType::uint8, {0}, {}};
    }
    codecs_.push_back(std::move(codec));
  }
  if (site.position == CodecPosition::before_bytes) {
    throw Error(ErrorCode::invalid_argument,
                "no codec of the chain makes bytes of the array (\"bytes\", \"sharding_indexed\")");
  }
  fixed_encoded_nbytes_ = nbytes;
  max_encoded_nbytes_ = max_nbytes;
  identity_ = steps_.empty();
  first_piece_step_ = !steps_.empty() && steps_[0].codec->filters_pieces() ? 1 : 0;
  has_pieces_ = true;
  for (std::size_t i = first_piece_step_; i < steps_.size(); ++i) {
    const Codec& codec = *steps_[i].codec;
    has_pieces_ =
        has_pieces_ && (codec.has_view() || (i == first_piece_step_ && codec.has_pieces()));
  }
}

void CodecChain::decode(ConstBytes encoded, MutableBytes out, const DecodeContext& context) const {
  const Span span("decode", out.size());
  if (out.size() != decoded_nbytes_) {
    throw Error(ErrorCode::invalid_argument,
                "decode: the output has " + std::to_string(out.size()) + " bytes, the chunk " +
                    std::to_string(decoded_nbytes_));
  }
  if (steps_.empty()) {
    if (encoded.size() != out.size()) {
      in_context(*codecs_.front(), [&] { throw_size(out.size(), encoded.size()); });
    }
    if (!out.empty()) std::memcpy(out.data(), encoded.data(), out.size());
    return;
  }
  // The steps before `direct` work on `out` in place, `direct` writes it, the others go through
  // scratch memory.
  std::size_t direct = 0;
  while (direct + 1 < steps_.size() && steps_[direct].codec->in_place()) ++direct;

  std::array<std::optional<Scratch>, 2> scratch;
  std::size_t turn = 0;
  ConstBytes src = encoded;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    in_context(*step.codec, [&] {
      if (i <= direct) {
        step.codec->decode(src, out, context);
        src = out;
      } else if (step.codec->has_view()) {
        src = step.codec->decode_view(src);
        if (step.nbytes && src.size() != *step.nbytes) throw_size(*step.nbytes, src.size());
      } else {
        if (!scratch[turn]) scratch[turn].emplace();
        Buffer& dst = **scratch[turn];
        if (step.nbytes) {
          dst.resize(*step.nbytes);
          step.codec->decode(src, dst.bytes(), context);
        } else {
          decode_bounded(*step.codec, src, step.max_nbytes, dst);
        }
        src = dst.bytes();
        turn ^= 1;
      }
    });
  }
}

void CodecChain::decode_pieces(ConstBytes encoded,
                               PieceSink& sink,
                               const DecodeContext& context) const {
  const Span span("decode", decoded_nbytes_);
  if (first_piece_step_ == 1) {
    const auto filter = steps_[0].codec->piece_filter(sink);
    return decode_pieces_from(1, encoded, *filter, context);
  }
  decode_pieces_from(0, encoded, sink, context);
}

void CodecChain::decode_pieces_from(std::size_t first,
                                    ConstBytes encoded,
                                    PieceSink& sink,
                                    const DecodeContext& context) const {
  ConstBytes src = encoded;
  std::size_t i = steps_.size();
  while (i > first && steps_[i - 1].codec->has_view()) {
    --i;
    in_context(*steps_[i].codec, [&] { src = steps_[i].codec->decode_view(src); });
  }
  if (i > first) {
    const Codec& codec = *steps_[first].codec;
    in_context(codec, [&] { codec.decode_pieces(src, decoded_nbytes_, sink, context); });
    return;
  }
  if (src.size() != decoded_nbytes_) {
    in_context(*codecs_.front(), [&] { throw_size(decoded_nbytes_, src.size()); });
  }
  if (sink.begin() >= sink.end()) return;
  sink.put(sink.begin(), src.subspan(sink.begin(), sink.end() - sink.begin()));
}

void CodecChain::check_encodes() const {
  for (const CodecPtr& codec : codecs_) in_context(*codec, [&] { codec->check_encodes(); });
}

void CodecChain::encode(ConstBytes chunk, Buffer& encoded) const {
  const Span span("encode", chunk.size());
  if (chunk.size() != decoded_nbytes_) {
    throw Error(ErrorCode::invalid_argument,
                "encode: got " + std::to_string(chunk.size()) + " bytes, the chunk has " +
                    std::to_string(decoded_nbytes_));
  }
  if (steps_.empty()) {
    encoded.assign(chunk);
    return;
  }
  std::array<std::optional<Scratch>, 2> scratch;
  std::size_t turn = 0;
  ConstBytes src = chunk;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const bool last = i + 1 == steps_.size();
    if (!last && !scratch[turn]) scratch[turn].emplace();
    Buffer& dst = last ? encoded : **scratch[turn];
    in_context(*steps_[i].codec, [&] { steps_[i].codec->encode(src, dst); });
    src = dst.bytes();
    turn ^= 1;
  }
}

}  // namespace headrace
