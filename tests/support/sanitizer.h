// Whether a sanitizer is at work, which the sources of tests are not compiled with.
#pragma once

// NOLINTNEXTLINE(bugprone-reserved-identifier): of its run time, where that is linked
extern "C" void __asan_init() __attribute__((weak));

namespace headrace {

inline bool under_address_sanitizer() { return __asan_init != nullptr; }

}  // namespace headrace
