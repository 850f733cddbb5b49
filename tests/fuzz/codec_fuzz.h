#pragma once

// What every decoder's fuzz target does with bytes that may be anything. The first two bytes pick
// what is wanted of the chunk; the rest is the encoded chunk.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "codec/codec.h"
#include "fuzz_check.h"

namespace headrace::fuzz {

// Wants one range, with and without memory of its own to offer.
class RangeSink final : public PieceSink {
 public:
  RangeSink(std::size_t nbytes, std::size_t begin, std::size_t end, bool offers)
      : memory_(nbytes), begin_(begin), end_(end), offers_(offers) {}

  std::size_t begin() const override { return begin_; }
  std::size_t end() const override { return end_; }
  bool wants(std::size_t offset, std::size_t n) const override {
    check(offset <= memory_.size() && n <= memory_.size() - offset);
    return offset < end_ && begin_ < offset + n;
  }
  void put(std::size_t offset, ConstBytes piece) override {
    check(offset <= memory_.size() && piece.size() <= memory_.size() - offset);
    std::copy(piece.begin(), piece.end(), memory_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  std::byte* direct(std::size_t offset, std::size_t n) override {
    check(offset <= memory_.size() && n <= memory_.size() - offset);
    const bool inside = offset >= begin_ && offset + n <= end_;
    return offers_ && inside ? memory_.data() + offset : nullptr;
  }
  bool agrees(ConstBytes whole) const {
    return std::equal(whole.begin() + static_cast<std::ptrdiff_t>(begin_),
                      whole.begin() + static_cast<std::ptrdiff_t>(end_),
                      memory_.begin() + static_cast<std::ptrdiff_t>(begin_));
  }

 private:
  std::vector<std::byte> memory_;
  std::size_t begin_, end_;
  bool offers_;
};

// The ways of decoding agree on what the bytes are, when they are anything.
inline int run(const Codec& codec, const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMaxDecoded = 1 << 16;
  if (size < 2) return 0;
  const ConstBytes encoded(reinterpret_cast<const std::byte*>(data + 2), size - 2);
  Buffer whole;
  const bool good = attempt([&] { codec.decode_unknown(encoded, kMaxDecoded, whole); });
  const std::size_t n = good ? whole.size() : 1 + std::size_t{data[0]} * 16;

  std::vector<std::byte> exact(n);
  const bool again = attempt([&] { codec.decode(encoded, exact, {}); });
  if (good) check(again && std::equal(exact.begin(), exact.end(), whole.data()));

  const std::size_t begin = std::min(n, n * data[0] / 255);
  const std::size_t end = std::min(n, begin + n * (data[1] >> 1) / 127 + 1);
  if (const ViewDecoder* const decoder = codec.view_decoder()) {
    ConstBytes view;
    const bool viewed = attempt([&] { view = decoder->decode_view(encoded); });
    if (good && viewed) check(std::equal(view.begin(), view.end(), exact.begin(), exact.end()));
  }
  const PieceDecoder* const decoder = codec.piece_decoder();
  if (!decoder) return 0;
  RangeSink sink(n, begin, end, (data[1] & 1) != 0);
  // May be stricter on malformed bytes: libzstd checks the size of a block only when it streams.
  const bool pieces = attempt([&] { decoder->decode_pieces(encoded, n, sink, {}); });
  if (good && pieces) check(sink.agrees(exact));
  return 0;
}

inline CodecPtr make(const char* name,
                     const char* configuration = "",
                     const char* implementation = "") {
  Implementations chosen;
  if (*implementation != '\0') chosen.emplace(name, implementation);
  return resolve_codec({name, configuration},
                       {{DType::uint8, {0}, {}}, CodecPosition::after_bytes, &chosen},
                       chosen);
}

}  // namespace headrace::fuzz
