#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "headrace/store.h"
#include "store/store.h"

namespace headrace {

// A snapshot of an Icechunk repository, of version 1 or 2 of its format, read only:
// "icechunk:///data/repo", "icechunk+s3://bucket/repo". Options:
//   branch, tag, snapshot   which one; "main" when none of them is given
//   allow                   what virtual chunks may lead to besides the repository's own folder,
//                           bucket or host: prefixes of URLs and paths, JSON or with commas between
//   virtual_containers      for chunks at vcc://NAME/...: JSON, of names to prefixes of URLs
//   remote_options          of the stores that virtual chunks lead to
// and those of the store that the repository lies in. The store's URL names the snapshot,
// "icechunk+file:///data/repo?snapshot=...": opened by it that one is read, whatever a branch that
// stands in the options leads to by then.
std::shared_ptr<StoreDriver> open_icechunk_store(std::string_view url,
                                                 StoreMode mode,
                                                 const StorageOptions& options);

// Whether a folder of this machine is such a repository.
bool is_icechunk_repository(const std::string& path);
// The place of the repository that such a store's URL has: "file:///data/repo".
std::string icechunk_place(std::string_view url);
// Whether it is "icechunk" or "icechunk+...".
bool is_icechunk_scheme(std::string_view scheme);

}  // namespace headrace
