#include "codec/sizes.h"

#include <algorithm>
#include <cstdint>

#include "base/checked.h"

namespace headrace {
namespace {

constexpr std::size_t kSmall = 1 << 20;

std::size_t most_decoded(ConstBytes src, std::size_t max_nbytes) {
  constexpr std::size_t kMost = std::size_t{1} << 15;  // zstd: a block of 128 KiB from 4 bytes
  return std::min(max_nbytes, checked_mul(src.size(), kMost, "decode") + kSmall);
}

}  // namespace

void resize_decoded(Buffer& dst, std::size_t nbytes, std::size_t max_nbytes) {
  if (nbytes > max_nbytes) check_decoded_size(max_nbytes, nbytes);
  dst.resize(nbytes);
}

void resize_said(Buffer& dst, std::size_t said, ConstBytes src, std::size_t max_nbytes) {
  resize_decoded(dst, said, most_decoded(src, max_nbytes));
}

std::optional<std::size_t> said_unless_lie(std::size_t said, ConstBytes src) {
  return said <= most_decoded(src, SIZE_MAX) ? std::optional(said) : std::nullopt;
}

void decode_growing(ConstBytes src,
                    std::size_t max_nbytes,
                    FunctionRef<void(std::size_t bound)> decode) {
  constexpr std::size_t kUsual = 16;
  const std::size_t most = most_decoded(src, max_nbytes);
  for (std::size_t bound = kUsual * src.size() + kSmall; bound < most; bound *= 8) {
    try {
      return decode(bound);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;  // else it may be too large
    }
  }
  decode(most);
}

}  // namespace headrace
