#pragma once

#include <vector>

#include "common.h"

namespace headrace::python {

// A sequence of (name, configuration as JSON text), which headrace.codecs makes of codec objects.
std::vector<CodecSpec> codec_specs_from_python(nb::handle specs);

}  // namespace headrace::python
