#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "store/reference/json_window.h"
#include "store/reference/table.h"
#include "store/reference/templates.h"

namespace headrace {

// Of what templates and generators make of a few characters. 10^7 references have room, each to a
// URL of its own of 80 characters; more are given key by key, in a file that is as long.
struct GeneratorLimits {
  std::uint64_t references = std::uint64_t{1} << 24;
  std::uint64_t nbytes = std::uint64_t{5} << 29;  // of memory, theirs and of URLs by templates
  std::uint64_t work = std::uint64_t{1} << 33;    // characters that are looked at or made
};

// What kerchunk and VirtualiZarr write as JSON, versions 0 and 1. `overrides` stand in for the
// file's templates of these names. A URL of null is "".
// What generators make beyond the limits is `corrupt`.
// https://fsspec.github.io/kerchunk/spec.html
std::shared_ptr<const ReferenceTable> read_kerchunk_json(JsonWindow::Source source,
                                                         const std::string& name,
                                                         const Templates& overrides,
                                                         const GeneratorLimits& limits = {});
// An object of names and strings.
Templates read_templates(JsonWindow& json);

// The text as a source; it has to stay where it is.
JsonWindow::Source source_of(std::string_view text);

}  // namespace headrace
