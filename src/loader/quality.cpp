#include "loader/quality.h"

#include <algorithm>
#include <cmath>

namespace headrace::loader {
namespace {

constexpr std::int64_t kPlaces = 512;  // of the epoch
constexpr std::int64_t kNext = 255;

struct Distances {
  double successive = 0, nearest = 0;
};

Distances distances(const Order& order, const Plan& plan) {
  Distances sums;
  const std::int64_t next = std::min(kNext, order.size() - 1);
  const std::int64_t places = std::min(kPlaces, order.size() - next);
  for (std::int64_t i = 0; i < places; ++i) {
    const std::int64_t at = i * (order.size() - next) / places;
    const auto step = [&](std::int64_t position) {
      const SamplePlace place = plan.place_of(order.sample_at(position));
      return plan.sources[place.source].first_step + place.start;
    };
    const std::int64_t here = step(at);
    std::int64_t nearest = std::abs(step(at + 1) - here);
    sums.successive += static_cast<double>(nearest);
    for (std::int64_t k = 2; k <= next; ++k)
      nearest = std::min(nearest, std::abs(step(at + k) - here));
    sums.nearest += static_cast<double>(nearest);
  }
  return sums;
}

double ratio(double found, double random) { return random > 0 ? found / random : 1; }

}  // namespace

ShuffleQuality measure_quality(const Plan& plan, std::int64_t epoch) {
  if (plan.epoch_samples() < 2) return {1, 1};
  OrderOptions random = plan.order;
  random.shuffle = Shuffle::global;
  const Distances found = distances(Order(plan.order, epoch), plan);
  const Distances best = distances(Order(random, 0), plan);
  return {ratio(found.successive, best.successive), ratio(found.nearest, best.nearest)};
}

}  // namespace headrace::loader
