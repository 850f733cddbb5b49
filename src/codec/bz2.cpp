// bz2: bytes -> bytes, bzip2.
// Compatibility: several streams one after the other are read, as bzip2 and Python do. Levels 1 to
// 9 are the block's size in units of 100,000 bytes: what is wanted of a chunk is decoded by blocks.
// Spec: https://numcodecs.readthedocs.io/en/stable/compression/bz2.html,
// https://sourceware.org/bzip2
// {"name": "numcodecs.bz2", "configuration": {"level": 1}}

#include <bzlib.h>

#include <algorithm>

#include "codec/byte_stream.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

constexpr std::size_t kMaxStep = std::size_t{1} << 30;  // libbz2 counts in unsigned int

char* bz_pointer(const std::byte* p) {
  return reinterpret_cast<char*>(const_cast<std::byte*>(p));  // it only reads its input
}

void check_memory(int result) {
  if (result == BZ_MEM_ERROR) {
    throw Error(ErrorCode::out_of_memory, "libbz2 cannot allocate its working memory");
  }
}

class Bz2Stream final : public ByteStream {
 public:
  explicit Bz2Stream(ConstBytes src) : src_(src) { begin(); }
  ~Bz2Stream() override { BZ2_bzDecompressEnd(&state_); }
  Bz2Stream(const Bz2Stream&) = delete;
  Bz2Stream& operator=(const Bz2Stream&) = delete;

 private:
  void begin() {
    state_ = {};
    check_memory(BZ2_bzDecompressInit(&state_, /*verbosity=*/0, /*small=*/0));
  }

  std::size_t step(MutableBytes dst) override {
    const std::size_t n_in = std::min(src_.size(), kMaxStep);
    const std::size_t n_out = std::min(dst.size(), kMaxStep);
    state_.next_in = bz_pointer(src_.data());
    state_.avail_in = static_cast<unsigned>(n_in);
    state_.next_out = bz_pointer(dst.data());
    state_.avail_out = static_cast<unsigned>(n_out);
    const int result = BZ2_bzDecompress(&state_);
    check_memory(result);
    if (result != BZ_OK && result != BZ_STREAM_END) throw_corrupt("the stream is malformed");
    const std::size_t taken = n_in - state_.avail_in;
    const std::size_t given = n_out - state_.avail_out;
    src_ = src_.subspan(taken);
    if (result == BZ_STREAM_END) {
      at_end_ = src_.empty();
      if (!at_end_) {
        BZ2_bzDecompressEnd(&state_);
        begin();
      }
    } else if (taken == 0 && given == 0) {
      throw_corrupt("the stream is cut short");
    }
    return given;
  }

  ConstBytes src_;
  bz_stream state_{};
};

class Bz2 final : public StreamCodec {
 public:
  explicit Bz2(EncoderLevel level) : level_(std::move(level)) {}

  std::string_view name() const override { return "bz2"; }
  std::string_view implementation() const override { return "libbz2"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::at_most(n + n / 100 + 600);
  }

  void check_encodes() const override { level_.check(); }
  void encode(ConstBytes src, Buffer& dst) const override {
    check_encodes();
    bz_stream state{};
    check_memory(BZ2_bzCompressInit(&state, level_.value, /*verbosity=*/0, /*workFactor=*/0));
    const std::unique_ptr<bz_stream, int (*)(bz_stream*)> end(&state, BZ2_bzCompressEnd);
    dst.resize(encoded_nbytes(src.size()).most);
    std::size_t done = 0;
    int result = BZ_OK;
    while (result != BZ_STREAM_END) {
      const std::size_t n_in = std::min(src.size(), kMaxStep);
      const std::size_t n_out = std::min(dst.size() - done, kMaxStep);
      state.next_in = bz_pointer(src.data());
      state.avail_in = static_cast<unsigned>(n_in);
      state.next_out = bz_pointer(dst.data() + done);
      state.avail_out = static_cast<unsigned>(n_out);
      result = BZ2_bzCompress(&state, n_in == src.size() ? BZ_FINISH : BZ_RUN);
      done += n_out - state.avail_out;
      src = src.subspan(n_in - state.avail_in);
      if (result < 0 || (n_out == 0 && result != BZ_STREAM_END)) {
        throw Error(ErrorCode::out_of_memory, "encode: libbz2 needs more than its bound");
      }
    }
    dst.resize_keep(done);
  }

 private:
  std::unique_ptr<ByteStream> open(ConstBytes src) const override {
    return std::make_unique<Bz2Stream>(src);
  }

  const EncoderLevel level_;
};

}  // namespace

CodecPtr make_bz2(const CodecSpec& spec, const CodecSite&) {
  CodecConfig config(spec);
  const EncoderLevel level = config.level("level", 1, 9, 1);
  config.finish();
  return std::make_shared<Bz2>(level);
}

}  // namespace headrace
