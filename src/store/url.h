#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "headrace/store.h"
#include "store/http/open.h"

namespace headrace {

// As open_store(), but for a folder that StoreMode::overwrite would empty: what of it is Zarr's the
// engine knows.
Store open_place(std::string_view path_or_url, StoreMode mode, const StorageOptions& options);
// The same without a look at what lies there: a folder is a folder of objects, never a repository.
Store open_plain_place(std::string_view path_or_url, StoreMode mode, const StorageOptions& options);

// Of a store over HTTP; nothing: of another kind.
std::optional<RemoteParts> remote_parts(std::string_view url,
                                        const StorageOptions& options,
                                        const HttpAdjustment& adjust);

// Encodes what would change the meaning of a path in a URL (% ? # space and control characters)
// and leaves the rest readable, UTF-8 included.
std::string percent_encode_path(std::string_view path);
// `invalid_argument` for a '%' without two hex digits and for an encoded NUL.
std::string percent_decode(std::string_view text);

}  // namespace headrace
