#pragma once

// Paths and URLs of single objects, as a store and a key in it.

#include <string>
#include <string_view>

#include "headrace/store.h"
#include "store/reference/targets.h"

namespace headrace {

// A path as it is, or a URL; a path may be relative to the working folder. Whatever it is, the user
// has named it.
Target open_object(std::string_view path_or_url, const StorageOptions& options);
// "/a" of "/a/b.json", "s3://bucket/a" of "s3://bucket/a/b.json".
std::string folder_of(std::string_view path_or_url);
// For messages and names: without the user, password and query that a URL of a web server may
// have, and the keys of others, which may stand behind other words, as in
// reference://http://user:password@host/refs.json.
std::string shown_place(std::string_view path_or_url);
// "/a/b", of a path or a file:// URL; empty for other URLs.
std::string local_path(std::string_view path_or_url);

// An object of JSON as options: what is no text stands as JSON writes it.
StorageOptions options_of_json(std::string_view text, const std::string& name);

}  // namespace headrace
