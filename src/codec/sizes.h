#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/function_ref.h"
#include "headrace/error.h"

namespace headrace {

// Every decode ends with this check, one way or another.
inline void check_decoded_size(std::size_t wanted, std::size_t found) {
  if (wanted == found) return;
  throw Error(ErrorCode::corrupt,
              "expected " + std::to_string(wanted) + " bytes, got " + std::to_string(found));
}

[[noreturn]] inline void throw_corrupt(const std::string& problem) {
  throw Error(ErrorCode::corrupt, problem);
}

// For decode_unknown, each by how the codec knows what comes out.

// By the number of encoded bytes.
void resize_decoded(Buffer& dst, std::size_t nbytes, std::size_t max_nbytes);
// By what `src` says: more than a codec makes of so many bytes is a lie.
void resize_said(Buffer& dst, std::size_t said, ConstBytes src, std::size_t max_nbytes);
// What `src` says, unless that is a lie.
std::optional<std::size_t> said_unless_lie(std::size_t said, ConstBytes src);
// By decoding only: `decode` takes memory for `bound` bytes and throws `corrupt` when more come
// out. The bound grows from a usual size to the most that a codec makes of so many bytes.
void decode_growing(ConstBytes src,
                    std::size_t max_nbytes,
                    FunctionRef<void(std::size_t bound)> decode);

}  // namespace headrace
