#pragma once

#include <memory>
#include <string_view>

#include "headrace/store.h"
#include "store/store.h"

namespace headrace {

// What references of kerchunk or VirtualiZarr describe, read only: "reference:///data/refs.json",
// or "reference://" and the option "fo". Options, as fsspec's users know them:
//   fo                where the references are: a path or URL of JSON (of zstd, too) or of a folder
//                     of Parquet files, or the JSON itself ("{...")
//   target_options    of the store that they are read from
//   remote_protocol   of URLs in them that have no scheme
//   remote_options    of the stores that they lead to
//   target            the URL of those that name none
//   template_overrides  in place of the templates of the file
//   allow             what may be reached besides the folder, bucket or host of the references: a
//                     list of prefixes of URLs and of paths, JSON or with commas between; "*": all
//   max_gap, max_block  ranges of one object with at most so many bytes between are one request
std::shared_ptr<StoreDriver> open_reference_store(std::string_view url,
                                                  StoreMode mode,
                                                  const StorageOptions& options);

}  // namespace headrace
