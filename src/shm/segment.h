#pragma once

// Memory without a name that processes share.

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "headrace/shm.h"

namespace headrace::shm {

// A file descriptor, closed with its owner.
class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd();
  OwnedFd(OwnedFd&& other) noexcept;
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  int get() const { return fd_; }

 private:
  int fd_;
};

class Segment {
 public:
  // What memory can be made of, best first.
  enum class Kind { huge_memfd, memfd, posix };

  // Zeros, of at least `nbytes`, every page of them there: no touch of one can fail later.
  static Segment create(std::size_t nbytes, const ArenaOptions& options);
  // Memory that `fill` is given, and that nobody can write to after that, this process included.
  // Its descriptor is for reading.
  static Segment create_sealed(std::size_t nbytes,
                               const std::function<void(std::span<std::byte>)>& fill);
  // What is behind a descriptor, for as many bytes as it has; a duplicate of `fd` is kept.
  // `invalid_argument` unless it is memory of this user that nobody can cut short: a touch of what
  // is no longer there would end the process. Not `writable`: only what nobody can write to.
  static Segment attach(int fd, bool writable);

  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;

  int fd() const { return fd_.get(); }
  std::span<std::byte> memory() const { return memory_; }
  bool huge_pages() const { return huge_pages_; }
  Backing backing() const { return backing_; }

 private:
  static Segment make_first(const std::vector<Kind>& kinds,
                            std::size_t nbytes,
                            const ArenaOptions& options);
  static Segment make(Kind kind, std::size_t nbytes, const ArenaOptions& options);
  void unmap();
  Segment(OwnedFd fd, std::span<std::byte> memory) : fd_(std::move(fd)), memory_(memory) {}

  OwnedFd fd_;
  std::span<std::byte> memory_;
  bool huge_pages_ = false;
  Backing backing_ = Backing::memfd;
};

// Puts the pages of a shared mapping into this process's page table: cheaper by one call than by a
// fault each.
void map_pages(std::span<std::byte> memory);

}  // namespace headrace::shm
