// POSIX neither tells which files lie in memory nor reads a mapping that may lose its pages: no
// file is mapped, and all are read.

#include "device/mapped_file.h"
#include "headrace/error.h"

namespace headrace {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::unsupported, "the portable build maps no files for devices");
}

}  // namespace

MappedPages::MappedPages(int, std::uint64_t, std::size_t, Access) { refuse(); }
MappedPages::~MappedPages() = default;
void MappedPages::protect() const {}
void MappedPages::read(std::size_t, void*, std::size_t) const { refuse(); }

std::size_t page_nbytes_in_memory(int) { return 0; }
std::string path_of_open(int) { return {}; }

}  // namespace headrace
