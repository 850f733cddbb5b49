#include "loader/order.h"

#include <algorithm>
#include <numeric>

namespace headrace::loader {
namespace {

enum KeyUse : std::uint64_t { kOfSamples, kOfBlocks, kOfWindow };

// Of more samples one comes soon: when exactly is not worth asking for each.
constexpr std::int64_t kExact = 64;

// Of the range [begin, end), the first number that is `position` or later.
std::int64_t next_within(std::int64_t begin, std::int64_t end, std::int64_t position) {
  return position < end ? std::max(begin, position) : kNever;
}

}  // namespace

Order::Order(const OrderOptions& options, std::int64_t epoch)
    : shuffle_(options.shuffle),
      key_(mix({options.seed, static_cast<std::uint64_t>(epoch)})),
      size_(options.blocks.back()),
      lanes_(std::clamp<std::int64_t>(options.lanes, 1, std::max<std::int64_t>(size_, 1))),
      all_(size_, mix({key_, kOfSamples})) {
  if (shuffle_ == Shuffle::block && size_ > 0) deal_blocks(options);
}

void Order::deal_blocks(const OrderOptions& options) {
  const auto blocks = static_cast<std::int64_t>(options.blocks.size()) - 1;
  const Permutation permuted(blocks, mix({key_, kOfBlocks}));
  std::int64_t largest = 1;
  for (std::size_t b = 0; b + 1 < options.blocks.size(); ++b)
    largest = std::max(largest, options.blocks[b + 1] - options.blocks[b]);

  std::int64_t at = 0;     // in the sequence
  std::int64_t lane = -1;  // of the last window
  std::int64_t lane_end = 0;
  std::int64_t window_end = 0;  // a bound for the first window of a lane
  std::int64_t pieces_in_window = 0;
  const auto add_window = [&] {
    windows_.push_back({at, pieces_.size(), lane});
    pieces_in_window = 0;
    window_end = lane_end;
  };
  for (std::int64_t i = 0; i < blocks; ++i) {
    const auto block = static_cast<std::size_t>(permuted(i));
    std::int64_t sample = options.blocks[block];
    while (sample < options.blocks[block + 1]) {
      if (at == lane_end) {
        lane_end = lane_begin(++lane + 1);
        add_window();
        const std::int64_t part = largest * options.window_blocks * (lane + 1) / lanes_;
        window_end = std::min(lane_end, at + std::max<std::int64_t>(part, 1));
      } else if (at == window_end || pieces_in_window == options.window_blocks) {
        add_window();
      }
      const std::int64_t count = std::min(options.blocks[block + 1] - sample, window_end - at);
      pieces_.push_back({at, sample, windows_.size() - 1});
      ++pieces_in_window;
      sample += count;
      at += count;
    }
  }
  by_sample_.resize(pieces_.size());
  std::iota(by_sample_.begin(), by_sample_.end(), std::size_t{0});
  std::sort(by_sample_.begin(), by_sample_.end(), [&](std::size_t a, std::size_t b) {
    return pieces_[a].first_sample < pieces_[b].first_sample;
  });
}

std::int64_t Order::lane_begin(std::int64_t lane) const {
  return lane * (size_ / lanes_) + std::min(lane, size_ % lanes_);
}

std::int64_t Order::window_end(std::size_t window) const {
  return window + 1 < windows_.size() ? windows_[window + 1].begin : size_;
}

std::int64_t Order::piece_end(std::size_t piece) const {
  return piece + 1 < pieces_.size() ? pieces_[piece + 1].begin : size_;
}

Permutation Order::window_permutation(std::size_t window) const {
  return {window_end(window) - windows_[window].begin, mix({key_, kOfWindow, window})};
}

std::int64_t Order::sample_at(std::int64_t position) const {
  if (shuffle_ == Shuffle::none) return position;
  if (shuffle_ == Shuffle::global) return all_(position);
  const std::int64_t in_sequence = lane_begin(position % lanes_) + position / lanes_;
  const auto after = std::upper_bound(
      windows_.begin(), windows_.end(), in_sequence, [](std::int64_t value, const Window& window) {
        return value < window.begin;
      });
  const auto w = static_cast<std::size_t>(after - windows_.begin() - 1);
  const std::int64_t begin = windows_[w].begin;
  const std::int64_t chosen = begin + window_permutation(w)(in_sequence - begin);
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

// When one of the samples, of this piece, comes: exactly while the window is on its way, at its
// beginning before.
std::int64_t Order::next_in_window(const Piece& piece,
                                   const Range& samples,
                                   std::int64_t position) const {
  const Window& window = windows_[piece.window];
  const std::int64_t begin = position_of(window.lane, window.begin);
  const std::int64_t last = position_of(window.lane, window_end(piece.window) - 1);
  if (position <= begin) return begin;
  if (position > last) return kNever;
  if (samples.second - samples.first > kExact) return position;
  const Permutation permutation = window_permutation(piece.window);
  std::int64_t next = kNever;
  for (std::int64_t sample = samples.first; sample < samples.second; ++sample) {
    const std::int64_t in_window = piece.begin + (sample - piece.first_sample) - window.begin;
    const std::int64_t at = position_of(window.lane, window.begin + permutation.inverse(in_window));
    if (at >= position) next = std::min(next, at);
  }
  return next;
}

std::int64_t Order::next_use(const Range& samples, std::int64_t position) const {
  const auto& [begin, end] = samples;
  if (begin >= end || position >= size_) return kNever;
  if (shuffle_ == Shuffle::none) return next_within(begin, end, position);
  std::int64_t next = kNever;
  if (shuffle_ == Shuffle::global) {
    if (end - begin > kExact) return std::min(position + size_ / (end - begin), size_ - 1);
    for (std::int64_t sample = begin; sample < end; ++sample)
      if (const std::int64_t at = all_.inverse(sample); at >= position) next = std::min(next, at);
    return next;
  }
  auto piece = std::upper_bound(
      by_sample_.begin(), by_sample_.end(), begin, [&](std::int64_t sample, std::size_t p) {
        return sample < pieces_[p].first_sample;
      });
  if (piece != by_sample_.begin()) --piece;
  for (; piece != by_sample_.end() && pieces_[*piece].first_sample < end; ++piece) {
    const Piece& found = pieces_[*piece];
    const std::int64_t piece_last = found.first_sample + (piece_end(*piece) - found.begin);
    if (piece_last <= begin) continue;
    const Range own{std::max(begin, found.first_sample), std::min(end, piece_last)};
    next = std::min(next, next_in_window(found, own, position));
  }
  return next;
}

}  // namespace headrace::loader
