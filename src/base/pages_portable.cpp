#include "base/pages.h"

namespace headrace {

bool want_huge_pages(void*, std::size_t) { return false; }
void want_small_pages(void*, std::size_t) {}

}  // namespace headrace
