// Any bytes as a zip archive: open it, list it, read every entry whole and in ranges.
//
// The input lies in a memory file, so the store reads it as it reads a disk.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "fuzz_check.h"
#include "store/store.h"
#include "store/zip.h"

namespace {

using namespace headrace;
using namespace headrace::fuzz;

void read_all(StoreDriver& store, std::size_t input_size) {
  const auto keys = store.list("");
  check(keys.size() <= input_size / 46);  // a directory entry's least size
  for (const std::string& key : keys) {
    check(store.exists(key));
    Buffer whole;
    bool got = false;
    attempt([&] {
      check(store.get(key, whole));
      got = true;
    });
    check(whole.size() <= input_size * 1032);
    attempt([&] {
      auto reader = store.open(key);
      check(reader != nullptr);
      check(!got || reader->size() == whole.size());
      Buffer half(static_cast<std::size_t>(reader->size() / 2));
      reader->read(reader->size() - half.size(), half.bytes());
      check(!got || text_of(half) == text_of(whole).substr(whole.size() - half.size()));
    });
  }
  store.list_dir("");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int fd = ::memfd_create("zip", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) {
    std::abort();
  }
  attempt([&] { read_all(*open_zip_archive(path), size); });
  return 0;
}
