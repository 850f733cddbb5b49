#pragma once

// A range that is too large to be held beside the blocks that are kept of it: it comes in segments,
// a few at a time, each of which is a read of the cache like any other and goes where it belongs.
// The first tells the version of which the others are. Of a store that tells no versions the range
// is read as others are: there all that one call asks for is of one object only if it comes at
// once.

#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "store/async.h"
#include "store/cached_reads.h"

namespace headrace {

class CachedReads::Large final : public std::enable_shared_from_this<Large> {
 public:
  // So much is one request, and so many are under way: what is held of a range at a time.
  static constexpr std::uint64_t kSegmentNbytes = std::uint64_t{8} << 20;
  static constexpr std::size_t kSegmentsAtOnce = 8;
  static constexpr std::uint64_t kLargeNbytes = kSegmentsAtOnce * kSegmentNbytes;

  static bool is_large(const AsyncRead& read) {
    return read.extent.kind == Extent::Kind::range && read.extent.nbytes > kLargeNbytes;
  }

  // `read` stays as it is until it is claimed.
  Large(CachedReads& reads, AsyncRead& read)
      : reads_(reads), read_(read), nbytes_(read.extent.nbytes) {}

  // Begins what there is room for, or ends the read.
  void go_on() noexcept;
  // As AsyncReads::cancel().
  void cancel(const std::exception_ptr& error) noexcept;

 private:
  class Segment;

  void fill_room();
  void ended(const Segment& segment) noexcept;
  void fail(const std::exception_ptr& error) noexcept;
  void finish() noexcept;

  CachedReads& reads_;
  AsyncRead& read_;  // the submitter's again once this is over
  const std::uint64_t nbytes_;

  Mutex mutex_;
  std::list<std::shared_ptr<Segment>> running_ GUARDED_BY(mutex_);
  std::uint64_t next_ GUARDED_BY(mutex_) = 0;  // from the range's begin
  bool is_first_known_ GUARDED_BY(mutex_) = false;
  bool is_missing_ GUARDED_BY(mutex_) = false;
  bool is_unversioned_ GUARDED_BY(mutex_) = false;
  bool is_over_ GUARDED_BY(mutex_) = false;
  std::string version_ GUARDED_BY(mutex_);
  std::uint64_t object_nbytes_ GUARDED_BY(mutex_) = 0;
  std::exception_ptr error_ GUARDED_BY(mutex_);
};

}  // namespace headrace
