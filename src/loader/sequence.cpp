#include "loader/sequence.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace headrace::loader {
namespace {

enum KeyUse : std::uint64_t { kOfSamples, kOfBlocks, kOfWindow };

// Of more samples one comes soon: when exactly is not worth asking for each.
constexpr std::int64_t kExact = 64;

}  // namespace

Sequence::Sequence(const SequenceOptions& options,
                   std::uint64_t key,
                   std::vector<std::int64_t> lane_bounds)
    : by_blocks_(options.by_blocks),
      samples_(options.samples()),
      key_(key),
      lane_bounds_(std::move(lane_bounds)) {
  if (!by_blocks_) return;
  deal_blocks(options);
  sort_pieces();
}

void Sequence::deal_blocks(const SequenceOptions& options) {
  const std::vector<std::int64_t>& bounds = options.blocks;
  const auto blocks = static_cast<std::int64_t>(bounds.size()) - 1;
  const auto lanes = static_cast<std::int64_t>(lane_bounds_.size()) - 1;
  std::int64_t largest = 1;
  for (std::size_t b = 0; b + 1 < bounds.size(); ++b)
    largest = std::max(largest, bounds[b + 1] - bounds[b]);

  std::int64_t at = 0;     // in the sequence
  std::int64_t lane = -1;  // of the last window
  std::int64_t lane_end = 0;
  std::int64_t window_end = 0;  // a bound for the first window of a lane
  std::int64_t pieces_in_window = 0;
  const auto add_window = [&] {
    windows_.push_back({at, pieces_.size()});
    pieces_in_window = 0;
    window_end = lane_end;
  };
  const auto begin_lane = [&] {
    while (lane_end == at) lane_end = lane_begin(++lane + 1);
    add_window();
    const std::int64_t part = largest * options.window_blocks * (lane + 1) / lanes;
    window_end = std::min(lane_end, at + std::max<std::int64_t>(part, 1));
  };
  const auto add_block = [&](std::int64_t sample, std::int64_t end) {
    while (sample < end && at < size()) {
      if (at == lane_end)
        begin_lane();
      else if (at == window_end || pieces_in_window == options.window_blocks)
        add_window();
      const std::int64_t count = std::min(end - sample, window_end - at);
      pieces_.push_back({at, sample, windows_.size() - 1});
      ++pieces_in_window;
      sample += count;
      at += count;
    }
  };
  for (std::int64_t pass = 0; at < size(); ++pass) {
    passes_.push_back(pieces_.size());
    const Permutation permuted(blocks, mix({key_, kOfBlocks, static_cast<std::uint64_t>(pass)}));
    for (std::int64_t i = 0; i < blocks && at < size(); ++i) {
      const auto block = static_cast<std::size_t>(permuted(i));
      add_block(bounds[block], bounds[block + 1]);
    }
  }
  passes_.push_back(pieces_.size());
}

void Sequence::sort_pieces() {
  by_sample_.resize(pieces_.size());
  std::iota(by_sample_.begin(), by_sample_.end(), std::size_t{0});
  for (std::size_t pass = 0; pass + 1 < passes_.size(); ++pass)
    std::sort(by_sample_.begin() + static_cast<std::ptrdiff_t>(passes_[pass]),
              by_sample_.begin() + static_cast<std::ptrdiff_t>(passes_[pass + 1]),
              [&](std::size_t a, std::size_t b) {
                return pieces_[a].first_sample < pieces_[b].first_sample;
              });
}

std::int64_t Sequence::lane_of(std::int64_t place) const {
  const auto after = std::upper_bound(lane_bounds_.begin(), lane_bounds_.end(), place);
  return after - lane_bounds_.begin() - 1;
}

std::int64_t Sequence::window_end(std::size_t window) const {
  return window + 1 < windows_.size() ? windows_[window + 1].begin : size();
}

std::int64_t Sequence::piece_end(std::size_t piece) const {
  return piece + 1 < pieces_.size() ? pieces_[piece + 1].begin : size();
}

Permutation Sequence::pass_permutation(std::int64_t pass) const {
  return {samples_, mix({key_, kOfSamples, static_cast<std::uint64_t>(pass)})};
}

