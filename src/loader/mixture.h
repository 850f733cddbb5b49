#pragma once

// Which source the sample at a position of an epoch is of, where sources are mixed by weight.
//
// Position p is the (p / lanes)-th of lane p % lanes. In each lane sources come in turn, as evenly
// as their weights have it (Bresenham's lines, one for each source against those after it), and the
// turns of lanes are shifted against each other. So any stretch of an epoch, of a lane, and of the
// positions of a rank whose world size divides the lanes, has the sources by weight, to within a
// few samples; which is where is known without a walk.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace::loader {

// A part of the numbers 0, 1, 2, ... that is spread evenly over them.
class EvenPart {
 public:
  // `share` of all, between 0 and 1; `shift`, 0 or more and below 1, says where it begins.
  EvenPart(double share, double shift);

  // Of the part below `end`.
  std::int64_t count(std::int64_t end) const;
  // The number that is the n-th of the part.
  std::int64_t at(std::int64_t n) const;
  // The other numbers.
  EvenPart complement() const;

 private:
  EvenPart(std::uint64_t step, std::uint64_t shift) : step_(step), shift_(shift) {}

  // In units of 2^-32: number i is of the part where i * step + shift passes a whole number.
  std::uint64_t step_, shift_;
};

class Mixture {
 public:
  // The n-th sample that a lane takes of a source.
  struct Draw {
    std::size_t source;
    std::int64_t lane, number;
    friend bool operator==(const Draw&, const Draw&) = default;
  };

  // Weights: positive, one at least.
  Mixture(const std::vector<double>& weights, std::int64_t lanes);

  std::size_t sources() const { return choices_ + 1; }
  std::int64_t lanes() const { return lanes_; }

  Draw at(std::int64_t position) const;
  std::int64_t position_of(const Draw& draw) const;
  // Of the n-th sample of a source, whatever the lane.
  std::int64_t position_of(std::size_t source, std::int64_t n) const;
  // Of a source, before a position: all, and those of a lane.
  std::int64_t count(std::size_t source, std::int64_t position) const;
  std::int64_t count_in_lane(std::size_t source, std::int64_t lane, std::int64_t position) const;

 private:
  const EvenPart& chosen(std::size_t choice, std::int64_t lane) const {
    return parts_[static_cast<std::size_t>(lane) * choices_ + choice];
  }

  std::size_t choices_;  // source i is taken by choice i, the last source by none
  std::int64_t lanes_;
  std::vector<EvenPart> parts_;  // of what earlier choices leave, by lane and choice
};

// The longest epoch in which no source gives more than its samples, and the shortest in which each
// gives all of them.
std::int64_t first_exhausted(const Mixture& mixture, std::span<const std::int64_t> samples);
std::int64_t all_exhausted(const Mixture& mixture, std::span<const std::int64_t> samples);

}  // namespace headrace::loader
