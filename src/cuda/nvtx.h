#pragma once

namespace headrace {

// Spans (base/trace.h) become NVTX ranges of the domain "headrace" from the first call on, when a
// profiler is attached to the process.
void show_spans_to_profiler();

}  // namespace headrace
