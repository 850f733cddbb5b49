#pragma once

// The order of one epoch: which sample comes at a position, and when a range of samples comes next.
//
// Under block shuffle the samples are cut into blocks, and the permuted blocks, one after another,
// into as many lanes of equal length as there are. Position p is the (p / lanes)-th of lane
// p % lanes. Within a lane some blocks at a time make a window, whose samples are permuted. The
// first windows of lanes are of different lengths, so that not all lanes come to new chunks at
// once.

#include <cstdint>
#include <limits>
#include <vector>

#include "headrace/loader.h"
#include "loader/permutation.h"
#include "loader/sample_space.h"

namespace headrace::loader {

struct OrderOptions {
  Shuffle shuffle = Shuffle::block;
  std::uint64_t seed = 0;
  std::int64_t lanes = 1;
  std::int64_t window_blocks = 1;  // of a lane
  // Bounds of the blocks: ascending samples, from 0 to their number.
  std::vector<std::int64_t> blocks{};
};

inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

class Order {
 public:
  Order(const OrderOptions& options, std::int64_t epoch);

  std::int64_t size() const { return size_; }
  std::int64_t sample_at(std::int64_t position) const;
  // When one of the samples of the range comes, at `position` or later: not after, and not much
  // before. kNever when none does.
  std::int64_t next_use(const Range& samples, std::int64_t position) const;

 private:
  // Consecutive samples that are consecutive before the windows are permuted.
  struct Piece {
    std::int64_t begin;  // in the sequence of permuted blocks
    std::int64_t first_sample;
    std::size_t window;
  };
  struct Window {
    std::int64_t begin;  // in the sequence
    std::size_t first_piece;
    std::int64_t lane;
  };

  void deal_blocks(const OrderOptions& options);
  std::int64_t lane_begin(std::int64_t lane) const;
  std::int64_t window_end(std::size_t window) const;
  std::int64_t piece_end(std::size_t piece) const;
  std::int64_t position_of(std::int64_t lane, std::int64_t in_sequence) const {
    return (in_sequence - lane_begin(lane)) * lanes_ + lane;
  }
  Permutation window_permutation(std::size_t window) const;
  std::int64_t next_in_window(const Piece& piece,
                              const Range& samples,
                              std::int64_t position) const;

  Shuffle shuffle_;
  std::uint64_t key_;
  std::int64_t size_;
  std::int64_t lanes_;
  Permutation all_;
  std::vector<Window> windows_;
  std::vector<Piece> pieces_;           // as the sequence goes
  std::vector<std::size_t> by_sample_;  // pieces, by their first sample
};

}  // namespace headrace::loader