Permutation Sequence::window_permutation(std::size_t window) const {
  return {window_end(window) - windows_[window].begin, mix({key_, kOfWindow, window})};
}

std::int64_t Sequence::sample_at(std::int64_t place) const {
  if (!by_blocks_) return pass_permutation(place / samples_)(place % samples_);
  const auto after = std::upper_bound(
      windows_.begin(), windows_.end(), place, [](std::int64_t value, const Window& window) {
        return value < window.begin;
      });
  const auto w = static_cast<std::size_t>(after - windows_.begin() - 1);
  const std::int64_t begin = windows_[w].begin;
  const std::int64_t chosen = begin + window_permutation(w)(place - begin);
  const auto last = w + 1 < windows_.size()
                        ? pieces_.begin() + static_cast<std::ptrdiff_t>(windows_[w + 1].first_piece)
                        : pieces_.end();
  const auto piece =
      std::upper_bound(pieces_.begin() + static_cast<std::ptrdiff_t>(windows_[w].first_piece),
                       last,
                       chosen,
                       [](std::int64_t value, const Piece& other) { return value < other.begin; });
  return piece[-1].first_sample + (chosen - piece[-1].begin);
}

std::int64_t Sequence::next_use(const Range& samples,
                                std::int64_t position,
                                Positions position_of) const {
  if (!by_blocks_) return next_of_all(samples, position, position_of);
  std::int64_t next = kNever;
  for (std::size_t pass = 0; pass + 1 < passes_.size(); ++pass)
    next = std::min(next, next_in_pass(pass, samples, position, position_of));
  return next;
}

std::int64_t Sequence::next_in_pass(std::size_t pass,
                                    const Range& samples,
                                    std::int64_t position,
                                    Positions position_of) const {
  const auto& [begin, end] = samples;
  const auto first = by_sample_.begin() + static_cast<std::ptrdiff_t>(passes_[pass]);
  const auto last = by_sample_.begin() + static_cast<std::ptrdiff_t>(passes_[pass + 1]);
  auto piece = std::upper_bound(first, last, begin, [&](std::int64_t sample, std::size_t p) {
    return sample < pieces_[p].first_sample;
  });
  if (piece != first) --piece;
  std::int64_t next = kNever;
  for (; piece != last && pieces_[*piece].first_sample < end; ++piece) {
    const Piece& found = pieces_[*piece];
    const std::int64_t piece_last = found.first_sample + (piece_end(*piece) - found.begin);
    if (piece_last <= begin) continue;
    const Range own{std::max(begin, found.first_sample), std::min(end, piece_last)};
    next = std::min(next, next_in_window(found, own, position, position_of));
  }
  return next;
}

// When one of the samples, of this piece, comes: exactly while the window is on its way, at its
// beginning before.
std::int64_t Sequence::next_in_window(const Piece& piece,
                                      const Range& samples,
                                      std::int64_t position,
                                      Positions position_of) const {
  const std::int64_t window = windows_[piece.window].begin;
  const std::int64_t begin = position_of(window);
  if (position <= begin) return begin;
  if (position > position_of(window_end(piece.window) - 1)) return kNever;
  if (samples.second - samples.first > kExact) return position;
  const Permutation permutation = window_permutation(piece.window);
  std::int64_t next = kNever;
  for (std::int64_t sample = samples.first; sample < samples.second; ++sample) {
    const std::int64_t in_window = piece.begin + (sample - piece.first_sample) - window;
    const std::int64_t at = position_of(window + permutation.inverse(in_window));
    if (at >= position) next = std::min(next, at);
  }
  return next;
}

std::int64_t Sequence::next_of_all(const Range& samples,
                                   std::int64_t position,
                                   Positions position_of) const {
  const auto& [begin, end] = samples;
  if (end - begin > kExact) return position + samples_ / (end - begin);
  std::int64_t next = kNever;
  for (std::int64_t pass = 0; pass * samples_ < size(); ++pass) {
    const Permutation permutation = pass_permutation(pass);
    for (std::int64_t sample = begin; sample < end; ++sample) {
      const std::int64_t place = pass * samples_ + permutation.inverse(sample);
      if (place >= size()) continue;
      if (const std::int64_t at = position_of(place); at >= position) next = std::min(next, at);
    }
  }
  return next;
}

}  // namespace headrace::loader
