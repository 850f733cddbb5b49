#pragma once

#include <memory>
#include <string>

#include "store/reference/json_window.h"
#include "store/reference/table.h"
#include "store/reference/templates.h"

namespace headrace {

// What kerchunk and VirtualiZarr write as JSON, versions 0 and 1. `overrides` stand in for the
// file's templates of these names. A URL of null is "".
// https://fsspec.github.io/kerchunk/spec.html
std::shared_ptr<const ReferenceTable> read_kerchunk_json(JsonWindow::Source source,
                                                         const std::string& name,
                                                         const Templates& overrides);
// An object of names and strings.
Templates read_templates(JsonWindow& json);

// The text as a source; it has to stay where it is.
JsonWindow::Source source_of(std::string_view text);

}  // namespace headrace
