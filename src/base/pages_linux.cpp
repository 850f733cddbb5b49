#include <sys/mman.h>

#include "base/pages.h"

namespace headrace {

bool want_huge_pages(void* begin, std::size_t nbytes) {
  madvise(begin, nbytes, MADV_HUGEPAGE);  // a hint: without it pages are small
  return true;
}

void want_small_pages(void* begin, std::size_t nbytes) { madvise(begin, nbytes, MADV_NOHUGEPAGE); }

}  // namespace headrace
