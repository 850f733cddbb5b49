#pragma once

// Wishes about pages that were mapped: the system may have other plans, or know nothing of them.

#include <cstddef>

namespace headrace {

// Of 2 MiB. False where the system has none that could be asked for.
bool want_huge_pages(void* begin, std::size_t nbytes);
void want_small_pages(void* begin, std::size_t nbytes);

}  // namespace headrace
