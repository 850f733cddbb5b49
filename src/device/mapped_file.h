#pragma once

// A stretch of a file that lies in memory (tmpfs, hugetlbfs), mapped so that a device copies it
// from where it is: no processor touches the bytes.
//
// Nothing of the host reads through the mapping. A file that is cut short takes its pages away from
// it, and a load would end the process with SIGBUS; a device that has the pages locked goes on with
// what they held.

#include <cstddef>
#include <cstdint>
#include <string>

#include "simt/queue.h"

namespace headrace {

class MappedFile {
 public:
  virtual ~MappedFile() = default;

  // Gives the queue the copy of `nbytes` bytes from `at` on, counted from where the mapping begins,
  // to device memory. This has to live until a mark made after the call.
  virtual void copy(Queue& queue, void* target, std::size_t at, std::size_t nbytes) const = 0;
};

// The mapping itself, for backends. A child of fork does not have it.
class MappedPages {
 public:
  enum class Access : std::uint8_t { read_only, writable };

  // Of an open file, which may be closed then. `offset`: a multiple of the file's pages.
  // `writable`, for drivers that lock no other pages, opens the file anew for it. `io` or
  // `unsupported` where the system refuses.
  MappedPages(int fd, std::uint64_t offset, std::size_t nbytes, Access access);
  ~MappedPages();
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;

  // Not to be read by the host.
  std::byte* data() const { return data_; }
  std::size_t nbytes() const { return nbytes_; }
  // No store goes through it from now on; what a driver has locked stays so.
  void protect() const;

  // What a device would copy, for one that is none: by the kernel, which says where a load would
  // end the process. Throws `io` with ESTALE then: the file is another.
  void read(std::size_t at, void* target, std::size_t nbytes) const;

 private:
  std::byte* data_ = nullptr;
  std::size_t nbytes_ = 0;
  [[maybe_unused]] int owner_ = 0;  // the process that has it, where pages are mapped
};

// Bytes of the file system's pages when the open file lies in memory (tmpfs, hugetlbfs); 0 where it
// does not.
std::size_t page_nbytes_in_memory(int fd);

// Where an open file lies, as the system knows it; empty where it does not tell.
std::string path_of_open(int fd);

}  // namespace headrace
