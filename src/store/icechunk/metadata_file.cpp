#include "store/icechunk/metadata_file.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "headrace/error.h"

namespace headrace {
namespace {

constexpr std::string_view kMagic =
    "ICE\xf0\x9f\xa7\x8a"
    "CHUNK";
constexpr std::size_t kHeaderNbytes = 12 + 24 + 3;
constexpr std::string_view kDigits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

// Of one file as it is unpacked. A chunk takes some 60 bytes in a manifest, and writers split
// manifests long before: this is one of 70 million chunks.
constexpr std::size_t kMaxUnpacked = std::size_t{4} << 30;

}  // namespace

std::string icechunk_name(const IcechunkId& id) {
  std::string name;
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const std::byte byte : id) {
    bits = bits << 8 | std::to_integer<std::uint32_t>(byte);
    for (count += 8; count >= 5; count -= 5) name += kDigits[bits >> (count - 5) & 31];
  }
  if (count > 0) name += kDigits[bits << (5 - count) & 31];
  return name;
}

IcechunkId icechunk_id(ConstBytes bytes) {
  IcechunkId id;
  std::copy_n(bytes.begin(), id.size(), id.begin());
  return id;
}

bool is_icechunk_name(std::string_view name) {
  return name.size() == 20 && name.find_first_not_of(kDigits) == std::string_view::npos;
}

Buffer unpack_icechunk_file(ConstBytes file, IcechunkFile kind, const std::string& name) {
  const auto fail = [&](ErrorCode code, const std::string& why) {
    throw Error(code, name + ": " + why);
  };
  if (file.size() < kHeaderNbytes || text_of(file.first(kMagic.size())) != kMagic) {
    fail(ErrorCode::corrupt, "is no file of icechunk");
  }
  const auto version = std::to_integer<unsigned>(file[36]);
  const auto found_kind = std::to_integer<unsigned>(file[37]);
  const auto compression = std::to_integer<unsigned>(file[38]);
  if (version != 1 && version != 2) {
    fail(ErrorCode::unsupported,
         "of version " + std::to_string(version) + " of the format; known are 1 and 2");
  }
  if (found_kind != static_cast<unsigned>(kind)) {
    fail(ErrorCode::corrupt,
         "wanted a file of kind " + std::to_string(static_cast<unsigned>(kind)) + ", found " +
             std::to_string(found_kind));
  }
  const ConstBytes packed = file.subspan(kHeaderNbytes);
  Buffer unpacked;
  if (compression == 0) {
    unpacked.assign(packed);
    return unpacked;
  }
  if (compression != 1) {
    fail(ErrorCode::corrupt, "compressed by " + std::to_string(compression) + ", known is 1");
  }
  const std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(),
                                                                             ZSTD_freeDStream);
  if (!stream) fail(ErrorCode::out_of_memory, "zstd");
  // What a frame says of its size is a hint: memory grows with what comes.
  const auto hint = ZSTD_getFrameContentSize(packed.data(), packed.size());
  constexpr std::size_t kFirst = std::size_t{1} << 20;
  unpacked.resize(static_cast<std::size_t>(std::clamp<unsigned long long>(
      hint > kMaxUnpacked ? 0 : hint, 1, packed.size() * 64 + kFirst)));
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  ZSTD_outBuffer out{unpacked.data(), unpacked.size(), 0};
  for (;;) {
    const std::size_t left = ZSTD_decompressStream(stream.get(), &out, &in);
    if (ZSTD_isError(left))
      fail(ErrorCode::corrupt, std::string("zstd: ") + ZSTD_getErrorName(left));
    if (left == 0 && in.pos == in.size) break;
    if (out.pos == out.size) {
      if (out.size >= kMaxUnpacked) fail(ErrorCode::corrupt, "unpacks to more than 4 GiB");
      unpacked.resize_keep(out.size * 2);
      out.dst = unpacked.data();
      out.size = unpacked.size();
    } else if (in.pos == in.size) {
      fail(ErrorCode::corrupt, "the zstd data end in a frame");
    }
  }
  unpacked.resize_keep(out.pos);
  return unpacked;
}

}  // namespace headrace
