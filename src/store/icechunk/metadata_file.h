#pragma once

// The files of a repository that are no chunks: a header, then a flatbuffer, mostly in zstd.
// https://icechunk.io/en/latest/reference/spec-v2/

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/buffer.h"
#include "base/bytes.h"
#include "store/store.h"

namespace headrace {

enum class IcechunkFile : std::uint8_t { snapshot = 1, manifest = 2, repo = 6 };

using IcechunkId = std::array<std::byte, 12>;  // of snapshots, manifests and chunks
using IcechunkNodeId = std::array<std::byte, 8>;

// As names of files have it: base 32 of Crockford, without padding.
std::string icechunk_name(const IcechunkId& id);
IcechunkId icechunk_id(ConstBytes bytes);
// Whether it is such a name, of 20 characters.
bool is_icechunk_name(std::string_view name);

// The flatbuffer of a file; `corrupt` for anything that is none.
Buffer unpack_icechunk_file(ConstBytes file, IcechunkFile kind, const std::string& name);

}  // namespace headrace
