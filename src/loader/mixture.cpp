#include "loader/mixture.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/checked.h"

namespace headrace::loader {
namespace {

constexpr std::uint64_t kOne = std::uint64_t{1} << 32;

std::uint64_t scaled(double value) {
  return static_cast<std::uint64_t>(std::llround(value * static_cast<double>(kOne)));
}

// Multiples of the golden ratio lie evenly however many there are. Over 8 lanes and up to 6 sources
// no count was further than 3.4 from its share, where shifts of lane / lanes gave 6.7.
double shift_of(std::int64_t lane, std::size_t choice) {
  const double shift =
      static_cast<double>(lane) * std::numbers::phi + static_cast<double>(choice) * 0.37;
  return shift - std::floor(shift);
}

// The first number from `begin` on for which a condition holds that holds ever after.
template <typename Condition>
std::int64_t first_that(std::int64_t begin, std::int64_t end, Condition condition) {
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    if (condition(middle))
      end = middle;
    else
      begin = middle + 1;
  }
  return begin;
}

}  // namespace

// A part that would round to nothing, or to all, is 2^-32 of it.
EvenPart::EvenPart(double share, double shift)
    : step_(std::clamp<std::uint64_t>(scaled(share), 1, kOne - 1)),
      shift_(std::min(scaled(shift), kOne - 1)) {}

// floor((end * step + shift) / 2^32), of halves of `end` that do not overflow.
std::int64_t EvenPart::count(std::int64_t end) const {
  const auto n = static_cast<std::uint64_t>(end);
  const std::uint64_t high = n >> 32, low = n & (kOne - 1);
  return static_cast<std::int64_t>(high * step_ + ((low * step_ + shift_) >> 32));
}

// One less than the first `end` whose count is n + 1: ceil(((n + 1) * 2^32 - shift) / step) - 1.
std::int64_t EvenPart::at(std::int64_t n) const {
  const auto number = static_cast<std::uint64_t>(n);
  const std::uint64_t whole = number / step_, rest = number % step_;
  return static_cast<std::int64_t>(whole * kOne +
                                   (rest * kOne + (kOne - shift_) + step_ - 1) / step_ - 1);
}

// end - floor((end * step + shift) / 2^32) is a floor of that form too.
EvenPart EvenPart::complement() const { return {kOne - step_, kOne - 1 - shift_}; }

Mixture::Mixture(const std::vector<double>& weights, std::int64_t lanes)
    : choices_(weights.size() - 1), lanes_(lanes) {
  std::vector<double> left(weights.size());  // of each source and those after it
  std::partial_sum(weights.rbegin(), weights.rend(), left.rbegin());
  for (std::int64_t lane = 0; lane < lanes; ++lane)
    for (std::size_t choice = 0; choice < choices_; ++choice)
      parts_.emplace_back(weights[choice] / left[choice], shift_of(lane, choice));
}

Mixture::Draw Mixture::at(std::int64_t position) const {
  const std::int64_t lane = position % lanes_;
  std::int64_t number = position / lanes_;
  for (std::size_t choice = 0; choice < choices_; ++choice) {
    const EvenPart& part = chosen(choice, lane);
    const std::int64_t before = part.count(number);
    if (part.count(number + 1) > before) return {choice, lane, before};
    number -= before;
  }
  return {choices_, lane, number};
}

std::int64_t Mixture::position_of(const Draw& draw) const {
  std::int64_t number = draw.number;
  if (draw.source < choices_) number = chosen(draw.source, draw.lane).at(number);
  for (std::size_t choice = draw.source; choice-- > 0;)
    number = chosen(choice, draw.lane).complement().at(number);
  return number * lanes_ + draw.lane;
}

std::int64_t Mixture::position_of(std::size_t source, std::int64_t n) const {
  if (choices_ == 0) return n;
  std::int64_t end = 1;
  const auto is_past = [&](std::int64_t position) { return count(source, position + 1) > n; };
  while (!is_past(end)) end *= 2;
  return first_that(0, end, is_past);
}

std::int64_t Mixture::count(std::size_t source, std::int64_t position) const {
  if (choices_ == 0) return position;
  std::int64_t count = 0;
  for (std::int64_t lane = 0; lane < lanes_; ++lane) count += count_in_lane(source, lane, position);
  return count;
}

std::int64_t Mixture::count_in_lane(std::size_t source,
                                    std::int64_t lane,
                                    std::int64_t position) const {
  std::int64_t number = position / lanes_ + (lane < position % lanes_ ? 1 : 0);
  for (std::size_t choice = 0; choice < source; ++choice)
    number -= chosen(choice, lane).count(number);
  return source < choices_ ? chosen(source, lane).count(number) : number;
}

std::int64_t first_exhausted(const Mixture& mixture, std::span<const std::int64_t> samples) {
  const std::int64_t all = std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
  return first_that(0, all, [&](std::int64_t length) {
    for (std::size_t source = 0; source < samples.size(); ++source)
      if (mixture.count(source, length + 1) > samples[source]) return true;
    return false;
  });
}

std::int64_t all_exhausted(const Mixture& mixture, std::span<const std::int64_t> samples) {
  const auto is_enough = [&](std::int64_t length) {
    for (std::size_t source = 0; source < samples.size(); ++source)
      if (mixture.count(source, length) < samples[source]) return false;
    return true;
  };
  std::int64_t bound = 1;
  while (!is_enough(bound)) bound = checked_mul<std::int64_t>(bound, 2, "samples of an epoch");
  return first_that(0, bound, is_enough);
}

}  // namespace headrace::loader
