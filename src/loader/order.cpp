#include "loader/order.h"

#include <algorithm>

namespace headrace::loader {
namespace {

// What lanes take of a source in an epoch, one after another.
std::vector<std::int64_t> lane_bounds(const Mixture& mixture,
                                      std::size_t source,
                                      std::int64_t size) {
  std::vector<std::int64_t> bounds{0};
  for (std::int64_t lane = 0; lane < mixture.lanes(); ++lane)
    bounds.push_back(bounds.back() + mixture.count_in_lane(source, lane, size));
  return bounds;
}

}  // namespace

Order::Order(const OrderOptions& options, std::int64_t epoch)
    : in_order_(options.shuffle == Shuffle::none), size_(options.size), mixture_(options.mixture) {
  std::int64_t first_sample = 0;
  for (std::size_t source = 0; source < options.sources.size(); ++source) {
    SequenceOptions sequence = options.sources[source];
    sequence.by_blocks = options.shuffle == Shuffle::block;
    sources_.push_back({first_sample,
                        sequence.samples(),
                        mixture_.count(source, size_),
                        Sequence(sequence,
                                 mix({options.seed, static_cast<std::uint64_t>(epoch), source}),
                                 lane_bounds(mixture_, source, size_))});
    first_sample += sequence.samples();
  }
}

std::int64_t Order::sample_at(std::int64_t position) const {
  const Mixture::Draw draw = mixture_.at(position);
  const Source& source = sources_[draw.source];
  if (in_order_)
    return source.first_sample + mixture_.count(draw.source, position) % source.samples;
  return source.first_sample +
         source.sequence.sample_at(source.sequence.lane_begin(draw.lane) + draw.number);
}

std::int64_t Order::next_use(const Range& samples, std::int64_t position) const {
  if (samples.first >= samples.second || position >= size_) return kNever;
  const auto after = std::ranges::upper_bound(sources_, samples.first, {}, &Source::first_sample);
  const Source& source = after[-1];
  const auto s = static_cast<std::size_t>(after - sources_.begin() - 1);
  const Range own{samples.first - source.first_sample, samples.second - source.first_sample};
  if (in_order_) return next_in_order(s, own, position);
  return source.sequence.next_use(own, position, [&](std::int64_t place) {
    const std::int64_t lane = source.sequence.lane_of(place);
    return mixture_.position_of({s, lane, place - source.sequence.lane_begin(lane)});
  });
}

std::int64_t Order::next_in_order(std::size_t s,
                                  const Range& samples,
                                  std::int64_t position) const {
  const Source& source = sources_[s];
  const std::int64_t drawn = mixture_.count(s, position);
  const std::int64_t pass = drawn - drawn % source.samples, at = drawn - pass;
  const std::int64_t next = at < samples.second ? pass + std::max(samples.first, at)
                                                : pass + source.samples + samples.first;
  return next < source.draws ? mixture_.position_of(s, next) : kNever;
}

}  // namespace headrace::loader
