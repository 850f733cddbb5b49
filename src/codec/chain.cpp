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

void Codec::decode_unknown(ConstBytes, std::size_t, Buffer&) const {
  throw Error(ErrorCode::unsupported, "the encoded bytes do not say how many they decode to");
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
    if (codec->transform() != Transform::identity)
      steps_.push_back({codec.get(), codec->view_decoder(), nbytes, max_nbytes});
    if (codec->kind() == CodecKind::array_to_bytes) site.position = CodecPosition::after_bytes;
    max_nbytes = codec->encoded_nbytes(max_nbytes).most;
    if (nbytes) nbytes = codec->encoded_nbytes(*nbytes).fixed;
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
  find_pieces();
}

void CodecChain::find_pieces() {
  auto step = steps_.begin();
  if (step != steps_.end() && (piece_filter_ = step->codec->piece_filter())) ++step;
  if (step != steps_.end() && (piece_decoder_ = step->codec->piece_decoder())) ++step;
  views_ = static_cast<std::size_t>(step - steps_.begin());
  has_pieces_ = std::all_of(step, steps_.end(), [](const Step& s) { return s.view != nullptr; });
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
  while (direct + 1 < steps_.size() && steps_[direct].codec->transform() == Transform::in_place)
    ++direct;

  std::array<std::optional<Scratch>, 2> scratch;
  std::size_t turn = 0;
  ConstBytes src = encoded;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    in_context(*step.codec, [&] {
      if (i <= direct) {
        step.codec->decode(src, out, context);
        src = out;
      } else if (step.view) {
        src = step.view->decode_view(src);
        if (step.nbytes && src.size() != *step.nbytes) throw_size(*step.nbytes, src.size());
      } else {
        if (!scratch[turn]) scratch[turn].emplace();
        Buffer& dst = **scratch[turn];
        if (step.nbytes) {
          dst.resize(*step.nbytes);
          step.codec->decode(src, dst.bytes(), context);
        } else {
          step.codec->decode_unknown(src, step.max_nbytes, dst);
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
  if (!piece_filter_) return decode_unfiltered(encoded, sink, context);
  const auto filter = piece_filter_->filter(sink);
  decode_unfiltered(encoded, *filter, context);
}

void CodecChain::decode_unfiltered(ConstBytes encoded,
                                   PieceSink& sink,
                                   const DecodeContext& context) const {
  ConstBytes src = encoded;
  for (std::size_t i = steps_.size(); i-- > views_;) {
    in_context(*steps_[i].codec, [&] { src = steps_[i].view->decode_view(src); });
  }
  if (piece_decoder_) {
    return in_context(*steps_[views_ - 1].codec,
                      [&] { piece_decoder_->decode_pieces(src, decoded_nbytes_, sink, context); });
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
