#pragma once

// The order of one epoch: which sample comes at a position, and when a range of samples comes next.
// The mixture tells of which source a position is, the sequence of the source which of its samples.
// Without weights all samples are of one source here, whatever arrays they are of.

#include <cstdint>
#include <vector>

#include "headrace/loader.h"
#include "loader/mixture.h"
#include "loader/sequence.h"

namespace headrace::loader {

struct OrderOptions {
  Shuffle shuffle = Shuffle::block;
  std::uint64_t seed = 0;
  Mixture mixture{{1}, 1};
  std::vector<SequenceOptions> sources{};  // samples are numbered through them
  std::int64_t size = 0;                   // samples of an epoch
};

class Order {
 public:
  Order(const OrderOptions& options, std::int64_t epoch);

  std::int64_t size() const { return size_; }
  std::int64_t sample_at(std::int64_t position) const;
  // When one of the samples of the range, which are of one source, comes, at `position` or later:
  // not after, and not much before. kNever when none does.
  std::int64_t next_use(const Range& samples, std::int64_t position) const;

 private:
  struct Source {
    std::int64_t first_sample, samples;
    std::int64_t draws;  // in the epoch
    Sequence sequence;
  };

  std::int64_t next_in_order(std::size_t source, const Range& samples, std::int64_t position) const;

  const bool in_order_;
  const std::int64_t size_;
  const Mixture mixture_;
  std::vector<Source> sources_;
};

}  // namespace headrace::loader
