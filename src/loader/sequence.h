#pragma once

// The samples of one source as an epoch takes them: pass after pass over all of them, each in
// another random order, as far as the epoch goes. The sequence is dealt to lanes, a stretch each.
//
// Under block shuffle a pass is the permuted blocks one after another. Within a lane some blocks at
// a time make a window, whose samples are permuted. The first windows of lanes are of different
// lengths, so that not all lanes come to new chunks at once.

#include <cstdint>
#include <limits>
#include <vector>

#include "base/function_ref.h"
#include "loader/permutation.h"
#include "loader/sample_space.h"

namespace headrace::loader {

inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

struct SequenceOptions {
  bool by_blocks = true;  // else a random order of all samples
  std::int64_t window_blocks = 1;
  // Bounds of the blocks: ascending samples, from 0 to their number.
  std::vector<std::int64_t> blocks{};

  std::int64_t samples() const { return blocks.back(); }
};

class Sequence {
 public:
  // `lane_bounds`: where lanes begin in the sequence, and where the last ends.
  Sequence(const SequenceOptions& options,
           std::uint64_t key,
           std::vector<std::int64_t> lane_bounds);

  std::int64_t sample_at(std::int64_t place) const;
  std::int64_t lane_begin(std::int64_t lane) const {
    return lane_bounds_[static_cast<std::size_t>(lane)];
  }
  std::int64_t lane_of(std::int64_t place) const;

  // When one of the samples of the range comes, at `position` or later: not after, and not much
  // before. kNever when none does. `position_of` a place grows along a lane.
  std::int64_t next_use(const Range& samples,
                        std::int64_t position,
                        FunctionRef<std::int64_t(std::int64_t place)> position_of) const;

 private:
  using Positions = FunctionRef<std::int64_t(std::int64_t place)>;

  // Consecutive samples that are consecutive before the windows are permuted.
  struct Piece {
    std::int64_t begin;  // in the sequence
    std::int64_t first_sample;
    std::size_t window;
  };
  struct Window {
    std::int64_t begin;  // in the sequence
    std::size_t first_piece;
  };

  void deal_blocks(const SequenceOptions& options);
  void sort_pieces();
  std::int64_t size() const { return lane_bounds_.back(); }
  std::int64_t window_end(std::size_t window) const;
  std::int64_t piece_end(std::size_t piece) const;
  Permutation pass_permutation(std::int64_t pass) const;
  Permutation window_permutation(std::size_t window) const;
  std::int64_t next_in_pass(std::size_t pass,
                            const Range& samples,
                            std::int64_t position,
                            Positions position_of) const;
  std::int64_t next_in_window(const Piece& piece,
                              const Range& samples,
                              std::int64_t position,
                              Positions position_of) const;
  std::int64_t next_of_all(const Range& samples,
                           std::int64_t position,
                           Positions position_of) const;

  const bool by_blocks_;
  const std::int64_t samples_;
  const std::uint64_t key_;
  const std::vector<std::int64_t> lane_bounds_;
  std::vector<Window> windows_;
  std::vector<Piece> pieces_;           // as the sequence goes
  std::vector<std::size_t> passes_;     // the first piece of each, and their number
  std::vector<std::size_t> by_sample_;  // the pieces of each pass, by their first sample
};

}  // namespace headrace::loader
