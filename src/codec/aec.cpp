#include "codec/aec.h"

#ifdef HEADRACE_HAVE_AEC
#include <libaec.h>
#endif

#include <memory>

#include "codec/sizes.h"

namespace headrace {

std::size_t aec_sample_nbytes(unsigned bits_per_sample) {
  return bits_per_sample > 16 ? 4 : bits_per_sample > 8 ? 2 : 1;
}

#ifdef HEADRACE_HAVE_AEC

bool has_aec() { return true; }

void decode_aec(const AecStream& stream, ConstBytes src, MutableBytes dst) {
  if (dst.empty()) return;
  aec_stream state{};
  state.bits_per_sample = stream.bits_per_sample;
  state.block_size = stream.block_size;
  state.rsi = stream.rsi;
  state.flags = (stream.msb ? AEC_DATA_MSB : 0U) |
                (stream.preprocessed ? AEC_DATA_PREPROCESS : 0U) |
                (stream.restricted ? AEC_RESTRICTED : 0U) | (stream.padded ? AEC_PAD_RSI : 0U);
  state.next_in = reinterpret_cast<const unsigned char*>(src.data());
  state.avail_in = src.size();
  state.next_out = reinterpret_cast<unsigned char*>(dst.data());
  state.avail_out = dst.size();
  switch (aec_decode_init(&state)) {
    case AEC_OK:
      break;
    case AEC_MEM_ERROR:
      throw Error(ErrorCode::out_of_memory, "libaec cannot allocate its working memory");
    default:
      throw Error(ErrorCode::unsupported, "libaec does not take these parameters");
  }
  const int result = aec_decode(&state, AEC_FLUSH);
  aec_decode_end(&state);
  if (result != AEC_OK) throw_corrupt("the stream is malformed");
  check_decoded_size(dst.size(), state.total_out);
}

#else

bool has_aec() { return false; }

void decode_aec(const AecStream&, ConstBytes, MutableBytes) {
  throw Error(ErrorCode::unsupported, "this build is without libaec");
}

#endif

}  // namespace headrace
